"""The machine of this process, as a ``Host``."""

import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.host import programs
from nginx_tune.host.door import MOST_BYTES, Device, HostReadError, ProgramResult, Room
from nginx_tune.host.lab_mark import is_in_lab
from nginx_tune.host.parse_elf import version_texts
from nginx_tune.host.parse_storage import parse_busy_milliseconds
from nginx_tune.host.program import run_bounded
from nginx_tune.host.trust import caller_id


class LiveHost:
    """Reads this machine; ``progress`` is called with the state of a long scan."""

    def __init__(self, progress: Callable[[str], None] = lambda _: None) -> None:
        self._progress = progress

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """The contents of a file; HostReadError for a FIFO, and above the limit."""
        question = f"read {path}"
        try:
            # Non-blocking, so that a FIFO without a writer is refused instead of hanging.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    raise HostReadError(question, "a FIFO, not a file", is_fifo=True)
                data = _read_up_to(file.fileno(), limit_bytes)
        except (OSError, ValueError) as error:
            _refuse(question, error)
        if len(data) > limit_bytes:
            raise HostReadError(question, f"larger than {limit_bytes / (1 << 20):g} MiB")
        return data

    def read_text(self, path: str) -> str:
        return self.read_bytes(path).decode(errors="surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208  # names, not paths
        except (OSError, ValueError) as error:
            _refuse(f"list {path}", error)

    def read_link(self, path: str) -> str:
        try:
            return os.readlink(path)  # noqa: PTH115  # as stored
        except (OSError, ValueError) as error:
            _refuse(f"link {path}", error)

    def real_path(self, path: str) -> str:
        try:
            return os.path.realpath(path, strict=True)
        except (OSError, ValueError) as error:
            _refuse(f"real {path}", error)

    def device_of(self, path: str) -> Device:
        try:
            number = os.stat(path).st_dev  # noqa: PTH116
        except (OSError, ValueError) as error:
            _refuse(f"device {path}", error)
        return Device(os.major(number), os.minor(number))

    def filesystem_magic(self, path: str) -> int:
        from nginx_tune.host.residency import statfs_magic  # noqa: PLC0415  # ctypes is seldom needed

        try:
            return statfs_magic(path)
        except (OSError, ValueError) as error:
            _refuse(f"magic {path}", error)

    def room(self, path: str) -> Room:
        try:
            found = os.statvfs(path)
        except (OSError, ValueError) as error:
            _refuse(f"room {path}", error)
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        return run_bounded([self.find_program(argv[0]), *argv[1:]], timeout_seconds)

    def version_texts(self, path: str) -> str:
        return version_texts(self.read_bytes(path))

    def find_program(self, name: str) -> str:
        try:
            return programs.find_program(name)
        except (OSError, ValueError) as error:
            _refuse(f"program {name}", error)

    def distrust(self, path: str) -> str:
        return programs.why_distrusted(path)

    def caller(self) -> int:
        return caller_id()

    def is_in_lab(self, pid: int) -> bool:
        return is_in_lab(self, pid)

    def processes(self, *names: str) -> list[int]:
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
        from nginx_tune.host.live_network import read_links  # noqa: PLC0415  # pyroute2 is heavy

        return read_links()

    def listening(self, pid: int | None) -> Listening:
        from nginx_tune.host.live_network import read_listening  # noqa: PLC0415  # pyroute2

        try:
            return read_listening(pid)
        except (OSError, ValueError) as error:
            _refuse("listening", error)

    def disk_activity(self, seconds: float) -> dict[str, float]:
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
    """The bytes of a file; reading stops once they exceed the limit."""
    parts = []
    size = 0
    while size <= limit_bytes and (part := os.read(descriptor, 1 << 16)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _refuse(question: str, error: OSError | ValueError) -> NoReturn:
    reason = getattr(error, "strerror", None) or str(error)
    raise HostReadError(question, reason, refused=getattr(error, "why", "")) from None
