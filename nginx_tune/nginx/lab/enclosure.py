"""The enclosure: the one sandbox of a lab, in which all of its nginx processes start.

It collects the paths that nginx must find in another place than on the host, and those that it must
write. These exist only in the root of each sandbox; the lab itself has no path to that root. After
a change of these paths, the sandbox is planned anew. The lab itself sees the host's mounts
read-only, and has a place in memory (``STATE``).
"""

import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from nginx_tune.errors import UndecidedError
from nginx_tune.host.parse_storage import is_inside
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.confinement import Confinement, ResourceLimits, SandboxPart
from nginx_tune.sandbox.covers import Covers
from nginx_tune.sandbox.launch import Prepared, prepare
from nginx_tune.sandbox.places import KERNELS_OWN, read_mounts, settle
from nginx_tune.sandbox.root import flags_of


class HostNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of a configuration on its host."""

    shown: list[str] = []
    """Files and directories to read."""
    written: list[str] = []
    """Directories that nginx creates or writes to when it starts, sorted."""
    files: list[str] = []
    """Files to write, sorted."""
    uses_unix_sockets: bool = False
    uses_file_aio: bool = False
    """True if a build uses file AIO."""
    transparent: bool = False
    """True if the configuration sends from addresses other than the host's."""
    threads: int = 0
    """Number of pool threads in a worker."""
    workers: int = 0
    """Number of workers in the configuration; one for each CPU is always possible."""


