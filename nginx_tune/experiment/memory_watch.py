"""How much memory a family of processes has, sampled while something happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


_EVERY_SECONDS = 0.1
_KIB = 1024


class MemoryWatch:
    """Samples from its beginning to its end; use as a context manager."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_bytes: int | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            now = memory_of(self._processes())
            if now is not None and now > (self.peak_bytes or 0):
                self.peak_bytes = now
            if self._ended.wait(_EVERY_SECONDS):
                return


def memory_of(pids: Iterable[int]) -> int | None:
    """Memory of processes, what they share counted once among them; null when none can be read.

    Shape: bytes; proportional set size. Source: proc_pid_smaps_rollup(5).
    """
    found = [size for pid in pids if (size := _proportional_bytes(pid)) is not None]
    return sum(found) if found else None


def _proportional_bytes(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * _KIB
    return None
