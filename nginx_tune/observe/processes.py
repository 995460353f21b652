"""What processes used, from /proc: CPU of every thread, state of the main thread."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from nginx_tune.documents.measured_server import WorkerUse


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
    return total / 1e9


def read_main_thread_cpu_seconds(pid: int) -> float | None:
    """CPU time of the main thread: for a worker that is the event loop."""
    nanoseconds = _schedstat(Path(f"/proc/{pid}/task/{pid}/schedstat"))
    return None if nanoseconds is None else nanoseconds / 1e9


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


def read_state(pid: int) -> str | None:
    """State letter of the main thread: ``D`` is uninterruptible sleep, most often the disk."""
    try:
        stat = Path(f"/proc/{pid}/task/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]


class ProcessWatch:
    """Watches workers over a stretch of time.

    States are sampled, so stalls much shorter than the interval are seen only in proportion.
    """

    def __init__(self, master: int, workers: list[int], *, interval_seconds: float = 0.02) -> None:
        self._pids = [master, *workers]
        self._workers = workers
        self._interval_seconds = interval_seconds
        self._before: dict[int, tuple[float | None, float | None]] = {}
        self._samples = 0
        self._in_disk_sleep = dict.fromkeys(workers, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> None:
        """Take the first reading and begin to sample."""
        self._before = {pid: self._read(pid) for pid in self._pids}
        self._thread.start()

    def finish(self) -> tuple[list[WorkerUse], float | None]:
        """Use of each worker, and CPU seconds of all processes together."""
        self._ended.set()
        self._thread.join()
        uses, total = [], 0.0
        for pid in self._pids:
            after = self._read(pid)
            cpu = _difference(after[0], self._before[pid][0])
            total += cpu or 0.0
            if pid in self._workers:
                uses.append(
                    WorkerUse(
                        pid=pid,
                        cpu_seconds=cpu,
                        main_thread_cpu_seconds=_difference(after[1], self._before[pid][1]),
                        state_d_ratio=(
                            self._in_disk_sleep[pid] / self._samples if self._samples else None
                        ),
                    )
                )
        known = all(use.cpu_seconds is not None for use in uses)
        return uses, total if known else None

    @staticmethod
    def _read(pid: int) -> tuple[float | None, float | None]:
        return read_cpu_seconds(pid), read_main_thread_cpu_seconds(pid)

    def _sample(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            self._samples += 1
            for pid in self._workers:
                if read_state(pid) == "D":
                    self._in_disk_sleep[pid] += 1


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


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


def read_disk_bytes(device_numbers: list[str]) -> int | None:
    """Bytes read from block devices since they came up (``MAJOR:MINOR``; stat, field 3)."""
    total = 0
    for number in device_numbers:
        try:
            total += int(Path(f"/sys/dev/block/{number}/stat").read_text().split()[2]) * 512
        except (OSError, ValueError, IndexError):
            return None
    return total if device_numbers else None


def sleep_until(deadline_monotonic: float) -> None:
    """Sleep to a point of the monotonic clock."""
    time.sleep(max(0.0, deadline_monotonic - time.monotonic()))
