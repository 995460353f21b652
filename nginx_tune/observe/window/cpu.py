"""What kept main threads from their CPUs over a window, and what they ran on them; pure."""

from __future__ import annotations

import math

from nginx_tune.documents.measured_server import Quota
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.observe.window.window import Window


def plan_samples(window: Window, gaps: Gaps) -> dict[str, int]:
    """Looks at what main threads computed, the most frequent first."""
    samples = window.cpu_samples
    if isinstance(samples, Missing):
        gaps["/cpu_samples"] = samples.reason
        return {}
    return dict(samples.most_common())


def plan_quota(window: Window) -> Quota | None:
    """The quota that held the workers up most; null where none was at work."""
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
    return max(found, key=lambda one: one.throttled_seconds, default=None)


_LOAD_SECONDS = 60.0
"""In which the first load average fades to 1/e. Source: EXP_1 in linux/sched/loadavg.h."""
_LEAST_LOAD_SECONDS = 6.0
"""The kernel counts the tasks every five seconds (LOAD_FREQ): a shorter window may hold none."""


def plan_host_load(window: Window) -> float | None:
    """The mean number of tasks that were counted into the load average.

    The average is a sum of what was and what is: what is new in it shows what it went towards.
    Source: calc_load() in kernel/sched/loadavg.c.
    """
    before, after = window.moments[0].load_average, window.moments[-1].load_average
    if before is None or after is None or window.seconds < _LEAST_LOAD_SECONDS:
        return None
    kept = math.exp(-window.seconds / _LOAD_SECONDS)
    return max(0.0, (after - before * kept) / (1 - kept))


def plan_iowait(window: Window) -> float | None:
    """Share of the host's CPU time that was idle while a task waited for a disk."""
    before, after = window.moments[0].host_cpu, window.moments[-1].host_cpu
    if before is None or after is None or after.total <= before.total:
        return None
    # The kernel may take some of it back. Source: proc(5), iowait.
    return max(0, after.iowait - before.iowait) / (after.total - before.total)


def plan_steal(window: Window) -> float | None:
    """Share of the host's CPU time that a hypervisor gave to others."""
    before, after = window.moments[0].host_cpu, window.moments[-1].host_cpu
    if before is None or after is None or after.total <= before.total:
        return None
    return max(0, after.steal - before.steal) / (after.total - before.total)
