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
    """Put an empty writable directory over one that nginx writes to.

    A directory that is not there appears, by covering its nearest existing ancestor.
    """
    mount_point = place(directory)
    if not os.path.ismount(mount_point) or mount_point != directory:
        run_tool("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(directory))


def place(directory: Path) -> Path:
    """Make a path exist inside the walls without touching the disk; the path itself."""
    if directory.is_dir():
        return directory
    ancestor = next(parent for parent in directory.parents if parent.is_dir())
    if ancestor == Path("/"):
        raise UndecidedError(
            f"{directory}: no existing directory to put it in",
            hint=f"make the directory /{directory.parts[1]}",
        )
    if not _is_ours(ancestor):
        run_tool("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(ancestor))
    directory.mkdir(parents=True)
    return directory


def _is_ours(directory: Path) -> bool:
    """Whether a tmpfs of ours lies there already (it is writable and on tmpfs)."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        source, point, kind = line.split()[:3]
        if directory == Path(point) or Path(point) in directory.parents:
            return source == "tmpfs" and kind == "tmpfs" and point != "/dev"
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