class Enclosure:
    """The sandbox of a lab."""

    def __init__(self) -> None:
        self._view = HostNeeds()
        self._shown: list[str] = []
        self._hidden: list[str] = []
        self._covers: Covers | None = None
        self._state = ""
        self._made = 0
        self._names: dict[str, str] = {}
        """The real paths of writable places, by the paths that nginx uses."""
        self._written: dict[str, str] = {}
        """The name of the cover or disk at each path that nginx may write to, with links
        resolved."""
        self._copied: set[str] = set()
        self._disks: dict[str, str] = {}
        self._laid: dict[str, str] = {}
        self._weaker: list[SandboxPart] = []
        self.join_files: list[Path] = []
        """The cgroups of trial runs."""
        self._planned: dict[str, Prepared] = {}

    @property
    def view(self) -> HostNeeds:
        """The needs of the configuration."""
        return self._view

    @property
    def covers(self) -> Covers:
        """The file systems that nginx writes to.

        Errors: UndecidedError before ``begin``.
        """
        if self._covers is None:
            raise UndecidedError("the lab is not open")
        return self._covers

    def begin(self, directory: Path) -> None:
        """Make the host's mounts read-only, and prepare covers for nginx.

        Only the lab's ``directory`` stays writable.
        """
        _set_apart(directory)
        _seal_all(keep=directory)
        self._state = _make_state(directory)
        self._disks[SEEN] = f"{self._state}/{OURS.name}"
        place = directory / "covers"
        place.mkdir(0o700)
        self._covers = Covers(place)

    def look(self, view: HostNeeds) -> None:
        """Set the needs of the configuration."""
        self._view = view
        self._planned.clear()

    def show(self, *paths: str) -> None:
        """Show these paths of the host as well."""
        self._shown += paths
        self._planned.clear()

    def unshow(self, path: str) -> None:
        """Stop showing a path, since it will be written."""
        self._shown = [shown for shown in self._shown if shown != path]
        self._planned.clear()

    def hide(self, *directories: str) -> None:
        """Hide these directories, even below a shown one."""
        self._hidden += directories
        self._planned.clear()

    def weaken(self, sandbox: Iterable[SandboxPart]) -> None:
        """Leave out these parts of the sandbox if the host cannot provide them."""
        self._weaker = list(sandbox)
        self._planned.clear()

    def lay(self, path: str, ours: str | Path) -> None:
        """Show a file or socket of ours at a path, instead of the host's file."""
        # By its path: a mount of another namespace cannot be bound through a descriptor.
        own = is_inside(str(ours), str(STATE))
        self._laid[path] = f"{self._state}{str(ours)[len(str(STATE)) :]}" if own else str(ours)
        self._planned.clear()

    def lay_disk(self, path: str, name: str, *, writable: bool) -> None:
        """Show a disk at a path; ``covers`` has the disk under ``name``."""
        if writable:
            self._written[settle(path).path] = name
        else:
            self._disks[path] = self.covers.source(name)
        self._planned.clear()

    def cover(self, directory: str, inner: Iterable[str] = ()) -> None:
        """Put an empty writable directory at a path, which the host may lack.

        The directories of ``inner`` that exist on the host are made in it, empty: nginx does not
        create the directory of a log.
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
        """``cover`` several directories, some of which may be the same through links."""
        names = {settle(directory).path: directory for directory in directories}
        for real, directory in names.items():
            self.cover(directory, inner)
            self._names |= {name: real for name in directories if settle(name).path == real}

    def make_directory(self, directory: str) -> None:
        """Put an empty directory at a path that the host lacks."""
        real = settle(directory).path
        holder = self._holder(real)
        if holder is None:
            self.cover(real)
        else:
            self.covers.make_directory(*holder)

    def copy(self, directory: str, written: Iterable[str] = ()) -> bool:
        """Make a directory writable, with its contents on the host visible.

        For an ordinary user, the ``written`` files in it are new and empty: an overlay cannot copy
        up a file whose owner or group is not mapped in the user namespace (EOVERFLOW, ovl_copy_up()
        in fs/overlayfs/copy_up.c), and 65534 may be the user's own number or an unmapped one.
        Returns False for the root, and for a directory that is already a copy.
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
        """``copy`` a directory whose contents must all stay visible.

        Errors: UndecidedError if other file systems are mounted in it: a copy lacks them.
        """
        real = settle(directory).path
        inside = next(
            (m.mount_point for m in read_mounts() if Path(real) in Path(m.mount_point).parents),
            None,
        )
        if inside is not None:
            raise UndecidedError(
                f"{directory}: nginx writes to it, but {inside} is mounted below it",
                hint="let it write its logs, pid and temporary files to a separate directory",
            )
        self.copy(directory, written)

    def _next_name(self) -> str:
        self._made += 1
        return f"cover-{self._made}"

    def _take(self, path: str, name: str) -> None:
        self._written[path] = name
        self._planned.clear()

    def make_room(self, sockets: Iterable[str]) -> None:
        """Hide from nginx the sockets at these paths, left by the host's nginx or a killed one.

        The host keeps them: they are removed from a copy of their directory.
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
        """Open a file for reading that nginx wrote, or that belongs to the lab.

        Errors: OSError; ELOOP for a link that nginx could have made, ENODEV for a device such as
                /dev/null, EINVAL for anything else that is not a file, ENOENT if nothing was
                written.
        """
        if is_inside(str(path), str(STATE)):
            return Path(path).open("rb")
        directory, name = os.path.split(os.path.normpath(path))
        holder = self._holder(settle(directory).path)
        if holder is None:
            # The place is read-only, so what is there is from the host, perhaps a device.
            if stat.S_ISCHR(os.stat(path).st_mode):  # noqa: PTH116
                raise OSError(errno.ENODEV, "a device has no contents to read", str(path))
            return Path(path).open("rb")
        return os.fdopen(self.covers.open(holder[0], f"{holder[1]}/{name}"), "rb")

    def written_bytes(self, path: str | Path) -> int:
        """Size in bytes of a file that nginx wrote; 0 if it is missing or not a readable file."""
        try:
            with self.open_written(path) as file:
                return os.fstat(file.fileno()).st_size
        except OSError:
            return 0

    def _holder(self, real: str) -> tuple[str, str] | None:
        """The cover that holds a directory, and the directory's path in that cover."""
        around = [path for path in self._written if is_inside(real, path)]
        if not around:
            return None
        nearest = max(around, key=len)
        return self._written[nearest], real[len(nearest) :]

    def prepare(self, programs: Sequence[str]) -> Prepared:
        """The sandbox for these programs.

        Errors: UndecidedError for a part of the sandbox that this host lacks.
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
        # Also under the paths that nginx uses, since the links on the way are visible.
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
    """The names of the regular files directly in a directory, among the given paths; no links."""
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
    """True for a socket itself, but not for a link to one."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


