"""A host made of files in memory, for tests: what a kernel prints, laid out as it lays it out."""

import posixpath
from collections.abc import Sequence

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.host.door import MOST_BYTES, Device, HostReadError, ProgramResult, Room


class Machine:
    """Answers as a live host would, from dictionaries."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.symlinks: dict[str, str] = {}
        self.directories: set[str] = set()
        self.denied: set[str] = set()
        self.programs: dict[str, ProgramResult] = {}
        """By absolute path; what it says whatever the arguments."""
        self.texts: dict[str, str] = {}
        """What a program's file says of its version, by path."""
        self.distrusted: dict[str, str] = {}
        """Why a program is not to be run, by path."""
        self.comms: dict[int, str] = {}
        self.lab_processes: set[int] = set()
        self.network_links: list[Link] = []
        self.sockets: dict[int | None, Listening] = {}
        """By the pid whose network namespace is asked for."""
        self.activity: dict[str, float] = {}
        self.rooms: dict[str, Room] = {}
        """Size and free space by the path of a directory or one above it."""
        self.datasets: dict[str, Dataset] = {}

    def write(self, path: str, text: str) -> None:
        self.files[path] = text

    def link(self, path: str, target: str) -> None:
        self.symlinks[path] = target

    # The door.

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        return self.read_text(path).encode()

    def read_text(self, path: str) -> str:
        real = self._resolve(f"read {path}", path)
        if real in self.denied:
            raise HostReadError(f"read {path}", "Permission denied")
        if real not in self.files:
            reason = "Is a directory" if self._is_dir(real) else "No such file or directory"
            raise HostReadError(f"read {path}", reason)
        return self.files[real]

    def list_dir(self, path: str) -> list[str]:
        real = self._resolve(f"list {path}", path)
        if not self._is_dir(real):
            raise HostReadError(f"list {path}", "No such file or directory")
        prefix = real.rstrip("/") + "/"
        return sorted(
            {e[len(prefix) :].split("/")[0] for e in self._entries() if e.startswith(prefix)}
        )

    def read_link(self, path: str) -> str:
        parent = self._resolve(f"link {path}", posixpath.dirname(path))
        where = posixpath.join(parent, posixpath.basename(path))
        if where in self.denied:
            raise HostReadError(f"link {path}", "Permission denied")
        if where not in self.symlinks:
            raise HostReadError(f"link {path}", "No such file or directory")
        return self.symlinks[where]

    def real_path(self, path: str) -> str:
        real = self._resolve(f"real {path}", path)
        if real not in self.files and not self._is_dir(real):
            raise HostReadError(f"real {path}", "No such file or directory")
        return real

    def device_of(self, path: str) -> Device:
        real = self._resolve(f"device {path}", path)
        if real not in self.files and not self._is_dir(real):
            raise HostReadError(f"device {path}", "No such file or directory")
        return Device(0, 1)

    def filesystem_magic(self, path: str) -> int:
        raise HostReadError(f"magic {path}", "not in this machine")

    def room(self, path: str) -> Room:
        candidate = path
        while candidate not in self.rooms and candidate not in ("/", ""):
            candidate = candidate.rpartition("/")[0] or "/"
        if candidate not in self.rooms:
            raise HostReadError(f"room {path}", "not in this machine")
        return self.rooms[candidate]

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        path = self.find_program(argv[0])
        real = self.symlinks.get(path, path)
        if real not in self.programs:
            raise HostReadError(f"run {' '.join(argv)}", "No such file or directory")
        return self.programs[real]

    def version_texts(self, path: str) -> str:
        if path not in self.texts:
            raise HostReadError(f"texts {path}", "No such file or directory")
        return self.texts[path]

    def find_program(self, name: str) -> str:
        if "/" in name:
            if name not in self.programs and name not in self.symlinks:
                raise HostReadError(f"program {name}", "No such file")
            return name
        for path in self.programs:
            if posixpath.basename(path) == name:
                return path
        raise HostReadError(f"program {name}", "not found on PATH or in an sbin directory")

    def distrust(self, path: str) -> str:
        return self.distrusted.get(path, "")

    def caller(self) -> int:
        return 0

    def is_in_lab(self, pid: int) -> bool:
        return pid in self.lab_processes

    def processes(self, *names: str) -> list[int]:
        return sorted(pid for pid, comm in self.comms.items() if comm in names)

    def links(self) -> list[Link]:
        return list(self.network_links)

    def listening(self, pid: int | None) -> Listening:
        if pid not in self.sockets:
            raise HostReadError("listening", "Protocol not supported")
        return self.sockets[pid]

    def disk_activity(self, seconds: float) -> dict[str, float]:
        if not self.activity:
            raise HostReadError("activity", "No such file or directory")
        return self.activity

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        if path not in self.datasets:
            raise HostReadError(f"dataset {path}", "No such file or directory")
        return self.datasets[path]

    # How paths are found.

    def _entries(self) -> set[str]:
        return {*self.files, *self.symlinks, *self.directories}

    def _is_dir(self, path: str) -> bool:
        prefix = path.rstrip("/") + "/"
        return path in self.directories or any(e.startswith(prefix) for e in self._entries())

    def _resolve(self, question: str, path: str) -> str:
        done = "/"
        parts = path.strip("/").split("/") if path != "/" else []
        for _ in range(200):
            if not parts:
                return done
            part = parts.pop(0)
            step = posixpath.normpath(posixpath.join(done, part))
            if step in self.symlinks:
                target = self.symlinks[step]
                if target.startswith("/"):
                    done = "/"
                parts = [*filter(None, target.split("/")), *parts]
            else:
                done = step
        raise HostReadError(question, "Too many levels of symbolic links")
