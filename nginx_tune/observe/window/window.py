"""The readings of a window over a server, and their figures by worker, CPU, disk and name; pure.

A window has moments, the intervals between them, and samples. ``server`` builds the measurement.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import msgspec

from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measured_server import DiskUse, Quota, WorkerUse
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.host.parse_proc import HostCpu
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.observe.accounting import delay_between
from nginx_tune.observe.parse_counters import DiskCounters, ErrorLogCounts, ThreadCpu
from nginx_tune.observe.parse_turns import NameCalls, TurnCounts
from nginx_tune.observe.states import BlockedState, StateShares
from nginx_tune.observe.tracing import QueueWaits
from nginx_tune.observe.window.moment import NOT_ASKED, Moment, Subjects

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Window:
    """All readings; lists of intervals have one entry for each pair of moments."""

    subjects: Subjects
    moments: list[Moment]
    logs: ErrorLogCounts | Missing
    states: dict[int, StateShares] = field(default_factory=dict)
    d_ratios: list[float | None] = field(default_factory=list)
    spans: list[TurnCounts] | Missing = field(default_factory=list)
    turn_method: str = ""
    global_ids: dict[int, int] = field(default_factory=dict)
    delay_method: str = ""
    delay_missing: Missing | None = None
    connections: tuple[dict[int, int] | None, dict[int, int] | None] = (None, None)
    refault_source: str = ""
    queue_waits: QueueWaits | Missing | None = None
    opens: NameCalls | Missing | None = None
    observer_cpu_seconds: float | None = None
    observer_late_seconds: float | None = None
    held: Counter[BlockedState] = field(default_factory=Counter)
    """Samples of main threads by state and call."""
    cpu_samples: Counter[str] | Missing = NOT_ASKED

    @property
    def seconds(self) -> float:
        """Time from the first moment to the last."""
        return self.moments[-1].at - self.moments[0].at

    def delay_of(self, pid: int) -> float | None:
        """The block-I/O delay of a main thread. If the count jumps, only one second is left out."""
        if self.delay_missing is not None:
            return None
        known = [
            waited
            for pair in pairwise(moment.delays for moment in self.moments)
            if (waited := delay_between(*pair).get(pid)) is not None
        ]
        return math.fsum(known) if known else None


def difference(before: N | None, after: N | None) -> N | None:
    """The growth; None if either value is unknown."""
    return None if before is None or after is None else after - before


def sum_known(values: Sequence[float | None]) -> float | None:
    """The sum; None if a part is unknown or there are no parts."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


_FEWEST_TICKS = 5


def plan_worker(window: Window, pid: int) -> WorkerUse:
    """The measurement of a worker."""
    first, last = window.moments[0], window.moments[-1]
    shares = window.states.get(pid, StateShares({}, 0, None))
    before, after = first.scheduling.get(pid), last.scheduling.get(pid)
    switches = first.switches.get(pid), last.switches.get(pid)
    cpu_before, cpu_after = first.thread_cpu.get(pid), last.thread_cpu.get(pid)
    held = [count.get(pid) for count in window.connections if count is not None]
    connections = None if None in held else _mean_of([n for n in held if n is not None])
    everyone = _mean_of([sum(count.values()) for count in window.connections if count is not None])
    traced = isinstance(window.spans, list) and bool(window.spans)
    thread = window.global_ids.get(pid, pid)
    return WorkerUse(
        pid=pid,
        cpu_seconds=difference(first.cpu_seconds.get(pid), last.cpu_seconds.get(pid)),
        main_thread_cpu_seconds=(
            after.cpu_seconds - before.cpu_seconds if before and after else None
        ),
        run_queue_seconds=(
            after.run_queue_seconds - before.run_queue_seconds if before and after else None
        ),
        state_d_ratio=shares.ratios.get("D"),
        state_ratios=shares.ratios,
        state_samples=shares.samples,
        state_d_error=shares.error_in_d,
        block_io_delay_seconds=window.delay_of(pid),
        switches_voluntary=difference(*(pair and pair[0] for pair in switches)),
        switches_involuntary=difference(*(pair and pair[1] for pair in switches)),
        user_ratio=_user_ratio(cpu_before, cpu_after),
        major_faults=difference(*(cpu and cpu.major_faults for cpu in (cpu_before, cpu_after))),
        threads=last.threads.get(pid),
        virtual_bytes=last.virtual_bytes.get(pid),
        connections_max=max(
            (
                look.waiting.connections[pid]
                for look in window.moments
                if not isinstance(look.waiting, Missing) and pid in look.waiting.connections
            ),
            default=None,
        ),
        connections=connections,
        connection_ratio=(connections / everyone if connections is not None and everyone else None),
        loop_turns=_of_spans(window, "turns", thread) if traced else None,
        loop_busy_seconds=_of_spans(window, "busy", thread) / 1e9 if traced else None,
        loop_blocked_seconds=_of_spans(window, "blocked", thread) / 1e9 if traced else None,
    )


def _user_ratio(before: ThreadCpu | None, after: ThreadCpu | None) -> float | None:
    """The share of user time; None with fewer than five ticks."""
    if before is None or after is None:
        return None
    user, system = after.user - before.user, after.system - before.system
    return user / (user + system) if user + system >= _FEWEST_TICKS else None


