"""Where a scratch nginx is reached: an address and port, or a unix socket as nginx itself sees it.

In its sandbox nginx has a file system of its own: a socket there has another path out here.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

Place = tuple[str, int] | str
"""An address and port, or the path of a unix socket."""


def place_text(place: Place) -> str:
    """As people know it."""
    return f"unix:{place}" if isinstance(place, str) else f"{place[0]}:{place[1]}"


def seen_from_here(path: str, pid: int) -> str:
    """The path, for everyone, of a file that a process sees at ``path``.

    Links on the way are followed here, where they are the same: an absolute one would lead out of
    the process's root. Source: proc_pid_root(5), path_resolution(7).
    """
    directory, name = os.path.split(path)
    return f"/proc/{pid}/root{os.path.realpath(directory).rstrip('/')}/{name}"


def link_to(path: str, pid: int, link: Path) -> str:
    """A short path, for everyone, of a socket that a process sees at ``path``: ``link``.

    The path of a socket has 107 bytes at most, and the link's is what counts. Source: unix(7).
    """
    link.unlink(missing_ok=True)
    link.symlink_to(seen_from_here(path, pid))
    return str(link)


def connect(place: Place, *, pid: int, timeout_seconds: float) -> socket.socket:
    """A connection to a process.

    Errors: OSError.
    """
    if not isinstance(place, str):
        return socket.create_connection(place, timeout=timeout_seconds)
    directory, name = os.path.split(seen_from_here(place, pid))
    number = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(timeout_seconds)
        client.connect(f"/proc/self/fd/{number}/{name}")
    except BaseException:
        client.close()
        raise
    finally:
        os.close(number)
    return client
