"""``/proc/meminfo``."""

from __future__ import annotations

import re

from nginx_tune.host.gaps import Missing

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
