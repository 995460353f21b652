"""The error logs of an nginx, read from a given moment on."""

import contextlib
import gzip
import mmap
import os
import re
import stat
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from nginx_tune.nginx.reload.parse_reload import ClientText, fault_kind, is_fault, known_faults
from nginx_tune.nginx.reload.workers import Process

_MOST_LOG_BYTES = 4 << 20
_MOST_BEFORE_BYTES = 32 << 20
"""Maximum number of bytes of a log and its rotated logs, unpacked, to search for known faults."""
_ROTATED = r"[.-][0-9]+(?:\.gz)?"
"""The end of the name of a rotated log. Source: logrotate(8), dateext and compress."""
_MOST_ROTATED = 15
_MOST_DOUBTFUL = 100


Opening = Callable[[str], int]
"""A function that opens a log by its name and returns the descriptor. Errors: OSError."""


def _open_plainly(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _own_number(pid: int) -> int:
    """The process id in the process's own PID namespace.

    Source: proc_pid_status(5), NSpid: the innermost namespace comes last.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return pid
    own = next((line.split()[-1] for line in lines if line.startswith("NSpid:")), "")
    return int(own) if own.isdigit() else pid


class _Log:
    """A log file; new lines are also read from a new file of its name, earlier ones from itself."""

    def __init__(self, path: str, opening: Opening, *, only_own: bool, begin: int | None) -> None:
        self.path = path
        self._begin = begin
        self._opening = opening
        self._only_own = only_own
        self.doubtful: deque[bytes] = deque(maxlen=_MOST_DOUBTFUL)
        """The last emergencies and alerts that were dropped: clients may have written them."""
        self._file = self._open()
        self._at = 0 if self._file is None else os.lseek(self._file, 0, os.SEEK_END)
        # A message is written in one call, but the file grows page by page during that call. So a
        # file that ends at a page boundary may end within a message. Source:
        # generic_perform_write() in mm/filemap.c.
        is_amid = self._at > 0 and self._at % mmap.PAGESIZE == 0
        self._clients = ClientText(self._at if is_amid else None)
        self._inode = None if self._file is None else os.fstat(self._file).st_ino
        self._first = None if self._file is None else os.dup(self._file)
        self._end = self._at

    def _open(self) -> int | None:
        try:
            descriptor = self._opening(self.path)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor

    def lines_before(self, since_unix: float) -> list[bytes]:
        """Earlier emergencies and alerts, also in rotated logs back to ``since_unix``.

        The search is limited in bytes, and by ``begin`` if given.
        """
        begin = max(self._begin or 0, self._end - _MOST_BEFORE_BYTES)
        data = b"" if self._first is None else os.pread(self._first, self._end - begin, begin)
        found = self._faults_of(data, begin)
        if self._begin is None:
            for older in _rotated(self.path, since_unix, _MOST_BEFORE_BYTES - len(data)):
                found += self._faults_of(older, 0)
        return found

    def _faults_of(self, data: bytes, at: int) -> list[bytes]:
        """The emergencies and alerts in a part of a log that begins at offset ``at``."""
        clients = ClientText(at or None)
        found = []
        for line in data.split(b"\n")[:-1]:
            is_ours = clients.is_free(at, line) or not self._only_own
            if is_ours and (b" [alert] " in line or b" [emerg] " in line):
                found.append(line)
            at += len(line) + 1
        return found

    def new_lines(self) -> list[bytes]:
        """The lines since the last call, including those of a new file under the log's name."""
        found = self._rest()
        now = self._open()
        if now is None or os.fstat(now).st_ino == self._inode:
            if now is not None:
                os.close(now)
            return found
        if self._file is not None:
            os.close(self._file)
        self._file, self._inode, self._at = now, os.fstat(now).st_ino, 0
        self._clients = ClientText()
        return found + self._rest()

    def _rest(self) -> list[bytes]:
        if self._file is None:
            return []
        data = os.pread(self._file, _MOST_LOG_BYTES, self._at)
        found = []
        for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
            if self._clients.is_free(self._at, line) or not self._only_own:
                found.append(line)
            elif is_fault(line):
                self.doubtful.append(line)
            self._at += len(line) + 1
        return found

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._file, self._first):
            if descriptor is not None:
                os.close(descriptor)


def _rotated(path: str, since_unix: float, most_bytes: int) -> Iterator[bytes]:
    """The rotated logs that were written to after ``since_unix``, newest first."""
    directory, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + _ROTATED)
    with contextlib.suppress(OSError):
        older = [
            (entry.stat().st_mtime, entry.path)
            for entry in os.scandir(directory or ".")
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
        for changed, older_path in sorted(older, reverse=True)[:_MOST_ROTATED]:
            if changed < since_unix or most_bytes <= 0:
                return
            with contextlib.suppress(OSError, EOFError, zlib.error):
                with Path(older_path).open("rb") as file:
                    is_packed = older_path.endswith(".gz")
                    data = (gzip.GzipFile(fileobj=file) if is_packed else file).read(most_bytes)
                most_bytes -= len(data)
                yield data


class Logs:
    """The error logs of the old and the new configuration, from now on.

    If a reload fails after zones were created, the emergency is in the new log; the old log ends
    with the attempt.

    ``only_own`` drops lines that a client may have written (``ClientText``). ``begins`` maps a log
    to the offset where the text about this nginx begins.

    Source: ngx_init_cycle (the log changes before the sockets do).
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        opening: Opening = _open_plainly,
        only_own: bool = False,
        begins: Mapping[str, int] | None = None,
    ) -> None:
        self._logs = [
            _Log(path, opening, only_own=only_own, begin=(begins or {}).get(path))
            for path in dict.fromkeys(paths)
        ]
        self._before: list[bytes] | None = None
        self._lines: list[bytes] = []
        self._numbers: dict[Process, int] = {}
        self.seen_before: dict[str, None] = {}
        """Emergencies and alerts also logged before the change, which thus did not cause them."""

    def lines(self) -> list[bytes]:
        """All lines so far."""
        for log in self._logs:
            self._lines += log.new_lines()
        return self._lines

    def new_faults(self, faults: Sequence[str], old: Collection[Process]) -> list[str]:
        """The faults that the ``old`` workers did not log before the change."""
        if not faults or not old:
            return list(faults)
        if self._before is None:
            age = time.clock_gettime(time.CLOCK_BOOTTIME) - min(
                process.start_ticks for process in old
            ) / os.sysconf("SC_CLK_TCK")
            since = time.time() - age
            self._before = [line for log in self._logs for line in log.lines_before(since)]
        known = known_faults(self._before, serving={self.number_of(process) for process in old})
        again = [text for text in faults if fault_kind(text) in known]
        self.seen_before |= dict.fromkeys(again)
        return [text for text in faults if text not in again]

    def doubtful_lines(self) -> list[bytes]:
        """The dropped emergencies and alerts, which may explain a fault but prove none."""
        return [line for log in self._logs for line in log.doubtful]

    def number_of(self, process: Process) -> int:
        """The process id in the logs, which differs if the process has its own PID namespace.

        Call it while the process lives.
        """
        if process not in self._numbers:
            self._numbers[process] = _own_number(process.pid)
        return self._numbers[process]

    def close(self) -> None:
        """Close all logs."""
        for log in self._logs:
            log.close()
