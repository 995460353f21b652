"""The mounts of the lab itself: the host's, read-only, and a place in memory of its own."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path

from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.places import KERNELS_OWN, read_mounts
from nginx_tune.sandbox.root import flags_of
from nginx_tune.sandbox.spec import ResourceLimits

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_STATE_DESCRIPTOR = 40
STATE = Path(f"/proc/1/fd/{_STATE_DESCRIPTOR}")
"""What the lab's own processes write to: a directory that no path of the host leads to.

The process inside is the first of its process namespace. The name is short, as the path of a
socket must be (unix(7)).
"""
OURS = STATE / "shown"
"""What of it nginx sees, read-only, at ``SEEN``."""
SEEN = "/run/nginx-tune"


def raise_loopback() -> None:
    """Bring ``lo`` up: the only link inside the walls."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def make_state(directory: Path) -> str:
    """Make the lab's place in its directory; its path."""
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
    """Path of a file of ours by the path that nginx sees it at."""
    return OURS / Path(path).relative_to(SEEN)


def set_apart(directory: Path) -> None:
    """Give a directory a mount of its own, which stays writable.

    What is open for writing there (a loop device's image) would otherwise keep the root from
    becoming read-only.
    """
    calls.mount(str(directory), str(directory), flags=calls.MS_BIND)


def seal_all(*, keep: Path) -> None:
    """Make every mounted file system of the host read-only here, but for a directory of ours."""
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
