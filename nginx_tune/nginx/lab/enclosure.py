"""What every nginx of a lab is started in: one sandbox, planned anew when something is added.

All that nginx is to find in other places than the host has it, or to write, is only noted here, and
stands in the root of each sandbox alone: no path of the lab's own leads there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from nginx_tune.errors import UndecidedError
from nginx_tune.host.parse_mountinfo import is_inside
from nginx_tune.nginx.lab.mounts import OURS, SEEN, STATE, make_state, seal_all, set_apart
from nginx_tune.nginx.lab.view import program_paths, system_paths
from nginx_tune.sandbox.covers import Covers
from nginx_tune.sandbox.launch import Prepared, prepare
from nginx_tune.sandbox.places import read_mounts, settle
from nginx_tune.sandbox.spec import Confinement, ResourceLimits, Wall


class HostNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration wants of its host."""

    shown: list[str] = []
    """Files and directories that it reads."""
    written: list[str] = []
    """Directories that nginx makes or opens files in when it starts, sorted."""
    files: list[str] = []
    """Files that nginx opens for writing, sorted."""
    uses_unix_sockets: bool = False
    uses_file_aio: bool = False
    """Whether some build sets up contexts of file AIO."""
    transparent: bool = False
    """Whether it sends from other addresses than the host's."""
    threads: int = 0
    """In the pools of one worker."""
    workers: int = 0
    """That are asked for by number; one for each CPU is what there may be in any case."""


