"""What disks did over a window; pure."""

from __future__ import annotations

from collections.abc import Callable

from nginx_tune.documents.measured_server import DiskUse
from nginx_tune.observe.parse_counters import DiskCounters
from nginx_tune.observe.window.moment import Moment, Subjects
from nginx_tune.observe.window.window import Window


def plan_disks(window: Window) -> list[DiskUse]:
    """Every disk that nginx's paths lie on."""
    last = window.moments[-1]
    return [_disk(window, name) for name in window.subjects.disks if name in last.disks]


def _disk(window: Window, name: str) -> DiskUse:
    before, after = window.moments[0].disks.get(name), window.moments[-1].disks[name]
    below = list(window.subjects.below.get(name, ()))
    if before is None or not window.seconds:
        return DiskUse(name=name, below=below)
    return _disk_use(name, before, after, window.seconds, below)


def _disk_use(
    name: str, before: DiskCounters, after: DiskCounters, seconds: float, below: list[str]
) -> DiskUse:
    reads, writes = after.reads - before.reads, after.writes - before.writes
    waited = (after.read_milliseconds - before.read_milliseconds) / 1000
    wrote = (after.write_milliseconds - before.write_milliseconds) / 1000
    return DiskUse(
        name=name,
        utilisation_ratio=min(
            1.0, (after.busy_milliseconds - before.busy_milliseconds) / 1000 / seconds
        ),
        reads_per_second=reads / seconds,
        read_bytes_per_second=(after.read_bytes - before.read_bytes) / seconds,
        read_await_seconds=waited / reads if reads else None,
        in_flight=(after.queue_milliseconds - before.queue_milliseconds) / 1000 / seconds,
        writes_per_second=writes / seconds,
        write_bytes_per_second=(after.write_bytes - before.write_bytes) / seconds,
        write_await_seconds=wrote / writes if writes else None,
        below=below,
    )


def read_bytes(before: Moment, after: Moment, subjects: Subjects) -> int | None:
    """Bytes read from all disks; null when one of them does not tell.

    What a disk on another asks for is read from both and counted once: a disk below others
    counts with what it gave beyond their reads. Those may come from memory, hence never below 0.
    """
    return _moved(before, after, subjects, lambda counters: counters.read_bytes)


def written_bytes(before: Moment, after: Moment, subjects: Subjects) -> int | None:
    """Bytes written to all disks, in the same way."""
    return _moved(before, after, subjects, lambda counters: counters.write_bytes)


def _moved(
    before: Moment, after: Moment, subjects: Subjects, told: Callable[[DiskCounters], int]
) -> int | None:
    names = subjects.disks
    if not names or any(n not in before.disks or n not in after.disks for n in names):
        return None
    grown = {n: told(after.disks[n]) - told(before.disks[n]) for n in names}
    return sum(
        max(0, own - sum(grown.get(above, 0) for above in subjects.below.get(name, ())))
        for name, own in grown.items()
    )
