"""The new root: planned once, then built for each nginx in its own mount namespace.

It is a small read-only file system in memory. It contains shown files at their usual paths
(read-only, no devices, no setuid), writable places (covers, which no other root contains), a /dev
with a few harmless devices, a /proc with only the sandbox's processes, and empty /run, /tmp and
/dev/shm. The rest of the host is absent.

A host's socket or pipe in a shown directory would be usable through a read-only mount. Where
Landlock forbids opening pipes for writing and nginx uses no unix sockets, directories are shown
directly, without cost. Otherwise they are shown through an overlay, whose sockets and pipes differ
from the host's (fs/overlayfs/inode.c; unix_find_bsd() compares inodes). Directories in which a
mount point must be added are shown through an overlay too.

An earlier nginx may have put links into its covers, so places are reached from a descriptor of the
new root, without following links.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from nginx_tune.errors import UndecidedError
from nginx_tune.host.parse_storage import is_inside
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.confinement import Confinement
from nginx_tune.sandbox.places import below, find, is_private, outermost, read_mounts, settle

_STAGE = "/tmp"  # noqa: S108  # covered in this namespace
"""The directory in which the new root is built; every system has it."""
DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
                 "stderr": "/proc/self/fd/2"}  # fmt: skip
_PROCESSORS = ("/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible")
"""Files by which C libraries count CPUs (sysdeps/unix/sysv/linux/getsysstats.c)."""
OWN_MEMORY = ("/tmp", "/run", "/var/tmp")  # noqa: S108  # each sandbox's own
_KERNELS_PLACES = ("/dev", "/proc", "/sys")
_SEALED = calls.MS_RDONLY | calls.MS_NOSUID | calls.MS_NODEV
_REMOUNT = calls.MS_REMOUNT | calls.MS_BIND
_HOLD = os.O_PATH | os.O_CLOEXEC

MountKind = Literal["file", "directory", "empty", "memory"]


class RootPlace(NamedTuple):
    """One mount of the new root."""

    path: str
    kind: MountKind
    source: str = ""
    """The path of the source, for the kinds ``file`` and ``directory``."""
    writable: bool = False
    overlaid: bool = False
    """True if the place is shown through an overlay, since it may contain sockets and pipes of the
    host."""
    optional: bool = False
    """True if no setting names the place, which is then left empty if it cannot be shown."""
    points: tuple[tuple[str, MountKind], ...] = ()
    """Mount points for inner places that the source lacks."""


class RootPlan(NamedTuple):
    """The places and links of the new root; outer places come first."""

    places: list[RootPlace]
    links: dict[str, str]
    weaker_sockets: bool
    cover_bytes: int
    cover_files: int

    @property
    def writable(self) -> list[str]:
        """The paths of the writable places."""
        return [place.path for place in self.places if place.writable]


def plan_root(wanted: Confinement) -> RootPlan:
    """Plan the root from the files that exist now."""
    links: dict[str, str] = {}
    shown = _find_shown(wanted.shown, links)
    named = _find_shown([path for path in wanted.shown if not _is_root(path)], {})
    covers, disks, laid = (
        _settled(ours, links) for ours in (wanted.covers, wanted.disks, wanted.laid)
    )
    is_unsafe = wanted.uses_unix_sockets or not calls.landlock_version()
    places = {path: RootPlace(path, "memory", writable=True) for path in OWN_MEMORY}
    mounts = read_mounts()
    for path in outermost(shown):
        points = (mount.mount_point for mount in below(mounts, path))
        for point in (path, *filter(_can_be_seen, points)):
            kind: MountKind = "directory" if os.path.isdir(point) else "file"  # noqa: PTH112
            # Landlock's rules are by path, so below a writable place they do not protect.
            is_open = any(is_inside(point, place) for place in (*OWN_MEMORY, *covers))
            overlaid = kind == "directory" and (is_unsafe or is_open)
            places[point] = RootPlace(
                point, kind, point, overlaid=overlaid, optional=point not in named
            )
    for path, source in covers.items():
        if path != "/" and not any(is_inside(path, point) for point in _KERNELS_PLACES):
            places[path] = RootPlace(path, "directory", source, writable=True)
    for path, kind in shown.items():
        # Inside a writable place it needs a mount of its own to stay read-only.
        if path not in covers and any(is_inside(path, point) for point in covers):
            places.setdefault(path, RootPlace(path, kind, path))
    places |= {path: RootPlace(path, "directory", source) for path, source in disks.items()}
    places |= {path: RootPlace(path, "file", source) for path, source in laid.items()}
    for path in wanted.hidden:
        if any(is_inside(path, point) for point in places):
            places.setdefault(path, RootPlace(path, "empty"))
    ordered = _with_points([places[path] for path in sorted(places)])
    return RootPlan(
        places=ordered,
        links={at: text for at, text in links.items() if not _is_in(at, ordered)},
        weaker_sockets="sockets" in wanted.weaker,
        cover_bytes=wanted.limits.cover_bytes,
        cover_files=wanted.limits.cover_files,
    )


def _find_shown(paths: Iterable[str], links: dict[str, str]) -> dict[str, MountKind]:
    """The kinds of the paths that exist, by real path; adds the links on the way to ``links``."""
    shown: dict[str, MountKind] = {}
    for path in (name for wanted in paths for name in _expand(wanted)):
        found = find(path)
        if found is not None:
            links |= found.links
            if not is_private(found.path):
                shown[found.path] = "directory" if found.is_directory else "file"
    return shown


def _settled(paths: Mapping[str, str], links: dict[str, str]) -> dict[str, str]:
    """The sources by real path. Symbolic links passed on the way are added to ``links``."""
    found = {}
    for path, source in paths.items():
        place = settle(path)
        links |= place.links
        found[place.path] = source
    return found


def _with_points(places: list[RootPlace]) -> list[RootPlace]:
    """The places; each lists the mount points for inner places that its source lacks."""
    points: dict[str, list[tuple[str, MountKind]]] = {}
    for place in places:
        path = place.path
        around = [other for other in places if other.path != path and is_inside(path, other.path)]
        is_fixed = bool(around) and around[-1].kind == "directory" and not around[-1].writable
        if not is_fixed or place.kind == "empty":
            continue
        source = around[-1].source + path[len(around[-1].path.rstrip("/")) :]
        if not _is_kind(source, place.kind):
            points.setdefault(around[-1].path, []).append((path, place.kind))
    return [
        place._replace(overlaid=True, points=tuple(points[place.path]))
        if place.path in points
        else place
        for place in places
    ]


def _is_kind(path: str, kind: MountKind) -> bool:
    """True when a place of this kind can be mounted over the path."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) == (kind != "file") and not stat.S_ISLNK(mode)


