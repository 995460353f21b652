"""This machine."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.host import programs
from nginx_tune.host.caller import caller_id
from nginx_tune.host.door import MOST_BYTES, Device, HostReadError, ProgramResult, Room
from nginx_tune.host.lab_mark import is_in_lab
from nginx_tune.host.parse_storage import parse_busy_milliseconds
from nginx_tune.host.program import run_bounded
from nginx_tune.host.version_texts import version_texts


class LiveHost:
    """The machine this process runs on; ``progress`` hears how far a long scan has come."""

    def __init__(self, progress: Callable[[str], None] = lambda _: None) -> None:
        self._progress = progress

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """Contents of a file; HostReadError for a FIFO and for more bytes than the limit."""
        question = f"read {path}"
        try:
            # Without waiting: a FIFO that nobody writes is refused instead of hanging.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    raise HostReadError(question, "a FIFO, not a file")
                data = _read_up_to(file.fileno(), limit_bytes)
        except (OSError, ValueError) as error:
            _refuse(question, error)
        if len(data) > limit_bytes:
            raise HostReadError(question, f"larger than {limit_bytes / (1 << 20):g} MiB")
        return data

    def read_text(self, path: str) -> str:
        """Contents of a file; bytes that are no UTF-8 become surrogate escapes."""
        return self.read_bytes(path).decode(errors="surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        try:
            return sorted(os.listdir(path))  # noqa: PTH208  # names, not paths
        except (OSError, ValueError) as error:
            _refuse(f"list {path}", error)

    def read_link(self, path: str) -> str:
        """Target of a symbolic link, as stored."""
        try:
            return os.readlink(path)  # noqa: PTH115  # as stored
        except (OSError, ValueError) as error:
            _refuse(f"link {path}", error)

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved; the file must exist."""
        try:
            return os.path.realpath(path, strict=True)
        except (OSError, ValueError) as error:
            _refuse(f"real {path}", error)

    def device_of(self, path: str) -> Device:
        """``st_dev`` of a path."""
        try:
            number = os.stat(path).st_dev  # noqa: PTH116
        except (OSError, ValueError) as error:
            _refuse(f"device {path}", error)
        return Device(os.major(number), os.minor(number))

    def filesystem_magic(self, path: str) -> int:
        """``f_type`` of statfs(2)."""
        from nginx_tune.host.residency import statfs_magic  # noqa: PLC0415  # ctypes is seldom needed

        try:
            return statfs_magic(path)
        except (OSError, ValueError) as error:
            _refuse(f"magic {path}", error)

    def room(self, path: str) -> Room:
        """Size and free space of the file system of a path."""
        try:
            told = os.statvfs(path)
        except (OSError, ValueError) as error:
            _refuse(f"room {path}", error)
        return Room(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        """Run a program without a shell; a path, or a name that ``find_program`` finds."""
        return run_bounded([self.find_program(argv[0]), *argv[1:]], timeout_seconds)

    def version_texts(self, path: str) -> str:
        """The text that an nginx program would print for ``-V``, read out of its file."""
        return version_texts(self.read_bytes(path))

    def find_program(self, name: str) -> str:
        """Absolute path of a program that may be run; as root only in system directories."""
        try:
            return programs.find_program(name)
        except (OSError, ValueError) as error:
            _refuse(f"program {name}", error)

    def distrust(self, path: str) -> str:
        """The reason to distrust a program (or ``/proc/PID/exe``) of others; empty for none."""
        return programs.why_distrusted(path)

    def caller(self) -> int:
        """The id of the user who called, behind sudo too."""
        return caller_id()

    def is_in_lab(self, pid: int) -> bool:
        """Tell if a process is of a laboratory of nginx-tune, and so none of the host's own."""
        return is_in_lab(self, pid)

    def processes(self, *names: str) -> list[int]:
        """Ids of the processes whose ``comm`` is one of the names, ascending."""
        wanted = {name.encode() for name in names}
        found = []
        for entry in self.list_dir("/proc"):
            if entry.isdecimal():
                try:
                    comm = self.read_bytes(f"/proc/{entry}/comm")
                except HostReadError:
                    continue  # it ended meanwhile
                if comm.rstrip(b"\n") in wanted:
                    found.append(int(entry))
        return sorted(found)

    def links(self) -> list[Link]:
        """Network links (netlink); speeds as the driver tells them."""
        from nginx_tune.host.live_network import read_links  # noqa: PLC0415  # pyroute2 is heavy

        return read_links()

    def listening(self, pid: int | None) -> Listening:
        """Listening TCP sockets (sock_diag) of a process's network namespace, else of ours."""
        from nginx_tune.host.live_network import read_listening  # noqa: PLC0415  # pyroute2

        try:
            return read_listening(pid)
        except (OSError, ValueError) as error:
            _refuse("listening", error)

    def disk_activity(self, seconds: float) -> dict[str, float]:
        """Share of the time that each block device was busy, watched now for so long."""
        before, start = self._busy_milliseconds(), time.monotonic()
        time.sleep(seconds)
        after, span = self._busy_milliseconds(), time.monotonic() - start
        return {
            name: min(1.0, max(0, busy - before[name]) / (1000 * span))
            for name, busy in after.items()
            if name in before
        }

    def _busy_milliseconds(self) -> dict[str, int]:
        return parse_busy_milliseconds(self.read_text("/proc/diskstats"))

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        """Walk a tree of files: counts, size distribution and page-cache residency."""
        from nginx_tune.host.dataset import scan_dataset  # noqa: PLC0415  # only for datasets

        try:
            return scan_dataset(
                path,
                budget_seconds=budget_seconds,
                sample_ratio=sample_ratio,
                progress=self._progress,
            )
        except (OSError, ValueError) as error:
            _refuse(f"dataset {path}", error)


def _read_up_to(descriptor: int, limit_bytes: int) -> bytes:
    """All bytes, or more than the limit where there are more."""
    parts = []
    size = 0
    while size <= limit_bytes and (part := os.read(descriptor, 1 << 16)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _refuse(question: str, error: OSError | ValueError) -> NoReturn:
    reason = getattr(error, "strerror", None) or str(error)
    raise HostReadError(question, reason) from None
