"""The new root: planned once, built anew for each nginx in a mount namespace of its own.

It is a small file system in memory that takes no writes. In it stand, each at its own path, what
is shown (read-only, no devices, no setuid), what takes writes (places that are in memory already),
a /dev of a few harmless devices, a /proc of the sandbox's own processes, and empty /run, /tmp and
/dev/shm. The rest of the host is not there.

A socket or a pipe of the host in a directory that is shown would be reached past a read-only
mount. Where Landlock forbids to open pipes for writing and nginx opens no socket with a path,
directories are shown as they are, and cost nothing. Else they are shown through an overlay, whose
sockets and pipes are others than the host's (fs/overlayfs/inode.c; unix_find_bsd() compares
inodes).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from nginx_tune.errors import UndecidedError
from nginx_tune.host.parse_mountinfo import is_inside
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.places import below, find, is_private, outermost, read_mounts
from nginx_tune.sandbox.spec import Confinement

STAGE = "/tmp"  # noqa: S108  # covered in this namespace
"""Where the new root is built: a directory that every system has."""
DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
                 "stderr": "/proc/self/fd/2"}  # fmt: skip
_PROCESSORS = ("/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible")
"""What C libraries count CPUs by (sysdeps/unix/sysv/linux/getsysstats.c)."""
OWN_MEMORY = ("/tmp", "/run", "/var/tmp")  # noqa: S108  # each sandbox's own
_SEALED = calls.MS_RDONLY | calls.MS_NOSUID | calls.MS_NODEV

Kind = Literal["file", "directory", "empty", "memory"]


class RootPlace(NamedTuple):
    """One place of the new root."""

    path: str
    kind: Kind
    writable: bool = False
    overlaid: bool = False
    """Shown through an overlay: it may hold sockets and pipes of the host."""
    source: str = ""
    """What is shown there, when it is not what stands there."""
    optional: bool = False
    """Left empty where it cannot be shown: nobody named it."""


class RootPlan(NamedTuple):
    """What the new root is made of, outer places first."""

    places: list[RootPlace]
    links: dict[str, str]
    weaker_sockets: bool
    cover_bytes: int
    cover_files: int

    @property
    def writable(self) -> list[str]:
        """Where nginx may write."""
        return [place.path for place in self.places if place.writable]


def plan_root(wanted: Confinement) -> RootPlan:
    """What to build, from what is there now.

    Errors: UndecidedError when something that must be writable is not there.
    """
    links: dict[str, str] = {}
    shown = _find_shown(wanted.shown, links)
    named = _find_shown([path for path in wanted.shown if not _is_root(path)], {})
    writable = _find_writable(wanted.writable, links)
    mounts = read_mounts()
    is_unsafe = wanted.uses_unix_sockets or not calls.landlock_version()
    places = {path: RootPlace(path, "memory", writable=True) for path in OWN_MEMORY}
    for path in outermost(shown):
        points = (mount.mount_point for mount in below(mounts, path))
        for one in (path, *filter(_can_be_seen, points)):
            kind: Kind = "directory" if os.path.isdir(one) else "file"  # noqa: PTH112
            is_own = any(is_inside(one, own) for own in wanted.own)
            # Landlock allows by paths: what lies below a place that takes writes is not kept.
            is_open = any(is_inside(one, place) for place in (*OWN_MEMORY, *writable))
            overlaid = kind == "directory" and not is_own and (is_unsafe or is_open)
            places[one] = RootPlace(one, kind, overlaid=overlaid, optional=one not in named)
    # One that is mounted in another is a place of its own: a bind mount leaves it out.
    mounted = {mount.mount_point for mount in mounts}
    apart = {*outermost(writable), *mounted.intersection(writable)}
    places |= {path: RootPlace(path, "directory", writable=True) for path in apart}
    for path, kind in shown.items():
        # Inside of what takes writes it is a place of its own, or it would take them too.
        if path not in writable and any(is_inside(path, one) for one in writable):
            places.setdefault(path, RootPlace(path, kind))
    ours = [_place_of_ours(*pair) for pair in wanted.instead.items()]
    places |= {place.path: place for place in ours}
    for path in wanted.hidden:
        if any(is_inside(path, one) for one in places):
            places.setdefault(path, RootPlace(path, "empty"))
    ordered = [places[path] for path in sorted(places)]
    return RootPlan(
        places=ordered,
        links={at: text for at, text in links.items() if not _is_in(at, ordered)},
        weaker_sockets="sockets" in wanted.weaker,
        cover_bytes=wanted.limits.cover_bytes,
        cover_files=wanted.limits.cover_files,
    )


def _find_shown(paths: Iterable[str], links: dict[str, str]) -> dict[str, Kind]:
    """What is there of what is wanted, by its real path; links on the way are noted."""
    shown: dict[str, Kind] = {}
    for path in (name for wanted in paths for name in _expand(wanted)):
        found = find(path)
        if found is not None:
            links |= found.links
            if not is_private(found.path):
                shown[found.path] = "directory" if found.is_directory else "file"
    return shown


def _find_writable(paths: Iterable[str], links: dict[str, str]) -> list[str]:
    writable = []
    for path in paths:
        found = find(path)
        if found is None or not found.is_directory:
            raise UndecidedError(f"{path}: nginx writes there and it is no directory inside")
        links |= found.links
        writable.append(found.path)
    return writable


def build_root(plan: RootPlan) -> None:
    """Build the root and enter it; to be called in a mount and a process namespace of one's own.

    Errors: OSError that names the step; UndecidedError for a wall that cannot be had.
    """
    calls.mount("none", "/", flags=calls.MS_REC | calls.MS_PRIVATE)
    # What is shown is opened before the stage covers what may lie below it.
    sources = {
        place.path: os.open(place.source or place.path, os.O_PATH | os.O_CLOEXEC)
        for place in plan.places
        if place.kind in {"file", "directory"}
    }
    devices = _hold(f"/dev/{name}" for name in DEVICES)
    processors = _hold(_PROCESSORS)
    calls.mount("tmpfs", STAGE, "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, "mode=0755,size=16m")
    _make_devices(devices, plan)
    for path, descriptor in processors.items():
        _bind_file(descriptor, path)
    _mount_proc()
    with _overlay_floor(plan) as floor:
        for place in plan.places:
            _put(place, sources.get(place.path, -1), plan, floor)
    for at, text in plan.links.items():
        with contextlib.suppress(OSError):  # something is shown there
            _directory(os.path.dirname(at))  # noqa: PTH120
            os.symlink(text, STAGE + at)  # noqa: PTH211
    for place in plan.places:
        if place.kind == "empty":
            calls.mount("none", STAGE + place.path, flags=_REMOUNT | _SEALED)
    for descriptor in (*sources.values(), *devices.values(), *processors.values()):
        os.close(descriptor)
    _directory("/.old")
    os.chdir(STAGE)
    calls.pivot_root(".", "./.old")
    os.chdir("/")
    calls.detach("/.old")
    os.rmdir("/.old")  # noqa: PTH106
    calls.mount("none", "/", flags=_REMOUNT | _SEALED)


_REMOUNT = calls.MS_REMOUNT | calls.MS_BIND


def _place_of_ours(path: str, ours: str) -> RootPlace:
    """A socket of ours at a path where the host may have its own."""
    directory, name = os.path.split(os.path.normpath(path))
    found = find(directory)
    return RootPlace(f"{found.path if found else directory}/{name}", "file", source=ours)


def _is_root(path: str) -> bool:
    return os.path.normpath(path) in {"/", "//"}


def _can_be_seen(path: str) -> bool:
    """Whether a mount is where this user can look."""
    with contextlib.suppress(OSError):
        os.lstat(path)
        return True
    return False


def _expand(path: str) -> list[str]:
    """A path; for the root everything in it."""
    if not _is_root(path):
        return [path]
    return [f"/{name}" for name in os.listdir("/")]  # noqa: PTH208


def _is_in(path: str, places: list[RootPlace]) -> bool:
    """Whether a path is seen anyway, in a directory that is shown."""
    around = [p for p in places if path != p.path and is_inside(path, p.path)]
    return bool(around) and around[-1].kind == "directory"


def _hold(paths: Iterable[str]) -> dict[str, int]:
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    return found


def _directory(path: str) -> None:
    os.makedirs(STAGE + path, 0o755, exist_ok=True)  # noqa: PTH103


def _file(path: str) -> None:
    if not os.path.lexists(STAGE + path):
        _directory(os.path.dirname(path))  # noqa: PTH120
        os.close(os.open(STAGE + path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _in_memory(path: str, plan: RootPlan) -> None:
    mode = "0755" if path == "/run" else "1777"
    data = f"mode={mode},size={plan.cover_bytes},nr_inodes={plan.cover_files}"
    calls.mount("tmpfs", STAGE + path, "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, data)


def _make_devices(devices: dict[str, int], plan: RootPlan) -> None:
    """The devices themselves, bound: a user namespace may make none."""
    for path, descriptor in devices.items():
        _bind_file(descriptor, path, nodev=False)
    for name, text in _DEVICE_LINKS.items():
        os.symlink(text, f"{STAGE}/dev/{name}")  # noqa: PTH211
    _directory("/dev/shm")  # noqa: S108  # its own
    _in_memory("/dev/shm", plan)  # noqa: S108


def _bind_file(descriptor: int, path: str, *, nodev: bool = True) -> None:
    """A file of the host, not even its mode can be changed."""
    _file(path)
    calls.mount(f"/proc/self/fd/{descriptor}", STAGE + path, flags=calls.MS_BIND)
    flags = calls.MS_RDONLY | calls.MS_NOSUID | (calls.MS_NODEV if nodev else 0)
    flags |= flags_of(STAGE + path)
    calls.mount("none", STAGE + path, flags=_REMOUNT | flags)


_BESIDE_PROCESSES = ("/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/acpi", "/proc/scsi",
                     "/proc/tty", "/proc/driver")  # fmt: skip


def _mount_proc() -> None:
    """The sandbox's own processes and nothing else; it takes no writes."""
    _directory("/proc")
    flags = _SEALED | calls.MS_NOEXEC
    try:
        calls.mount("proc", STAGE + "/proc", "proc", flags, "subset=pid")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Before Linux 5.8: everything, of which the writable parts are hidden too.
        calls.mount("proc", STAGE + "/proc", "proc", flags)
        for path in _BESIDE_PROCESSES:
            with contextlib.suppress(OSError):
                calls.mount("tmpfs", STAGE + path, "tmpfs", _SEALED, "size=4k")


