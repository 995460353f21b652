"""The mounts inside the walls: a machine that looks like the operator's and keeps nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from nginx_tune.errors import UndecidedError
from nginx_tune.host.parse_mountinfo import is_inside
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.places import KERNELS_OWN, read_mounts
from nginx_tune.sandbox.root import flags_of
from nginx_tune.sandbox.spec import ResourceLimits

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


_PLAIN = calls.MS_NOSUID | calls.MS_NODEV
STATE = Path("/run/nginx-tune")
"""What the process inside keeps for itself: nginx sees it and cannot write there."""


def raise_loopback() -> None:
    """Bring ``lo`` up: the only link inside the walls."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def cover(directory: Path) -> None:
    """Put an empty writable directory over one that nginx writes to; it need not exist.

    It takes as much and as many files as a sandbox may write to memory.
    """
    _mount_memory(place(Path(os.path.realpath(directory))))


def cover_all(directories: Iterable[str], inner: Iterable[str]) -> None:
    """``cover`` for directories; of the ``inner`` ones in them those that are there stay, empty.

    nginx makes no directory for a log.
    """
    there = {os.path.realpath(path) for path in inner if os.path.isdir(path)}  # noqa: PTH112
    covered = [os.path.realpath(path) for path in directories]
    for path in covered:
        cover(Path(path))
    for path in there:
        if any(is_inside(path, one) for one in covered):
            Path(path).mkdir(parents=True, exist_ok=True)


def make_state() -> None:
    """Make the place of the process inside: nginx sees it, read-only."""
    STATE.mkdir(parents=True, exist_ok=True)
    _mount_memory(STATE)


def _mount_memory(directory: Path) -> None:
    limits = ResourceLimits()
    data = f"mode=0755,size={limits.cover_bytes},nr_inodes={limits.cover_files}"
    calls.mount(MEMORY, str(directory), "tmpfs", _PLAIN, data)


def place(directory: Path) -> Path:
    """Make a directory exist inside the walls without touching the disk; the directory.

    Its nearest existing ancestor becomes the lower layer of an overlay, so that what is beside
    it stays in sight. Errors: UndecidedError when that ancestor is the root.
    """
    if directory.is_dir():
        return directory
    ancestor = next(parent for parent in directory.parents if parent.is_dir())
    if ancestor == Path("/"):
        raise UndecidedError(
            f"{directory}: no existing directory to put it in",
            hint=f"make the directory /{directory.parts[1]}",
        )
    if not _is_ours(ancestor):
        _lay_over(ancestor)
    directory.mkdir(parents=True)
    return directory


def make_writable(directory: Path, written: Collection[str] = ()) -> bool:
    """Let a directory take files in memory, with what is in it in sight; it need not exist.

    Of an ordinary user those files in it that are ``written`` are empty ones of his own: an
    overlay copies up no file whose owner or group has no number in his namespace (EOVERFLOW,
    ovl_copy_up() in fs/overlayfs/copy_up.c), and 65534 may be his own number or no number.
    False for one that took them already.
    """
    real = Path(os.path.realpath(directory))
    if not real.is_dir():
        place(real)
    elif _is_ours(real):
        return False
    else:
        _lay_over(real, written)
    return True


def make_own(directory: Path, written: Collection[str] = ()) -> bool:
    """``make_writable`` for one in an overlay of ours that is another user's: it takes no files.

    In a user namespace nothing can be made in a directory whose owner has no number there
    (EOVERFLOW, fsuidgid_has_mapping() in fs/namei.c); the root of an overlay is its maker's.
    False for one that is such a root already.
    """
    real = os.path.realpath(directory)
    if any(mount.mount_point == real for mount in read_mounts()):
        return False
    _lay_over(Path(real), written)
    return True


