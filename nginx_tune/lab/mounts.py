"""The mounts inside the walls: a machine that looks like the operator's and keeps nothing."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path

from nginx_tune.errors import UndecidedError
from nginx_tune.lab.disks import run_tool

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


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
    inside = next((point for point in _mount_points() if real in point.parents), None)
    if inside is not None:
        raise UndecidedError(
            f"{directory}: nginx writes there and {inside} is mounted in it",
            hint="let it write its logs, pid and temporary files to a directory of their own",
        )
    make_writable(real)


def _mount_points() -> list[Path]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [Path(line.split()[1].encode().decode("unicode_escape")) for line in lines]


def show_instead(file: Path, path: Path) -> None:
    """Show a file of ours in the place of another."""
    run_tool("mount", "--bind", str(file), str(path))


def _lay_over(directory: Path) -> None:
    """Make a directory writable in memory, with its contents in sight.

    The layers lie in a tmpfs that the overlay mount alone keeps: it is mounted over the
    directory for a moment, and covered again at once.
    """
    below = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        run_tool("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(directory))
        (directory / "upper").mkdir()
        (directory / "work").mkdir()
        layers = f"upperdir={directory}/upper,workdir={directory}/work"
        lower = f"/proc/{os.getpid()}/fd/{below}"
        run_tool(
            "mount", "-t", "overlay", "-o", f"lowerdir={lower},{layers}", OVERLAY, str(directory)
        )
    finally:
        os.close(below)


OVERLAY = "nginx-tune-overlay"


def _is_ours(directory: Path) -> bool:
    """Whether an overlay of ours lies there already."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        source, point = line.split()[:2]
        if directory == Path(point) or Path(point) in directory.parents:
            return source in {OVERLAY, "tmpfs"} and os.access(directory, os.W_OK)
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
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, escaped, kind, *_ = line.split()
        point = escaped.encode().decode("unicode_escape")
        if kind not in _KERNELS_OWN and point != str(keep) and not point.startswith("/proc/"):
            run_tool("mount", "-o", "remount,bind,ro", point)