def _put(place: RootPlace, source: int, plan: RootPlan, floor: str) -> None:
    target = STAGE + place.path
    if place.kind == "file":
        _file(place.path)
    else:
        try:
            _directory(place.path)
        except OSError:  # below something that is shown as it is, and not there
            if place.kind in {"memory", "empty"}:
                return
            raise
    if place.kind == "memory":
        _in_memory(place.path, plan)
    elif place.kind == "empty":
        calls.mount("tmpfs", target, "tmpfs", _SEALED & ~calls.MS_RDONLY, "mode=0755,size=64k")
    elif not place.overlaid or not _lay_over(place, source, plan, floor):
        _bind(source, target)
        _seal(target, read_only=not place.writable)


def _lay_over(place: RootPlace, source: int, plan: RootPlan, floor: str) -> bool:
    """Show a directory through an overlay; False where it is to be shown without."""
    # Two layers below and none above: nothing can be written.
    layers = f"lowerdir=/proc/self/fd/{source}:{floor}"
    try:
        calls.mount("overlay", STAGE + place.path, "overlay", _SEALED, layers)
    except OSError as error:
        if place.optional:
            return True
        if plan.weaker_sockets:
            return False
        raise UndecidedError(
            f"{place.path}: sockets in it cannot be kept from nginx: {error.strerror}",
            hint="--weaker-walls sockets shows it all the same",
        ) from None
    return True


