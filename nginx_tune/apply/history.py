"""What the journals of a state directory tell."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.apply.journal import Journal, State
from nginx_tune.apply.model_journal import Answered, Phase, Story, Stuck, Undone
from nginx_tune.documents.history import ChangedFile, ChangeRecord, ChangeState, History

_STATES: dict[Phase, ChangeState] = {
    "kept": "kept",
    "awaiting": "awaiting",
    "undone": "rolled_back",
    "stuck": "stuck",
    "left": "left",
}


def read_history(state: State) -> History:
    """Every change of which something was begun.

    Errors: RefusedError when others could have written the journals.
    """
    state.check()
    found = [describe_change(journal) for journal in state.all()]
    return History(changes=[one for one in found if one is not None])


def describe_change(journal: Journal, notes: Sequence[str] = ()) -> ChangeRecord | None:
    """One change; null when nothing of it was begun."""
    story = journal.read()
    begin = story.begin
    if begin is None:
        return None
    answered = next((one for one in story.records if isinstance(one, Answered)), None)
    state = _STATES.get(story.phase, "unfinished")
    waits = story.deadline if state == "awaiting" else None
    return ChangeRecord(
        id=journal.id,
        state=state,
        begun_at=begin.at,
        conf_path=begin.target.conf_path,
        files=[
            ChangedFile(
                path=one.path,
                kind=one.kind,
                sha256_before=one.sha256_before,
                sha256_after=one.sha256_after,
            )
            for one in begin.entries
        ],
        reason=story.reason,
        server=_server(story),
        stuck_paths=_stuck(story),
        confirm_until="" if waits is None else waits.until,
        new_workers=None if answered is None else len(answered.workers),
        workers_seen=None if answered is None else answered.seen,
        listeners=None if answered is None else answered.listeners,
        notes=list(notes),
    )


def _server(story: Story) -> str:
    last = story.records[-1]
    return last.server if isinstance(last, Undone) else ""


def _stuck(story: Story) -> list[str]:
    last = story.records[-1]
    return last.paths if isinstance(last, Stuck) else []
