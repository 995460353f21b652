"""The running nginx: its processes, its logs, and telling it to read its files again."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nginx_tune.apply import calls
from nginx_tune.apply.journal import lives, process_of
from nginx_tune.apply.model_journal import Process
from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.parse_listeners import parse_socket_link
from nginx_tune.nginx.processes import Master, find_masters

_COMMAND_SECONDS = 60.0
_MOST_LOG_BYTES = 4 << 20


class ReloadError(NginxTuneError):
    """The new configuration does not serve, or not as it is written."""


class Generations(NamedTuple):
    """The workers of a master."""

    serving: frozenset[Process]
    leaving: frozenset[Process]


def master_at(host: Host, process: Process) -> Master | None:
    """What the master process is now; null when it is gone."""
    if not lives(process):
        return None
    return next((one for one in find_masters(host) if one.pid == process.pid), None)


def generations(host: Host, process: Process) -> Generations:
    """The workers of a master now.

    Errors: ReloadError when the master is gone.
    """
    master = master_at(host, process)
    if master is None:
        raise ReloadError(f"the nginx master process {process.pid} has ended")
    return Generations(_processes(master.workers), _processes(master.leaving))


def _processes(pids: Sequence[int]) -> frozenset[Process]:
    return frozenset(one for pid in pids if (one := process_of(pid)) is not None)


def tell(host: Host, process: Process, command: Sequence[str]) -> None:
    """Have nginx read its files: by SIGHUP to this very master, or by a command.

    Errors: ReloadError.
    """
    if command:
        try:
            said = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
        except HostReadError as error:
            raise ReloadError(error.message) from None
        if said.status != 0:
            text = (said.stderr.strip() or "no message").splitlines()[-1]
            raise ReloadError(f"{shlex.join(command)}: status {said.status}: {text}")
        return
    try:
        held = os.pidfd_open(process.pid)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    try:
        # The descriptor is of one process; that it is the right one is asked after it is held.
        if not lives(process):
            raise ReloadError(f"the nginx master process {process.pid} has ended")
        calls.send_signal(held, signal.SIGHUP)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    finally:
        os.close(held)


def held_sockets(pid: int) -> frozenset[int]:
    """Inodes of the sockets that a process holds; none when it is gone."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  # names, not paths
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                inode = parse_socket_link(target)
                if inode is not None:
                    found.add(inode)
    return frozenset(found)


class _Log:
    """One log, followed by its name and by the file that it was."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = self._open()
        self._at = 0 if self._file is None else os.lseek(self._file, 0, os.SEEK_END)
        self._inode = None if self._file is None else os.fstat(self._file).st_ino

    def _open(self) -> int | None:
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self.path, flags)
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

    def __init__(self, paths: Sequence[str]) -> None:
        self._logs = [_Log(path) for path in dict.fromkeys(paths)]
        self._lines: list[bytes] = []

    def lines(self) -> list[bytes]:
        """Every line since the beginning."""
        for log in self._logs:
            self._lines += log.new_bytes().splitlines()
        return self._lines

    def close(self) -> None:
        """No more."""
        for log in self._logs:
            log.close()


def run_test(host: Host, command: Sequence[str]) -> str:
    """What ``nginx -T`` prints of the files as they are; the target's own judgement.

    Errors: ReloadError with its message when it rejects them, UndecidedError when it cannot run.
    """
    try:
        said = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
    except HostReadError as error:
        raise UndecidedError(f"{command[0]}: cannot run nginx: {error.reason}") from None
    if said.status != 0:
        lines = [line for line in said.stderr.splitlines() if line.strip()] or ["no message"]
        worst = next((line for line in lines if "[emerg]" in line), lines[0])
        raise ReloadError(worst.removeprefix("nginx: ").strip())
    return said.stdout


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, the signals that end a command wait: what is being put back is put back."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