def _bind(source: int, target: str) -> None:
    name = f"/proc/self/fd/{source}"
    try:
        calls.mount(name, target, flags=calls.MS_BIND)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # In a user namespace what is mounted below comes along.
        calls.mount(name, target, flags=calls.MS_BIND | calls.MS_REC)


def _seal(target: str, *, read_only: bool) -> None:
    try:
        calls.seal_tree(target, read_only=read_only)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        for point in sorted({target, *_points_below(target)}):
            flags = calls.MS_NOSUID | calls.MS_NODEV | flags_of(point)
            flags |= calls.MS_RDONLY if read_only else 0
            calls.mount("none", point, flags=_REMOUNT | flags)


def _points_below(target: str) -> list[str]:
    points = [mount.mount_point for mount in read_mounts()]
    return [point for point in points if is_inside(point, target)]


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
    """The flags that it has: in a user namespace they must be kept."""
    flags = os.statvfs(point).f_flag
    return sum(ours for theirs, ours in _STATVFS.items() if flags & theirs)


@contextlib.contextmanager
def _overlay_floor(plan: RootPlan) -> Iterator[str]:
    """An empty directory: the second layer that an overlay without writes wants."""
    if not any(place.overlaid for place in plan.places):
        yield ""
        return
    os.mkdir(f"{STAGE}/.floor")  # noqa: PTH102
    descriptor = os.open(f"{STAGE}/.floor", os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
        os.rmdir(f"{STAGE}/.floor")  # noqa: PTH106