def _of_spans(window: Window, name: str, thread: int) -> int:
    spans = window.spans if isinstance(window.spans, list) else []
    return sum(getattr(span, name)[thread] for span in spans)


def _mean_of(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def plan_samples(window: Window, gaps: Gaps) -> dict[str, int]:
    """Samples of main threads by the code they ran, the most frequent first."""
    samples = window.cpu_samples
    if isinstance(samples, Missing):
        gaps["/cpu_samples"] = samples.reason
        return {}
    return dict(samples.most_common())


def plan_quota(window: Window) -> Quota | None:
    """The CPU quota that throttled the workers most; None if there is no quota."""
    first, last = window.moments[0].throttling, window.moments[-1].throttling
    found = [
        Quota(
            periods=after.periods - before.periods,
            throttled_periods=after.throttled_periods - before.throttled_periods,
            throttled_seconds=after.throttled_seconds - before.throttled_seconds,
        )
        for place, after in last.items()
        if (before := first.get(place)) is not None and after.periods > before.periods
    ]
    return max(found, key=lambda quota: quota.throttled_seconds, default=None)


_LOAD_SECONDS = 60.0
"""Decay time of the first load average. Source: EXP_1 in linux/sched/loadavg.h."""
_LEAST_LOAD_SECONDS = 6.0
"""The shortest window for an estimate of the host's load. It holds two counts of tasks, which the
kernel makes every five seconds (LOAD_FREQ)."""


def plan_host_load(window: Window) -> float | None:
    """The mean number of tasks in the window, from the change of the load average.

    In the window, the old average decays by a known factor. What remains comes from the tasks in
    the window.
    Source: calc_load() in kernel/sched/loadavg.c.
    """
    before, after = window.moments[0].load_average, window.moments[-1].load_average
    if before is None or after is None or window.seconds < _LEAST_LOAD_SECONDS:
        return None
    kept = math.exp(-window.seconds / _LOAD_SECONDS)
    return max(0.0, (after - before * kept) / (1 - kept))


def plan_iowait(window: Window) -> float | None:
    """The share of the host's CPU time that was idle while a task waited for a disk."""
    return _cpu_share(window, lambda cpu: cpu.iowait)


def plan_steal(window: Window) -> float | None:
    """The share of the host's CPU time that the hypervisor gave to other guests."""
    return _cpu_share(window, lambda cpu: cpu.steal)


def _cpu_share(window: Window, part: Callable[[HostCpu], int]) -> float | None:
    before, after = window.moments[0].host_cpu, window.moments[-1].host_cpu
    if before is None or after is None or after.total <= before.total:
        return None
    # iowait may decrease. Source: proc(5).
    return max(0, part(after) - part(before)) / (after.total - before.total)


def plan_disks(window: Window) -> list[DiskUse]:
    """The use of every disk under nginx's paths."""
    last = window.moments[-1]
    return [_disk(window, name) for name in window.subjects.disks if name in last.disks]


def _disk(window: Window, name: str) -> DiskUse:
    before, after = window.moments[0].disks.get(name), window.moments[-1].disks[name]
    below, seconds = list(window.subjects.below.get(name, ())), window.seconds
    if before is None or not seconds:
        return DiskUse(name=name, below=below)
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
    """Bytes read from all disks; None when a disk has no counters.

    Reads of a disk on top of another appear in both but count once. The lower disk adds only what
    exceeds the reads of the disks on top of it; at least 0, since those may come from memory.
    """
    return _moved(before, after, subjects, lambda counters: counters.read_bytes)


def written_bytes(before: Moment, after: Moment, subjects: Subjects) -> int | None:
    """Bytes written to all disks, counted in the same way as reads."""
    return _moved(before, after, subjects, lambda counters: counters.write_bytes)


def _moved(
    before: Moment, after: Moment, subjects: Subjects, total: Callable[[DiskCounters], int]
) -> int | None:
    names = subjects.disks
    if not names or any(n not in before.disks or n not in after.disks for n in names):
        return None
    grown = {n: total(after.disks[n]) - total(before.disks[n]) for n in names}
    return sum(
        max(0, own - sum(grown.get(above, 0) for above in subjects.below.get(name, ())))
        for name, own in grown.items()
    )


class NamesTouched(msgspec.Struct, frozen=True):
    """The main threads' calls of open() and rename()."""

    opens: Latency | None = None
    renames: Latency | None = None
    open_reads: dict[str, int] = {}
    """Calls of open() by the number of disk reads that they caused."""


def plan_names(window: Window, gaps: Gaps) -> NamesTouched:
    """Calls of open() and rename(); if they are unknown, the reason goes into ``gaps``."""
    calls = window.opens
    if isinstance(calls, NameCalls):
        reads = {} if calls.open_reads is None else calls.open_reads
        return NamesTouched(
            latency_of(calls.opens),
            latency_of(calls.renames),
            {str(number): reads[number] for number in sorted(reads)},
        )
    reason = calls.reason if calls else "not asked for"
    gaps["/open_seconds"] = gaps["/rename_seconds"] = reason
    return NamesTouched()
