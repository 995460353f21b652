"""What one worker used over a window."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from nginx_tune.documents.measured_server import WorkerUse
from nginx_tune.host.door import Missing
from nginx_tune.observe.parse_counters import ThreadCpu
from nginx_tune.observe.states import StateShares
from nginx_tune.observe.window.window import Window, difference

_FEWEST_TICKS = 5


def plan_worker(window: Window, pid: int) -> WorkerUse:
    """The worker's part of a measurement."""
    first, last = window.moments[0], window.moments[-1]
    shares = window.states.get(pid, StateShares({}, 0, None))
    before, after = first.scheduling.get(pid), last.scheduling.get(pid)
    switched = _pair_difference(first.switches.get(pid), last.switches.get(pid))
    held = [count.get(pid) for count in window.connections if count is not None]
    connections = None if None in held else _mean_of([n for n in held if n is not None])
    everyone = _mean_of([sum(count.values()) for count in window.connections if count is not None])
    traced = isinstance(window.spans, list) and bool(window.spans)
    thread = window.global_ids.get(pid, pid)
    delay = window.delay_of(pid)
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
        block_io_delay_seconds=delay,
        switches_voluntary=None if switched is None else switched[0],
        switches_involuntary=None if switched is None else switched[1],
        user_ratio=_user_ratio(first.thread_cpu.get(pid), last.thread_cpu.get(pid)),
        major_faults=_faults(first.thread_cpu.get(pid), last.thread_cpu.get(pid)),
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
    """Null with too few ticks to tell."""
    if before is None or after is None:
        return None
    user, system = after.user - before.user, after.system - before.system
    return user / (user + system) if user + system >= _FEWEST_TICKS else None


def _faults(before: ThreadCpu | None, after: ThreadCpu | None) -> int | None:
    return None if before is None or after is None else after.major_faults - before.major_faults


def _of_spans(window: Window, name: str, thread: int) -> int:
    spans = window.spans if isinstance(window.spans, list) else []
    total = 0
    for span in spans:
        counted: Counter[int] = getattr(span, name)
        total += counted[thread]
    return total


def _pair_difference(
    before: tuple[int, int] | None, after: tuple[int, int] | None
) -> tuple[int, int] | None:
    if before is None or after is None:
        return None
    return after[0] - before[0], after[1] - before[1]


def _mean_of(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
