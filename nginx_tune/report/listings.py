"""Short lists as text: checks of ``doctor``, labs on this machine, changes by ``apply``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nginx_tune.documents.units import bytes_text, plural
from nginx_tune.report.screen import Line, Screen, Table
from nginx_tune.report.text import plain

if TYPE_CHECKING:
    from nginx_tune.documents.inspection import Check, Doctor
    from nginx_tune.documents.lab import KeptImage, LabRun, Labs
    from nginx_tune.documents.plan import ChangeRecord, History

_SAID = {"ok": "ok", "missing": "missing", "unknown": "cannot tell"}


def doctor_screen(doctor: Doctor) -> Screen:
    """The number of passed checks, the names of the others, then each check with its result."""
    rows = [(check.name, _SAID[check.status], _detail(check)) for check in doctor.checks]
    lacking = [check.name for check in doctor.checks if check.status != "ok"]
    count = len(doctor.checks) - len(lacking)
    answer = f"{count} of {len(doctor.checks)} checks are ok"
    answer += f"; not ok: {', '.join(map(plain, lacking))}" if lacking else ""
    return [[Line(answer, "answer")], [Table(rows, has_head=False)]]


def _detail(check: Check) -> str:
    said = plain(check.detail)
    if check.status != "ok":
        said += f"; for {check.needed_for}" + (f"; {plain(check.fix)}" if check.fix else "")
    return said


_HOUR_SECONDS = 3600


def render_list(labs: Labs) -> str:
    """Each lab and each kept image on a separate line."""
    lines = [_run_line(run) for run in labs.runs] or ["no lab runs and none is left"]
    lines += [_image_line(image) for image in labs.images]
    total = sum(image.bytes for image in labs.images)
    lines.append(
        f"{plural(len(labs.images), 'image')} kept, {bytes_text(total)} of at most "
        f"{bytes_text(labs.image_bytes_most)}"
    )
    if any(run.state == "dead" for run in labs.runs):
        lines.append("'nginx-tune lab clean' removes the leftovers of dead labs")
    return "\n".join(lines) + "\n"


def render_cleaned(labs: Labs) -> str:
    """The labs and images that were removed, and those that could not be."""
    lines = [f"removed {_run_line(run)}" for run in labs.runs]
    lines += [f"removed {_image_line(image)}" for image in labs.images]
    lines += [f"removed tracing instance {plain(name)}" for name in labs.tracing]
    lines += [f"kept {plain(failure)}" for failure in labs.failures]
    return "\n".join(lines or ["nothing to clean"]) + "\n"


def _run_line(run: LabRun) -> str:
    groups = f", {len(run.cgroups)} cgroups" if run.cgroups else ""
    size = bytes_text(run.bytes)
    return f"lab {plain(run.directory)}: {run.state}, pid {run.pid}, {size}{groups}"


def _image_line(image: KeptImage) -> str:
    hours = image.unused_seconds / _HOUR_SECONDS
    since = "in use" if image.in_use else f"unused for {hours:.1f} h"
    return f"image {plain(image.path)}: {bytes_text(image.bytes)}, {since}"


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
    """Each change with its files, in the order given; ``none`` if there is no change."""
    if not history.changes:
        return f"{none}\n"
    return "".join(render_change(change) for change in history.changes)


def render_change(change: ChangeRecord) -> str:
    """One change: its outcome with the reason, and its files."""
    until = f" until {change.confirm_until}" if change.confirm_until else ""
    lines = [f"{change.id}  {_WORDS[change.state]}{until}  {plain(change.conf_path)}".strip()]
    lines += [f"  {file.kind} {plain(file.path)}" for file in change.files]
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
