"""Changes, for people."""

from __future__ import annotations

from nginx_tune.documents.history import ChangeRecord, History
from nginx_tune.documents.units import plural
from nginx_tune.report.text import plain

_WORDS = {
    "kept": "kept",
    "awaiting": "WAITS to be confirmed",
    "rolled_back": "rolled back",
    "stuck": "STUCK: neither kept nor taken back",
    "left": "left as it is",
    "unfinished": "UNFINISHED",
    "dry_run": "DRY RUN: nothing is changed",
    "damaged": "DAMAGED: not known whether it is in force",
}


def render_history(history: History, none: str) -> str:
    """Each change with its files, oldest first; ``none`` where there is no change."""
    if not history.changes:
        return f"{none}\n"
    return "".join(render_change(one) for one in history.changes)


def render_change(change: ChangeRecord) -> str:
    """One change: how it ended, why, and its files."""
    until = f" until {change.confirm_until}" if change.confirm_until else ""
    lines = [f"{change.id}  {_WORDS[change.state]}{until}  {plain(change.conf_path)}".strip()]
    lines += [f"  {one.kind} {plain(one.path)}" for one in change.files]
    if change.new_workers is not None and change.state in {"kept", "awaiting"}:
        lines.append(
            f"  {plural(change.new_workers, 'new worker')}, {change.workers_seen} seen to answer, "
            f"on {plural(change.listeners or 0, 'listener')}"
        )
    if change.reason:
        lines.append(f"  because: {plain(change.reason)}")
    if change.server:
        lines.append(f"  every file is as it was; nginx: {plain(change.server)}")
    lines += [f"  not put back: {plain(path)}" for path in change.stuck_paths]
    lines += [f"  note: {plain(note)}" for note in change.notes]
    if change.next_step:
        lines.append(f"  {plain(change.next_step)}")
    return "\n".join(lines) + "\n"
