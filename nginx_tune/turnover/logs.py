"""The error logs of an nginx, read on from a moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from nginx_tune.turnover.model_process import Process

_MOST_LOG_BYTES = 4 << 20


Opening = Callable[[str], int]
"""A descriptor of a log, by its name; OSError where none can be had."""


def _open_plainly(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _own_number(pid: int) -> int:
    """Source: proc_pid_status(5), NSpid: the innermost namespace's number is the last one."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return pid
    own = next((line.split()[-1] for line in lines if line.startswith("NSpid:")), "")
    return int(own) if own.isdigit() else pid


class _Log:
    """One log, followed by its name and by the file that it was."""

    def __init__(self, path: str, opening: Opening) -> None:
        self.path = path
        self._opening = opening
        self._file = self._open()
        self._at = 0 if self._file is None else os.lseek(self._file, 0, os.SEEK_END)
        self._inode = None if self._file is None else os.fstat(self._file).st_ino

    def _open(self) -> int | None:
        try:
            descriptor = self._opening(self.path)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor

    def new_bytes(self) -> bytes:
        """What was written since the last time, also to a file that has taken its place."""
        found = b"" if self._file is None else self._rest()
        now = self._open()
        if now is None or os.fstat(now).st_ino == self._inode:
            if now is not None:
                os.close(now)
            return found
        self.close()
        self._file, self._inode, self._at = now, os.fstat(now).st_ino, 0
        return found + self._rest()

    def _rest(self) -> bytes:
        if self._file is None:
            return b""
        data = os.pread(self._file, _MOST_LOG_BYTES, self._at)
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole

    def close(self) -> None:
        """No more."""
        if self._file is not None:
            os.close(self._file)


class Logs:
    """The error logs from now on: those of the old configuration and of the new one.

    From the zones on an emergency of a reload stands in the new log, the end of the old one says
    only that it is tried. Source: ngx_init_cycle (the log is changed before the sockets are).
    """

    def __init__(self, paths: Sequence[str], *, opening: Opening = _open_plainly) -> None:
        self._logs = [_Log(path, opening) for path in dict.fromkeys(paths)]
        self._lines: list[bytes] = []
        self._numbers: dict[Process, int] = {}

    def lines(self) -> list[bytes]:
        """Every line since the beginning."""
        for log in self._logs:
            self._lines += log.new_bytes().splitlines()
        return self._lines

    def number_of(self, process: Process) -> int:
        """What a process calls itself in the logs: in a namespace of its own it has another number.

        To be asked while it lives.
        """
        if process not in self._numbers:
            self._numbers[process] = _own_number(process.pid)
        return self._numbers[process]

    def close(self) -> None:
        """No more."""
        for log in self._logs:
            log.close()
