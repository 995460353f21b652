"""Control groups, version 1 and 2: membership, limits, quota.

A hybrid host has some controllers on version 1 and the others on version 2, so the version is
a property of one controller, never of the host.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.host.parse_values import parse_integer

_UNLIMITED_V1 = 1 << 60
"""Version 1 prints LONG_MAX rounded down to a page for "no limit" (mm/memcontrol.c)."""


class Membership(NamedTuple):
    """The group of one process in one hierarchy."""

    version: int
    controllers: frozenset[str]
    path: str


def parse_membership(text: str) -> list[Membership]:
    """Every line of ``/proc/PID/cgroup`` that can be read.

    Source: cgroups(7): ``hierarchy-ID:controller-list:cgroup-path``; version 2 is ``0::PATH``.
    """
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if not separator or not number.isdecimal() or not path.startswith("/"):
            continue
        names = frozenset(filter(None, controllers.split(",")))
        found.append(Membership(2 if number == "0" and not names else 1, names, path))
    return found


def membership_for(memberships: list[Membership], controller: str) -> Membership | Missing:
    """The membership that counts for a controller: version 1 where it is mounted there."""
    for one in memberships:
        if controller in one.controllers:
            return one
    for one in memberships:
        if one.version == 2:  # noqa: PLR2004
            return one
    return Missing(f"no cgroup with the {controller} controller")


def parse_memory_limit(text: str) -> int | Missing | None:
    """A memory limit; None is unlimited (``max``, or the sentinel of version 1).

    Units: bytes.
    """
    if text.strip() == "max":
        return None
    value = parse_integer(text)
    if isinstance(value, Missing):
        return value
    return None if value < 0 or value >= _UNLIMITED_V1 else value


def parse_memory_stat(text: str) -> dict[str, int]:
    """Fields of ``memory.stat``.

    Units: bytes and counts.
    """
    pairs = re.findall(r"^(\w+) ([0-9]{1,20})$", text, re.MULTILINE)
    return {name: int(value) for name, value in pairs}


def unreclaimable_bytes(stat: dict[str, int], version: int) -> int | Missing:
    """Memory charged to a group and its children that no file data can displace.

    Anonymous memory and shared memory; on version 2 also what the kernel cannot give back.
    """
    if version == 1:
        if "total_rss" not in stat:
            return Missing("memory.stat has no total_rss")
        return stat["total_rss"] + stat.get("total_shmem", 0)
    if "anon" not in stat:
        return Missing("memory.stat has no anon")
    kernel = max(0, stat.get("kernel", 0) - stat.get("slab_reclaimable", 0))
    return stat["anon"] + stat.get("shmem", 0) + kernel


def parse_cpu_max(text: str) -> float | Missing | None:
    """The quota of ``cpu.max`` in CPUs; None is no quota."""
    words = text.split()
    if words and words[0] == "max":
        return None
    return _cpus(*words) if len(words) == 2 else Missing(f"not a quota: {text.strip()[:40]!r}")  # noqa: PLR2004


def parse_cfs_quota(quota: str, period: str) -> float | Missing | None:
    """The quota of version 1 in CPUs (``cpu.cfs_quota_us``: -1 is none); None is no quota."""
    if quota.strip() == "-1":
        return None
    return _cpus(quota, period)


def _cpus(quota: str, period: str) -> float | Missing:
    quota_us, period_us = parse_integer(quota), parse_integer(period)
    if isinstance(quota_us, Missing):
        return quota_us
    if isinstance(period_us, Missing):
        return period_us
    if quota_us <= 0 or period_us <= 0:
        return Missing(f"not a quota: {quota.strip()[:20]} of {period.strip()[:20]}")
    return quota_us / period_us