def build_root(plan: RootPlan) -> None:
    """Build the root and enter it; the caller must have its own mount and PID namespace.

    Errors: OSError that names the step; UndecidedError for a part that the host cannot provide.
    """
    calls.mount("none", "/", flags=calls.MS_REC | calls.MS_PRIVATE)
    # Sources are opened first: the new root will hide everything below its directory.
    sources = {
        place.path: os.open(place.source, _HOLD)
        for place in plan.places
        if place.kind in {"file", "directory"}
    }
    files = _hold((*(f"/dev/{name}" for name in DEVICES), *_PROCESSORS))
    calls.mount("tmpfs", _STAGE, "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, "mode=0755,size=16m")
    new_root = _NewRoot(plan)
    for path, descriptor in files.items():
        # Devices are bind mounts, since a user namespace cannot create any. Their mode is fixed.
        new_root.bind_file(descriptor, path, nodev=path in _PROCESSORS)
    for name, text in _DEVICE_LINKS.items():
        new_root.link(f"/dev/{name}", text)
    new_root.mount_memory("/dev/shm")  # noqa: S108  # its own
    new_root.mount_proc()
    for place in plan.places:
        new_root.put(place, sources.get(place.path, -1))
    for at, text in plan.links.items():
        new_root.link(at, text)
    new_root.seal_empty()
    for descriptor in (*sources.values(), *files.values()):
        os.close(descriptor)
    new_root.enter()


class _NewRoot:
    """The root under construction."""

    def __init__(self, plan: RootPlan) -> None:
        self._plan = plan
        self._root = os.open(_STAGE, _HOLD | os.O_DIRECTORY)
        self._floors = ""
        self._empty: list[str] = []
        self._parents: dict[str, int] = {}
        if any(place.overlaid for place in plan.places):
            os.close(self._reach("/.floors", "directory"))
            self._mount("/.floors", "tmpfs", "tmpfs", calls.MS_NODEV, "mode=0755,size=16m")
            self._floors = f"{_STAGE}/.floors"

    def put(self, place: RootPlace, source: int) -> None:
        """Mount one place of the plan."""
        if place.kind == "memory":
            self.mount_memory(place.path)
        elif place.kind == "empty":
            with contextlib.suppress(FileNotFoundError):  # nothing to hide
                os.close(self._reach(place.path, "directory", makes=False))
                flags = _SEALED & ~calls.MS_RDONLY
                self._mount(place.path, "tmpfs", "tmpfs", flags, "mode=0755,size=64k")
                self._empty.append(place.path)
        elif not place.overlaid or not self._lay_over(place, source):
            point = self._reach(place.path, place.kind)
            try:
                _bind(source, f"/proc/self/fd/{point}")
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                text = f"{place.source} at {place.path}: {reason}"
                raise OSError(error.errno or 0, text) from None
            finally:
                os.close(point)
            self._seal(place.path, place.kind, read_only=not place.writable)

    def mount_memory(self, path: str) -> None:
        """Mount an empty, writable file system in memory."""
        mode = "0755" if path == "/run" else "1777"
        data = f"mode={mode},size={self._plan.cover_bytes},nr_inodes={self._plan.cover_files}"
        self._mount(path, "tmpfs", "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, data)

    def mount_proc(self) -> None:
        """Mount a read-only /proc that shows only the sandbox's processes."""
        flags = _SEALED | calls.MS_NOEXEC
        try:
            self._mount("/proc", "proc", "proc", flags, "subset=pid")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Before Linux 5.8, mount all of /proc and hide the writable parts.
            self._mount("/proc", "proc", "proc", flags)
            for name in ("sys", "bus", "fs", "irq", "acpi", "scsi", "tty", "driver"):
                with contextlib.suppress(OSError):
                    self._mount(f"/proc/{name}", "tmpfs", "tmpfs", _SEALED, "size=4k")

    def bind_file(self, descriptor: int, path: str, *, nodev: bool) -> None:
        """Bind-mount a file of the host read-only."""
        point = self._reach(path, "file")
        _bind(descriptor, f"/proc/self/fd/{point}")
        os.close(point)
        self._remount(path, calls.MS_RDONLY | calls.MS_NOSUID | (calls.MS_NODEV if nodev else 0))

    def link(self, path: str, text: str) -> None:
        """Make a link, unless something is shown at its path."""
        directory, name = os.path.split(path)
        with contextlib.suppress(OSError):
            os.symlink(text, name, dir_fd=self._parent(directory, makes=True))

    def seal_empty(self) -> None:
        """Make hidden directories read-only; call it after all places are mounted."""
        for path in self._empty:
            self._remount(path, _SEALED)

    def _remount(self, path: str, flags: int) -> None:
        """Add flags to a mount, which must keep its present flags."""
        point = self._reach(path, "file", makes=False)
        target = f"/proc/self/fd/{point}"
        try:
            calls.mount("none", target, flags=_REMOUNT | flags | flags_of(target))
        finally:
            os.close(point)

    def enter(self) -> None:
        """Make this the root directory, read-only from here on."""
        if self._floors:
            # An overlay keeps mounts of its layers by itself.
            calls.detach(self._floors)
            os.rmdir(self._floors)  # noqa: PTH106
        os.close(self._reach("/.old", "directory"))
        os.chdir(_STAGE)
        calls.pivot_root(".", "./.old")
        os.chdir("/")
        calls.detach("/.old")
        os.rmdir("/.old")  # noqa: PTH106
        for number in (self._root, *self._parents.values()):
            os.close(number)
        calls.mount("none", "/", flags=_REMOUNT | _SEALED)

    def _mount(self, path: str, source: str, kind: str, flags: int, data: str = "") -> None:
        point = self._reach(path, "directory")
        try:
            calls.mount(source, f"/proc/self/fd/{point}", kind, flags, data)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise OSError(error.errno or 0, f"{kind} at {path}: {reason}") from None
        finally:
            os.close(point)

    def _reach(self, path: str, kind: MountKind, *, makes: bool = True) -> int:
        """Open a path in the new root; with ``makes``, create it if missing.

        Errors: OSError, ELOOP for a link on the way.
        """
        directory, name = os.path.split(path)
        found = _open_entry(
            self._parent(directory, makes=makes), name, is_file=kind == "file", makes=makes
        )
        if stat.S_ISLNK(os.fstat(found).st_mode):
            os.close(found)
            raise OSError(errno.ELOOP, "a link in place of a file to show", path)
        return found

    def _parent(self, path: str, *, makes: bool) -> int:
        """The descriptor of a directory, which is opened once and kept.

        Outer places come first, so nothing is mounted over a directory after it was opened.
        """
        if path == "/":
            return self._root
        if path not in self._parents:
            directory, name = os.path.split(path)
            around = self._parent(directory, makes=makes)
            found = _open_entry(around, name, is_file=False, makes=makes)
            if not stat.S_ISDIR(os.fstat(found).st_mode):
                os.close(found)
                raise OSError(errno.ELOOP, "not a directory, on the path of a file to show", path)
            self._parents[path] = found
        return self._parents[path]

    def _lay_over(self, place: RootPlace, source: int) -> bool:
        """Show a directory through an overlay; returns False if it must be shown directly.

        The overlay has two lower layers and no upper one, so it is read-only.
        """
        floor = os.path.join(self._floors, str(len(os.listdir(self._floors))))  # noqa: PTH118, PTH208
        os.mkdir(floor, 0o755)  # noqa: PTH102
        _shape_floor(place, source, floor)
        layers = [floor, f"/proc/self/fd/{source}"]
        # The first layer determines the attributes of the directory itself.
        lower = ":".join(layers if place.points else layers[::-1])
        try:
            self._mount(place.path, "overlay", "overlay", _SEALED, f"lowerdir={lower}")
        except OSError as error:
            if place.optional:
                return True
            if self._plan.weaker_sockets and not place.points:
                return False
            reason = os.strerror(error.errno or 0)
            raise UndecidedError(
                f"{place.path}: sockets in it cannot be hidden from nginx: {reason}",
                hint="--weaker-sandbox sockets shows the directory anyway",
            ) from None
        return True

    def _seal(self, path: str, kind: MountKind, *, read_only: bool) -> None:
        mounted = self._reach(path, kind, makes=False)
        try:
            calls.seal_tree(mounted, read_only=read_only)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            target = os.readlink(f"/proc/self/fd/{mounted}")  # noqa: PTH115
            inner = {mount.mount_point for mount in read_mounts()}
            for point in sorted({target, *(p for p in inner if is_inside(p, target))}):
                flags = calls.MS_NOSUID | calls.MS_NODEV | flags_of(point)
                flags |= calls.MS_RDONLY if read_only else 0
                calls.mount("none", point, flags=_REMOUNT | flags)
        finally:
            os.close(mounted)


def _open_entry(directory: int, name: str, *, is_file: bool, makes: bool) -> int:
    """Open a directory's entry without following a link; with ``makes``, create it if missing."""
    try:
        return os.open(name, _HOLD | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        if not makes:
            raise
    _make(name, directory, is_file=is_file)
    return os.open(name, _HOLD | os.O_NOFOLLOW, dir_fd=directory)


def _make(name: str, directory: int | None, *, is_file: bool) -> None:
    if is_file:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        os.close(os.open(name, flags, 0o644, dir_fd=directory))
    else:
        os.mkdir(name, 0o755, dir_fd=directory)


def _shape_floor(place: RootPlace, source: int, floor: str) -> None:
    """Create a place's missing mount points in a layer, with the owner and mode of the source."""
    for path, kind in place.points:
        parts = path[len(place.path.rstrip("/")) + 1 :].split("/")
        for number in range(len(parts) + 1):
            inner = "/".join(parts[:number])
            there = f"{floor}/{inner}"
            if not os.path.lexists(there):
                _make(there, None, is_file=kind == "file" and number == len(parts))
            with contextlib.suppress(OSError):  # missing in the source, or another user's
                like = os.stat(inner or ".", dir_fd=source)
                os.chmod(there, stat.S_IMODE(like.st_mode))  # noqa: PTH101
                os.chown(there, like.st_uid, like.st_gid)


def _bind(source: int, target: str) -> None:
    name = f"/proc/self/fd/{source}"
    try:
        calls.mount(name, target, flags=calls.MS_BIND)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A user namespace can only bind a mount together with the mounts below it.
        calls.mount(name, target, flags=calls.MS_BIND | calls.MS_REC)


def _is_root(path: str) -> bool:
    return os.path.normpath(path) in {"/", "//"}


def _can_be_seen(path: str) -> bool:
    """True for a mount that this user can reach."""
    with contextlib.suppress(OSError):
        os.lstat(path)
        return True
    return False


def _expand(path: str) -> list[str]:
    """The path alone; for the root directory, the paths of its entries."""
    if not _is_root(path):
        return [path]
    return [f"/{name}" for name in os.listdir("/")]  # noqa: PTH208


def _is_in(path: str, places: list[RootPlace]) -> bool:
    """True for a path in a shown directory."""
    around = [p for p in places if path != p.path and is_inside(path, p.path)]
    return bool(around) and around[-1].kind == "directory"


def _hold(paths: Iterable[str]) -> dict[str, int]:
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found[path] = os.open(path, _HOLD)
    return found


_STATVFS = {
    os.ST_RDONLY: calls.MS_RDONLY,
    os.ST_NOSUID: calls.MS_NOSUID,
    os.ST_NODEV: calls.MS_NODEV,
    os.ST_NOEXEC: calls.MS_NOEXEC,
    os.ST_NOATIME: calls.MS_NOATIME,
    os.ST_NODIRATIME: calls.MS_NODIRATIME,
    os.ST_RELATIME: calls.MS_RELATIME,
}


def flags_of(point: str) -> int:
    """The flags of a mount; a user namespace may not remove any."""
    flags = os.statvfs(point).f_flag
    return sum(ours for theirs, ours in _STATVFS.items() if flags & theirs)
