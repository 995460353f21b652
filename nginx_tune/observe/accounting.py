"""The kernel's accounts of processes: waits for block I/O, CPU of every thread, listen drops.

Delay accounting counts only sleeps in ``io_schedule``: waits for a page of a file, but not metadata
reads of XFS or calls to an NFS server. Since Linux 6.12 a thread's count can jump by the uptime of
the host (__block_task stamps the wrong thread), so growth above the elapsed time is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.observe.parse_counters import (
    NetlinkRefusal,
    TaskDelay,
    parse_block_io_ticks,
    parse_family,
    parse_task_delay,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_SWITCH = Path("/proc/sys/kernel/task_delayacct")
_NETLINK_GENERIC = 16
_GENERIC_CONTROL = 16
_GET_FAMILY = 3
_FAMILY_NAME = 2
_GET = 1
_OF_THREAD = 1
_SLACK = 1.1
"""Tolerance, since a reading and the clock are not taken at the same instant."""


class DelayReading(NamedTuple):
    """A reading at one moment: the seconds that each thread has waited since its start."""

    at: float
    """Time of the reading by the monotonic clock."""
    seconds: dict[int, float]


class BlockDelayMeter:
    """Reads the delays of threads from taskstats, else from the 10-ms ticks of stat files."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._threads = list(threads)
        self._taskstats: TaskStats | None = None
        self.method = ""
        self.missing = self._choose()

    def _choose(self) -> Missing | None:
        """Choose the method; returns the reason if none is possible."""
        try:
            switched_on = _SWITCH.read_text().strip() == "1"
        except OSError:
            return Missing("the kernel has no switchable delay accounting (before 5.14)")
        if not switched_on:
            return Missing(
                "kernel.task_delayacct is 0: sysctl kernel.task_delayacct=1, then reload nginx"
            )
        if not self._threads:
            return Missing("there is no worker")
        try:
            self._taskstats = TaskStats()
            accounted = [self._taskstats.read(thread).accounted for thread in self._threads]
        except OSError:
            self.close()
            self.method = "stat"
            return None
        if False in accounted:
            self.close()
            return Missing(
                "workers are older than kernel.task_delayacct=1 and are never counted: reload nginx"
            )
        self.method = "taskstats"
        return None

    def read(self) -> DelayReading:
        """The present delays; threads that have ended are left out."""
        seconds = {}
        for thread in self._threads:
            try:
                seconds[thread] = self._read_one(thread)
            except (OSError, ValueError):
                continue
        return DelayReading(time.monotonic(), seconds)

    def _read_one(self, thread: int) -> float:
        if self._taskstats is not None:
            return self._taskstats.read(thread).block_io_nanoseconds / 1e9
        stat = Path(f"/proc/{thread}/task/{thread}/stat").read_text(errors="replace")
        return parse_block_io_ticks(stat) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Close the netlink socket."""
        if self._taskstats is not None:
            self._taskstats.close()
            self._taskstats = None


def delay_between(before: DelayReading, after: DelayReading) -> dict[int, float | None]:
    """The seconds that each thread waited between two readings.

    None for a count that grew by more than the elapsed time.
    """
    most = (after.at - before.at) * _SLACK + 0.02
    waited: dict[int, float | None] = {}
    for thread, seconds in after.seconds.items():
        if thread in before.seconds:
            delta = seconds - before.seconds[thread]
            waited[thread] = delta if 0 <= delta <= most else None
    return waited


class TaskStats:
    """A netlink socket for the delays of threads (needs CAP_NET_ADMIN)."""

    def __init__(self) -> None:
        """Errors: OSError when the kernel has no taskstats."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        try:
            self._socket.settimeout(2.0)
            self._socket.bind((0, 0))
            name = _attribute(_FAMILY_NAME, b"TASKSTATS\0")
            self._family = parse_family(self._ask(_GENERIC_CONTROL, _GET_FAMILY, name))
        except (NetlinkRefusal, ValueError) as error:
            self._socket.close()
            raise OSError(errno.ENOTSUP, "the kernel has no taskstats") from error
        except OSError:
            self._socket.close()
            raise

    def read(self, thread: int) -> TaskDelay:
        """The delays of a thread. Errors: OSError if the thread is gone or the right is missing."""
        wanted = _attribute(_OF_THREAD, struct.pack("=I", thread))
        try:
            return parse_task_delay(self._ask(self._family, _GET, wanted))
        except NetlinkRefusal as error:
            raise OSError(error.number, os.strerror(error.number)) from None
        except ValueError as error:
            raise OSError(errno.EPROTO, f"taskstats: {error}") from None

    def _ask(self, family: int, command: int, payload: bytes) -> bytes:
        body = struct.pack("=BBH", command, 1, 0) + payload
        self._socket.send(struct.pack("=IHHII", 16 + len(body), family, 1, 1, 0) + body)
        return self._socket.recv(1 << 16)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def read_cpu_seconds(pid: int) -> float | None:
    """The CPU time of a process's present threads; None when the process is gone.

    Source: proc(5), /proc/PID/task/TID/schedstat, in nanoseconds; the clock ticks of /proc/PID/stat
    (10 ms) are the fallback. Ended threads are not included; nginx keeps its pool threads.
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
    """The living children of a process; None when they cannot be read.

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
    """ListenOverflows and ListenDrops in a process's network namespace (None: this process's).

    Source: /proc/net/netstat, TcpExt; they count drop events, retries of one client included.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid or 'self'}/net/netstat").read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            if names.startswith("TcpExt:"):
                table = dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=False))
                return table.get("ListenOverflows"), table.get("ListenDrops")
    return None, None
