"""CPU time that was there and could not be used: held back by a quota, or given to others."""

from __future__ import annotations

from nginx_tune.documents.facts import Throttled
from nginx_tune.host.cgroup import read_group
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_cpu_time import parse_host_cpu, parse_throttling


def read_throttled(host: Host, process: str) -> Throttled | Missing:
    """What the quotas of a process's group and of those above held back.

    Each group counts what its own quota did; the one that was held back longest is the one
    that binds.
    """
    group = read_group(host, "cpu", process)
    if isinstance(group, Missing):
        return group
    found: list[Throttled] = []
    for directory in group.directories:
        text = attempt(host.read_text, f"{directory}/cpu.stat")
        counted = None if isinstance(text, Missing) else parse_throttling(text)
        if counted is not None:
            found.append(
                Throttled(
                    directory=directory,
                    periods=counted.periods,
                    throttled_periods=counted.throttled_periods,
                    throttled_seconds=counted.throttled_seconds,
                )
            )
    if not found:
        return Missing("no control group of the process counts what a quota holds back")
    return max(found, key=lambda one: (one.throttled_seconds, one.throttled_periods, one.periods))


def read_steal_ratio(host: Host) -> float | Missing:
    """Share of all CPU time since the host came up that a hypervisor gave to others."""
    text = attempt(host.read_text, "/proc/stat")
    if isinstance(text, Missing):
        return text
    counted = parse_host_cpu(text)
    if counted is None or counted.total <= 0:
        return Missing("/proc/stat does not tell it")
    return round(min(1.0, counted.steal / counted.total), 4)
