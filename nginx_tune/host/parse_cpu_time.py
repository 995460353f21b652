"""What the kernel counts of CPU time: what a quota held back, and what the host was given."""

from __future__ import annotations

from typing import NamedTuple


class Throttling(NamedTuple):
    """What the CPU quota of a control group did."""

    periods: int
    throttled_periods: int
    throttled_seconds: float
    """Of all its CPUs, added."""


def parse_throttling(text: str) -> Throttling | None:
    """The quota's part of a group's ``cpu.stat``; None for a group without one.

    Source: cpu_cfs_stat_show (version 1, nanoseconds) and cpu_extra_stat_show (version 2,
    microseconds) in kernel/sched/core.c.
    """
    found = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)  # noqa: PLR2004
    try:
        periods, throttled = int(found["nr_periods"]), int(found["nr_throttled"])
        if "throttled_usec" in found:
            return Throttling(periods, throttled, int(found["throttled_usec"]) / 1e6)
        return Throttling(periods, throttled, int(found["throttled_time"]) / 1e9)
    except (KeyError, ValueError):
        return None


class HostCpu(NamedTuple):
    """The first line of /proc/stat: all CPUs, in clock ticks."""

    total: int
    idle: int
    """With ``iowait``."""
    steal: int
    iowait: int
    """Idle while a task of the CPU waited for a disk."""


def parse_host_cpu(text: str) -> HostCpu | None:
    """Time of all CPUs since the host came up.

    Source: proc(5): user nice system idle iowait irq softirq steal; guest time is in user.
    """
    fields = text.split("\n", 1)[0].split()
    if fields[:1] != ["cpu"] or len(fields) < 9 or not all(map(str.isdecimal, fields[1:9])):  # noqa: PLR2004
        return None
    numbers = [int(field) for field in fields[1:9]]
    return HostCpu(sum(numbers), numbers[3] + numbers[4], numbers[7], numbers[4])
