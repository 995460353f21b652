"""The mounts inside the walls: a machine that looks like the operator's and keeps nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nginx_tune.errors import UndecidedError
from nginx_tune.lab.disks import run_tool

_OCTAL = re.compile(rb"\\([0-7]{3})")
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


class _Mount(NamedTuple):
    """A line of /proc/self/mounts."""

    source: str
    point: Path
    kind: str


def _mounts() -> list[_Mount]:
    """What is mounted, in the order it was; names may hold white space and bytes no UTF-8 has.

    Source: mangle() in fs/proc_namespace.c: space, tab, newline, backslash and # as octal.
    """
    found = []
    for line in Path("/proc/self/mounts").read_bytes().rstrip(b"\n").split(b"\n"):
        fields = [_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), field) for field in line.split(b" ")]
        source, point, kind = map(os.fsdecode, fields[:3])
        found.append(_Mount(source, Path(point), kind))
    return _in_sight(found)


def _in_sight(mounts: list[_Mount]) -> list[_Mount]:
    """Without those that a later mount lies over: no path leads to them.

    One over the root itself covers nothing: paths start below it.
    """
    covers: set[Path] = set()
    found = []
    for mount in reversed(mounts):
        if mount.point not in covers and covers.isdisjoint(mount.point.parents):
            found.append(mount)
        if mount.point != Path("/"):
            covers.add(mount.point)
    return found[::-1]


def raise_loopback() -> None:
    """Bring ``lo`` up: the only link inside the walls."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def cover(directory: Path) -> None:
    """Put an empty writable directory over one that nginx writes to; it need not exist."""
    place_at = place(Path(os.path.realpath(directory)))
    run_tool("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(place_at))


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


def make_writable(directory: Path) -> None:
    """Let a directory take files in memory, with what is in it in sight; it need not exist."""
    real = Path(os.path.realpath(directory))
    if real.is_dir():
        if not _is_ours(real):
            _lay_over(real)
    else:
        place(real)


def take_writes(directory: Path) -> None:
    """``make_writable`` for a directory whose contents must all stay in sight.

    Errors: UndecidedError when other file systems are mounted in it: an overlay hides them.
    """
    real = Path(os.path.realpath(directory))
    inside = next((mount.point for mount in _mounts() if real in mount.point.parents), None)
    if inside is not None:
        raise UndecidedError(
            f"{directory}: nginx writes there and {inside} is mounted in it",
            hint="let it write its logs, pid and temporary files to a directory of their own",
        )
    make_writable(real)


def show_instead(file: Path, path: Path) -> None:
    """Show a file of ours in the place of another."""
    run_tool("mount", "--bind", str(file), str(path))


def _lay_over(directory: Path) -> None:
    """Make a directory writable in memory, with its contents in sight.

    The layers lie in a tmpfs that the overlay mount alone keeps: it is mounted over the
    directory for a moment, and covered again at once. They are named by descriptors: the
    overlay's options have characters of their own.
    """
    with _descriptor(directory) as lower:
        run_tool("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(directory))
        (directory / "upper").mkdir()
        (directory / "work").mkdir()
        with _descriptor(directory) as above:
            layers = f"lowerdir={lower},upperdir={above}/upper,workdir={above}/work"
            run_tool("mount", "-t", "overlay", "-o", layers, OVERLAY, str(directory))


@contextlib.contextmanager
def _descriptor(directory: Path) -> Iterator[str]:
    """A name of a directory that stays when something is mounted over it."""
    number = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/{os.getpid()}/fd/{number}"
    finally:
        os.close(number)


OVERLAY = "nginx-tune-overlay"


def _is_ours(directory: Path) -> bool:
    """Whether an overlay of ours lies there already."""
    for mount in reversed(_mounts()):
        if directory == mount.point or mount.point in directory.parents:
            return mount.source in {OVERLAY, "tmpfs"} and os.access(directory, os.W_OK)
    return False


def set_apart(directory: Path) -> None:
    """Give a directory a mount of its own.

    What is open for writing there (a loop device's image) would otherwise keep the root from
    becoming read-only.
    """
    run_tool("mount", "--bind", str(directory), str(directory))


def seal_root() -> None:
    """Make the operator's file system read-only inside the walls."""
    run_tool("mount", "-o", "remount,bind,ro", "/")


_KERNELS_OWN = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2"})
"""File systems that hold no files of the operator."""


def seal_all(*, keep: Path) -> None:
    """Make every mounted file system read-only inside the walls, but for a directory of ours."""
    for mount in _mounts():
        is_ours = mount.point == keep or Path("/proc") in mount.point.parents
        if mount.kind not in _KERNELS_OWN and not is_ours:
            run_tool("mount", "-o", "remount,bind,ro", str(mount.point))
