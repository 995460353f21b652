"""Whether the kernel ended processes of a group because its memory was used up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_COUNTS = ("memory.events", "memory.oom_control")
"""v2 and v1; both have a line ``oom_kill N`` (v1 from Linux 4.13)."""
_LIMITS = ("memory.max", "memory.limit_in_bytes")


class MemoryKills(NamedTuple):
    """Of a group and, from v2, its descendants."""

    processes: int
    limit_bytes: int | None


def count_memory_kills(join_files: Iterable[str | Path]) -> MemoryKills:
    """The kills so far in the groups with these ``cgroup.procs``; 0 where none tells."""
    count, limit = 0, None
    for file in join_files:
        directory = Path(file).parent
        for name in _COUNTS:
            count += _count(directory / name)
        for name in _LIMITS:
            text = _read(directory / name).strip()
            limit = int(text) if text.isdigit() else limit
    return MemoryKills(count, limit)


def _count(file: Path) -> int:
    for line in _read(file).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return 0


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
