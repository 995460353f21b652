"""Later changes of the same files: they are to be taken back before an earlier one is."""

from __future__ import annotations

from nginx_tune.change.apply.errors import RefusedError
from nginx_tune.change.apply.journal import Journal, State
from nginx_tune.change.apply.swap import foreign, look


def check_later(state: State, journal: Journal) -> None:
    """Whether what hinders a rollback is a later change of ours; nothing is written.

    Nobody else's doing: neither is the earlier change stuck by it, nor is anything to be put right
    by hand. The newest is named, since each may stand on the one before.
    Errors: RefusedError that names it.
    """
    begin = journal.read().begin
    wrong = foreign([] if begin is None else begin.entries)
    if not wrong:
        return
    for later in reversed(state.all()):
        story = later.read()
        if later.id <= journal.id:
            return
        if story.begin is None or story.phase == "undone":
            continue
        for entry in story.begin.entries:
            if entry.path in wrong and look(entry) == "new":
                raise RefusedError(
                    f"change {journal.id}: {entry.path} was changed again by change {later.id}",
                    hint=f"take that back first: {later.command('rollback')}",
                )