def take_writes(directory: Path, written: Collection[str] = ()) -> None:
    """``make_writable`` for a directory whose contents must all stay in sight.

    Errors: UndecidedError when other file systems are mounted in it: an overlay hides them.
    """
    real = Path(os.path.realpath(directory))
    inside = next(
        (m.mount_point for m in read_mounts() if real in Path(m.mount_point).parents), None
    )
    if inside is not None:
        raise UndecidedError(
            f"{directory}: nginx writes there and {inside} is mounted in it",
            hint="let it write its logs, pid and temporary files to a directory of their own",
        )
    if make_writable(real, written):
        _take_pipes_away(real)


def _take_pipes_away(directory: Path) -> None:
    """Remove, in an overlay of ours, the pipes right in a directory: none has a reader there.

    A worker whose log a variable makes one of them would wait for ever. The host's stay.
    """
    for path in list(directory.iterdir()):
        with contextlib.suppress(OSError):  # another user's directory takes no change
            if stat.S_ISFIFO(path.lstat().st_mode):
                path.unlink()


def show_instead(file: Path, path: Path) -> None:
    """Show a file of ours in the place of another."""
    calls.mount(str(file), os.path.realpath(path), flags=calls.MS_BIND)


def _lay_over(directory: Path, written: Collection[str] = ()) -> None:
    """Make a directory writable in memory, with its contents in sight.

    The layers lie in a tmpfs that the overlay mount alone keeps: it is mounted over the
    directory for a moment, and covered again at once. They are named by descriptors: the
    overlay's options have characters of their own.
    """
    renewed = [] if os.geteuid() == 0 else _files_in(directory, written)
    with _descriptor(directory) as lower:
        _mount_memory(directory)
        (directory / "upper").mkdir()
        (directory / "work").mkdir()
        for name in renewed:
            (directory / "upper" / name).touch(0o644)
        with _descriptor(directory) as above:
            layers = f"lowerdir={lower},upperdir={above}/upper,workdir={above}/work"
            calls.mount(OVERLAY, str(directory), "overlay", _PLAIN, layers)


def _files_in(directory: Path, paths: Collection[str]) -> list[str]:
    """Names of the regular files among paths that are right in a directory; no links."""
    found = []
    for path in map(Path, paths):
        with contextlib.suppress(OSError):
            is_file = stat.S_ISREG(path.lstat().st_mode)
            if is_file and os.path.realpath(path.parent) == str(directory):
                found.append(path.name)
    return sorted(set(found))


@contextlib.contextmanager
def _descriptor(directory: Path) -> Iterator[str]:
    """A name of a directory that stays when something is mounted over it."""
    number = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/{os.getpid()}/fd/{number}"
    finally:
        os.close(number)


OVERLAY, MEMORY = "nginx-tune-overlay", "nginx-tune-memory"


def _is_ours(directory: Path) -> bool:
    """Whether an overlay of ours lies there already."""
    for mount in reversed(read_mounts()):
        if is_inside(str(directory), mount.mount_point):
            return mount.source in {OVERLAY, MEMORY} and os.access(directory, os.W_OK)
    return False


def set_apart(directory: Path) -> None:
    """Give a directory a mount of its own.

    What is open for writing there (a loop device's image) would otherwise keep the root from
    becoming read-only.
    """
    calls.mount(str(directory), str(directory), flags=calls.MS_BIND)


def seal_all(*, keep: Path, only: Collection[int] | None = None) -> None:
    """Make every mounted file system read-only inside the walls, but for a directory of ours.

    ``only`` are mounts by number; null for all. What holds no files of the operator is left.
    """
    for mount in read_mounts():
        point = mount.mount_point
        is_ours = point == str(keep) or point.startswith("/proc/")
        is_meant = only is None or mount.mount_id in only
        if mount.filesystem in KERNELS_OWN or is_ours or not is_meant:
            continue
        try:
            flags = flags_of(point)
        except PermissionError:  # below a directory that this user cannot enter
            continue
        if not flags & calls.MS_RDONLY:
            flags |= calls.MS_REMOUNT | calls.MS_BIND | calls.MS_RDONLY
            calls.mount("none", point, flags=flags)