_SOFTWARE = (
    "/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
    "/usr/local/lib", "/usr/local/lib64", "/usr/share", "/usr/local/share", "/nix/store",
    "/gnu/store",
)  # fmt: skip
"""Installed software, alike on every host: libraries and their plug-ins (name services, TLS
providers, converters), time zones, Perl and Lua."""
_SETTINGS = (
    "passwd", "group", "nsswitch.conf", "hosts", "host.conf", "resolv.conf", "gai.conf",
    "services", "protocols", "localtime", "timezone", "mime.types", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "ld.so.preload", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives",
    "crypto-policies", "pki/tls", "pki/ca-trust", "ca-certificates", "ssl/certs",
    "ssl/openssl.cnf", "ssl/cert.pem", "perl", "lua", "fonts", "os-release",
)  # fmt: skip
"""The files of /etc that contain no passwords or keys."""
_LINKS = ("/var/run", "/var/lock", "/bin", "/sbin")
"""Paths that are shown only if they are links to other places, not if they are directories."""
_MOST_INTERPRETER = 256


def system_paths() -> list[str]:
    """The paths that every nginx sees; some may be missing on a host."""
    links = [path for path in _LINKS if os.path.islink(path)]  # noqa: PTH114
    return [*_SOFTWARE, *(f"/etc/{name}" for name in _SETTINGS), *links]


def program_paths(program: str) -> list[str]:
    """Paths that a program needs besides the system's; a script needs its directory and shell."""
    path = Path(program)
    found = [program]
    interpreter = _interpreter(path)
    if interpreter is not None:
        # A script may run programs in its directory, as the unpacked versions of the matrix do.
        found += [str(path.parent), interpreter]
    return found


def _interpreter(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_MOST_INTERPRETER)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].split()
    return os.fsdecode(words[0]) if words else None


_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_STATE_DESCRIPTOR = 40
STATE = Path(f"/proc/1/fd/{_STATE_DESCRIPTOR}")
"""The place where the lab's own processes write; no path of the host leads there. The process
inside is the first process of its PID namespace. The name is short, as the path of a socket must be
(unix(7))."""
OURS = STATE / "shown"
"""The part that nginx sees read-only at ``SEEN``."""
SEEN = "/run/nginx-tune"


def raise_loopback() -> None:
    """Bring up ``lo``, the only link in the sandbox."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _make_state(directory: Path) -> str:
    """Make the place where the lab's processes write, and return its path."""
    state = directory / "state"
    state.mkdir(0o700)
    data = f"mode=0700,size={ResourceLimits().cover_bytes}"
    calls.mount("nginx-tune", str(state), "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, data)
    number = os.open(state, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.dup2(number, _STATE_DESCRIPTOR, inheritable=False)
    os.close(number)
    OURS.mkdir(0o755)
    return str(state)


def own_file(path: str) -> Path:
    """The path of a file of ours, from the path at which nginx sees it."""
    return OURS / Path(path).relative_to(SEEN)


def _set_apart(directory: Path) -> None:
    """Give a directory a mount of its own, which stays writable.

    Otherwise a file open for writing there (the image of a loop device) would keep the root
    writable.
    """
    calls.mount(str(directory), str(directory), flags=calls.MS_BIND)


def _seal_all(*, keep: Path) -> None:
    """Make all mounted file systems of the host read-only here, except the directory ``keep``."""
    for mount in read_mounts():
        point = mount.mount_point
        is_ours = point == str(keep) or point.startswith("/proc/")
        if mount.filesystem in KERNELS_OWN or is_ours:
            continue
        try:
            flags = flags_of(point)
        except PermissionError:  # below a directory that this user cannot enter
            continue
        if not flags & calls.MS_RDONLY:
            flags |= calls.MS_REMOUNT | calls.MS_BIND | calls.MS_RDONLY
            calls.mount("none", point, flags=flags)
