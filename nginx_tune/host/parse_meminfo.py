"""``/proc/meminfo``, and the kstats of ZFS."""

from __future__ import annotations

import re

from nginx_tune.host.door import Missing

_LINE = re.compile(r"^([\w()]+):\s+([0-9]{1,18})( kB)?$", re.MULTILINE)


def parse_meminfo(text: str) -> dict[str, int]:
    """Fields by name.

    Units: bytes, except the counts of huge pages.
    """
    return {match[1]: int(match[2]) * (1024 if match[3] else 1) for match in _LINE.finditer(text)}


def total_bytes(fields: dict[str, int]) -> int | Missing:
    """``MemTotal``."""
    return fields.get("MemTotal", Missing("/proc/meminfo has no MemTotal"))


def available_bytes(fields: dict[str, int]) -> int | Missing:
    """``MemAvailable``; before Linux 3.14 what is free or holds file data."""
    if "MemAvailable" in fields:
        return fields["MemAvailable"]
    if "MemFree" in fields and "Cached" in fields:
        return fields["MemFree"] + fields.get("Buffers", 0) + fields["Cached"]
    return Missing("/proc/meminfo has no MemAvailable")


_CONSUMERS = {
    "anonymous": ("AnonPages",),
    "shared": ("Shmem",),
    "kernel": ("SUnreclaim", "KernelStack", "PageTables", "Percpu"),
}


def consumers(fields: dict[str, int]) -> dict[str, int]:
    """What of the memory no file data can have, by kind; kinds that are not told are left out.

    Units: bytes.
    """
    found = {
        kind: sum(fields.get(name, 0) for name in names)
        for kind, names in _CONSUMERS.items()
        if names[0] in fields
    }
    if "HugePages_Total" in fields and "Hugepagesize" in fields:
        found["huge_pages"] = fields["HugePages_Total"] * fields["Hugepagesize"]
    return found


def parse_kstat(text: str) -> dict[str, int]:
    """Numbers of a ZFS kstat by name: lines of name, type and value."""
    return {
        name: int(value)
        for name, value in re.findall(r"^(\w+)\s+[0-9]+\s+([0-9]{1,20})$", text, re.MULTILINE)
    }
