"""What processes used, from /proc: CPU of every thread, and their namespace's listen drops."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def read_cpu_seconds(pid: int) -> float | None:
    """CPU time of all threads that a process has now.

    Source: proc(5), /proc/PID/task/TID/schedstat, time on CPU in nanoseconds (clock ticks of
    /proc/PID/stat are 10 ms, too coarse for a block of seconds). Threads that ended are not in
    it; nginx keeps its pool threads until it exits.
    """
    total = 0
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return None
    for task in tasks:
        nanoseconds = _schedstat(task / "schedstat")
        if nanoseconds is None:
            return _cpu_from_ticks(pid)
        total += nanoseconds
    return total / 1e9 if tasks else None


def read_children(pid: int) -> frozenset[int] | None:
    """The processes that a process has started and that are still there.

    Source: proc_pid_task(5), children: with CONFIG_PROC_CHILDREN.
    """
    try:
        return frozenset(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except (OSError, ValueError):
        return None


def _schedstat(path: Path) -> int | None:
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _cpu_from_ticks(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_listen_counters(pid: int | None = None) -> tuple[int | None, int | None]:
    """ListenOverflows and ListenDrops of a process's network namespace, else of ours.

    Source: /proc/net/netstat, TcpExt; they count drop events, retries of one client included.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid or 'self'}/net/netstat").read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            if names.startswith("TcpExt:"):
                table = dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=False))
                return table.get("ListenOverflows"), table.get("ListenDrops")
    return None, None