class Enclosure:
    """The sandbox of one lab."""

    def __init__(self) -> None:
        self._view = HostNeeds()
        self._shown: list[str] = []
        self._hidden: list[str] = []
        self._covers: Covers | None = None
        self._state = ""
        self._made = 0
        self._names: dict[str, str] = {}
        """Real paths of what takes writes, by the names that nginx may have for them."""
        self._written: dict[str, str] = {}
        """Names of covers by the real paths that they take writes at."""
        self._copied: set[str] = set()
        self._disks: dict[str, str] = {}
        self._laid: dict[str, str] = {}
        self._weaker: list[Wall] = []
        self.join_files: list[Path] = []
        """The cgroups that what is only tried runs in."""
        self._planned: dict[str, Prepared] = {}

    @property
    def view(self) -> HostNeeds:
        """What the configuration wants of its host."""
        return self._view

    @property
    def covers(self) -> Covers:
        """What nginx writes to.

        Errors: UndecidedError before ``begin``.
        """
        if self._covers is None:
            raise UndecidedError("the lab is not open")
        return self._covers

    def begin(self, directory: Path) -> None:
        """Take the right to write from every mount of the host, and have covers for nginx.

        Of the host's mounts the lab's ``directory`` alone takes writes from here on.
        """
        set_apart(directory)
        seal_all(keep=directory)
        self._state = make_state(directory)
        self._disks[SEEN] = f"{self._state}/{OURS.name}"
        place = directory / "covers"
        place.mkdir(0o700)
        self._covers = Covers(place)

    def look(self, view: HostNeeds) -> None:
        """Have a configuration's wants."""
        self._view = view
        self._planned.clear()

    def show(self, *paths: str) -> None:
        """Show these of the host too."""
        self._shown += paths
        self._planned.clear()

    def unshow(self, path: str) -> None:
        """Take back that a path is shown: it is to be written."""
        self._shown = [one for one in self._shown if one != path]
        self._planned.clear()

    def hide(self, *directories: str) -> None:
        """Keep these out of sight, even where what is around them is shown."""
        self._hidden += directories
        self._planned.clear()

    def weaken(self, walls: Iterable[Wall]) -> None:
        """Do without these walls where they cannot be had."""
        self._weaker = list(walls)
        self._planned.clear()

    def lay(self, path: str, ours: str | Path) -> None:
        """Show a file or a socket of ours at a path, where the host may have its own."""
        # By its own path: a mount of another namespace, as by a descriptor, cannot be bound.
        own = is_inside(str(ours), str(STATE))
        self._laid[path] = f"{self._state}{str(ours)[len(str(STATE)) :]}" if own else str(ours)
        self._planned.clear()

    def lay_disk(self, path: str, name: str, *, writable: bool) -> None:
        """Show a disk of ours, by its name among the covers, at a path."""
        if writable:
            self._written[settle(path).path] = name
        else:
            self._disks[path] = self.covers.source(name)
        self._planned.clear()

    def cover(self, directory: str, inner: Iterable[str] = ()) -> None:
        """Have an empty directory that takes writes at a path; the host need not have one.

        Of the ``inner`` ones those that the host has in it are there, empty: nginx makes no
        directory for a log.
        """
        real = settle(directory).path
        self._names[directory] = real
        name = self._next_name()
        self.covers.add_memory(name)
        self._take(real, name)
        for path in inner:
            if os.path.isdir(path) and is_inside(os.path.realpath(path), real):  # noqa: PTH112
                self.covers.make_directory(name, os.path.realpath(path)[len(real) :])

    def cover_all(self, directories: Collection[str], inner: Collection[str]) -> None:
        """``cover`` for several, of which two may be one by links."""
        names = {settle(directory).path: directory for directory in directories}
        for real, directory in names.items():
            self.cover(directory, inner)
            self._names |= {one: real for one in directories if settle(one).path == real}

    def make_directory(self, directory: str) -> None:
        """Have an empty directory that the host lacks."""
        real = settle(directory).path
        holder = self._holder(real)
        if holder is None:
            self.cover(real)
        else:
            self.covers.make_directory(*holder)

    def copy(self, directory: str, written: Iterable[str] = ()) -> bool:
        """Have a directory take writes, with what the host has in it in sight.

        Of an ordinary user those files in it that are ``written`` are empty ones of his own: an
        overlay copies up no file whose owner or group has no number in his namespace (EOVERFLOW,
        ovl_copy_up() in fs/overlayfs/copy_up.c), and 65534 may be his own number or no number.
        False for one that has been made such a one before, and for the root.
        """
        real = settle(directory)
        self._names[directory] = real.path
        if real.path in self._copied or real.path == "/":
            return False
        self._copied.add(real.path)
        if not real.is_directory:
            self.cover(real.path)
            return True
        name = self._next_name()
        own = [] if os.geteuid() == 0 else _files_in(real.path, written)
        self.covers.add_copy(name, real.path, own)
        self._take(real.path, name)
        return True

    def copy_whole(self, directory: str, written: Iterable[str] = ()) -> None:
        """``copy`` for a directory whose contents must all stay in sight.

        Errors: UndecidedError when other file systems are mounted in it: a copy lacks them.
        """
        real = settle(directory).path
        inside = next(
            (m.mount_point for m in read_mounts() if Path(real) in Path(m.mount_point).parents),
            None,
        )
        if inside is not None:
            raise UndecidedError(
                f"{directory}: nginx writes there and {inside} is mounted in it",
                hint="let it write its logs, pid and temporary files to a directory of their own",
            )
        self.copy(directory, written)

    def _next_name(self) -> str:
        self._made += 1
        return f"cover-{self._made}"

    def _take(self, path: str, name: str) -> None:
        self._written[path] = name
        self._planned.clear()

    def make_room(self, sockets: Iterable[str]) -> None:
        """Have no socket at these paths, where the host's nginx listens or one was killed.

        The host keeps its own: it goes from a copy of its directory.
        """
        for path in sockets:
            directory, name = os.path.split(os.path.normpath(path))
            real = settle(directory).path
            if _is_socket(f"{real}/{name}") and self._holder(real) is None:
                self.copy(real)
            holder = self._holder(real)
            if holder is not None and not self.covers.remove_socket(
                holder[0], f"{holder[1]}/{name}"
            ):
                self.copy(real)
                self.covers.remove_socket(self._written[real], name)

    def open_written(self, path: str | Path) -> BinaryIO:
        """Open a file that nginx wrote, or one of the lab's own, for reading.

        Errors: OSError; ELOOP for a link that nginx could have made, ENODEV for a device such as
                /dev/null, EINVAL for what else is no file, ENOENT where nothing was written.
        """
        if is_inside(str(path), str(STATE)):
            return Path(path).open("rb")
        directory, name = os.path.split(os.path.normpath(path))
        holder = self._holder(settle(directory).path)
        if holder is None:
            # Nothing there takes writes: what there is is the host's, a device perhaps.
            if stat.S_ISCHR(os.stat(path).st_mode):  # noqa: PTH116
                raise OSError(errno.ENODEV, "a device keeps nothing", str(path))
            return Path(path).open("rb")
        return os.fdopen(self.covers.open(holder[0], f"{holder[1]}/{name}"), "rb")

    def written_bytes(self, path: str | Path) -> int:
        """Bytes in a file of nginx's; 0 when it is not there or is none that would be read."""
        try:
            with self.open_written(path) as file:
                return os.fstat(file.fileno()).st_size
        except OSError:
            return 0

    def _holder(self, real: str) -> tuple[str, str] | None:
        """Name of the cover that a directory lies in, and where in it."""
        around = [path for path in self._written if is_inside(real, path)]
        if not around:
            return None
        nearest = max(around, key=len)
        return self._written[nearest], real[len(nearest) :]

    def prepare(self, programs: Sequence[str]) -> Prepared:
        """The sandbox for some programs.

        Errors: UndecidedError for a wall that this host cannot have.
        """
        key = "\0".join(programs)
        if key not in self._planned:
            namespace = self.covers.namespace
            self._planned[key] = prepare(self._confinement(programs), namespace=namespace)
        return self._planned[key]

    def _confinement(self, programs: Iterable[str]) -> Confinement:
        named = [path for program in programs for path in program_paths(program)]
        view = self._view
        sources = {path: self.covers.source(name) for path, name in self._written.items()}
        # By their other names too: the links on the way are seen.
        sources |= {name: sources[real] for name, real in self._names.items() if real in sources}
        return Confinement(
            shown=[*system_paths(), *named, *view.shown, *self._shown],
            covers=sources,
            disks=self._disks,
            laid=self._laid,
            hidden=self._hidden,
            uses_unix_sockets=view.uses_unix_sockets,
            uses_file_aio=view.uses_file_aio,
            transparent=view.transparent,
            threads=view.threads,
            workers=view.workers,
            limits=ResourceLimits(),
            weaker=self._weaker,
        )


def _files_in(directory: str, paths: Iterable[str]) -> list[str]:
    """Names of the regular files among paths that are right in a directory; no links."""
    found = set()
    for path in map(Path, paths):
        try:
            is_file = stat.S_ISREG(path.lstat().st_mode)
        except OSError:
            continue
        if is_file and os.path.realpath(path.parent) == directory:
            found.add(path.name)
    return sorted(found)


def _is_socket(path: str) -> bool:
    """Whether a socket is there, and not what a link leads to."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
