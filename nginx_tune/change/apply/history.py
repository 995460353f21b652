"""The history of changes, from the journals of a state directory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from nginx_tune.change.apply.journal import Journal, State, boot_id, boot_seconds
from nginx_tune.change.apply.model_journal import (
    Answered,
    Begin,
    Entry,
    JournalPhase,
    Story,
    Stuck,
    Undone,
)
from nginx_tune.change.apply.undo import is_abandoned
from nginx_tune.documents.plan import ChangedFile, ChangeRecord, ChangeState, History

if TYPE_CHECKING:
    from nginx_tune.change.apply.run import Ahead

_STATES: dict[JournalPhase, ChangeState] = {
    "kept": "kept",
    "awaiting": "awaiting",
    "undone": "rolled_back",
    "stuck": "stuck",
    "left": "left",
    "damaged": "damaged",
}


def read_history(state: State) -> History:
    """Every change that was begun, newest first.

    Errors: RefusedError if other users could have written the journals.
    """
    state.check()
    found = [describe_change(journal) for journal in reversed(state.all())]
    return History(changes=[record for record in found if record is not None])


def describe_change(journal: Journal, notes: Sequence[str] = ()) -> ChangeRecord | None:
    """The history record of one change; None if the change was never begun."""
    story = journal.read()
    begin = story.begin
    if story.phase == "damaged":
        return _damaged(journal, begin)
    if begin is None:
        return None
    answered = next((record for record in story.records if isinstance(record, Answered)), None)
    state = _STATES.get(story.phase, "unfinished")
    reason = story.reason
    if state == "awaiting" and (late := _why_late(story)):
        state, reason = "unfinished", late
    waits = story.deadline if state == "awaiting" else None
    last = story.records[-1]
    return ChangeRecord(
        id=journal.id,
        state=state,
        begun_at=begin.at,
        conf_path=begin.target.conf_path,
        files=_files(begin.entries),
        reason=reason,
        server=last.server if isinstance(last, Undone) else "",
        stuck_paths=last.paths if isinstance(last, Stuck) else [],
        confirm_until="" if waits is None else waits.until,
        new_workers=None if answered is None else len(answered.workers),
        workers_seen=None if answered is None else answered.seen,
        listeners=None if answered is None else answered.listeners,
        next_step=_next_step(journal, story, state),
        notes=list(notes),
    )


def describe_ahead(ahead: Ahead) -> ChangeRecord:
    """The history record of a dry run: a change that was checked but not made."""
    return ChangeRecord(
        id="",
        state="dry_run",
        begun_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conf_path=ahead.conf_path,
        files=_files(ahead.entries),
        notes=ahead.steps,
    )


def _files(entries: Sequence[Entry]) -> list[ChangedFile]:
    return [
        ChangedFile(
            path=entry.path,
            kind=entry.kind,
            sha256_before=entry.sha256_before,
            sha256_after=entry.sha256_after,
        )
        for entry in entries
    ]


def _damaged(journal: Journal, begin: Begin | None) -> ChangeRecord:
    """The history record of a change whose journal is damaged, perhaps even its first record."""
    begun = datetime.strptime(journal.id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    return ChangeRecord(
        id=journal.id,
        state="damaged",
        begun_at=begun.isoformat(timespec="seconds") if begin is None else begin.at,
        conf_path="" if begin is None else begin.target.conf_path,
        files=[] if begin is None else _files(begin.entries),
        reason="its journal is damaged: its outcome is not known",
        next_step=f"next: {journal.way_out_of_damage}",
    )


def _why_late(story: Story) -> str:
    """The reason why an unconfirmed change is overdue; empty if it is not overdue."""
    waits, begin = story.deadline, story.begin
    if waits is None or begin is None or not is_abandoned(story):
        return ""
    if begin.boot_id == boot_id() and boot_seconds() <= waits.until_boot_seconds:
        return ""
    return f"not confirmed before {waits.until}, and the process that was to take it back has died"


def _next_step(journal: Journal, story: Story, state: ChangeState) -> str:
    if state == "stuck":
        return f"next: {journal.ways_out}"
    if state == "awaiting":
        keep = f"keep it: {journal.command('confirm')}"
        if is_abandoned(story):
            return f"{keep}; the process that was to take it back has died: {journal.recovery}"
        at = f"; otherwise put back at {story.deadline.until[11:19]} UTC" if story.deadline else ""
        return f"{keep}; or take it back: {journal.command('rollback')}{at}"
    if state != "unfinished":
        return ""
    if is_abandoned(story):
        return f"its process has died; take it back: {journal.recovery}"
    return f"process {story.owner.pid if story.owner else '?'} is at work on it"
