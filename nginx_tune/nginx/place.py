"""The place of a scratch nginx: an address and port, or a Unix socket in nginx's file system.

A socket in the sandbox has another path outside. nginx, or code that it loads, can replace the
socket with anything. So no path that leads out of nginx's root is followed, and the kernel confirms
who listens before a byte is sent.
"""

import errno
import os
import socket
import stat
import struct

from nginx_tune.host.lab_mark import lineage
from nginx_tune.host.live import LiveHost

SocketPlace = tuple[str, int] | str
"""An address and port, or the path of a Unix socket."""

_MOST_LINKS = 40
"""The kernel's limit on links in a path (path_resolution(7))."""
_DOOR_SECONDS = 1.0
_CREDENTIALS = struct.Struct("iII")
"""``struct ucred``: process, user and group ids (unix(7), SO_PEERCRED)."""


def place_text(place: SocketPlace) -> str:
    """The place as text."""
    return f"unix:{place}" if isinstance(place, str) else f"{place[0]}:{place[1]}"


def connect(place: SocketPlace, *, pid: int, timeout_seconds: float) -> socket.socket:
    """A connection to nginx at ``place``.

    Through a Unix socket, nothing is sent unless ``pid`` or a process in its sandbox listens there.

    Errors: OSError.
    """
    if not isinstance(place, str):
        return socket.create_connection(place, timeout=timeout_seconds)
    number = _open_socket(place, pid)
    try:
        return _connect(number, pid, timeout_seconds)
    finally:
        os.close(number)


class Door:
    """A path to nginx's Unix socket, for this process and its children.

    The path names a descriptor of this process for the socket itself. So a link that nginx puts in
    the socket's place misleads nobody. Connections are refused while nginx does not listen.
    """

    def __init__(self, seen: str, pid: int) -> None:
        self._seen = seen
        self._socket: tuple[int, int] | None = None
        self._number = os.memfd_create("door")
        self.path = f"/proc/{os.getpid()}/fd/{self._number}"
        self.look(pid)

    def look(self, pid: int) -> None:
        """Lead to the socket that the process now has at its path."""
        try:
            number = _open_socket(self._seen, pid)
        except OSError:
            self._shut()
            return
        try:
            status = os.fstat(number)
            found = (status.st_dev, status.st_ino)
            # While a socket is open, no other has its device and inode numbers.
            if found != self._socket:
                _connect(number, pid, _DOOR_SECONDS).close()
                os.dup2(number, self._number, inheritable=False)
                self._socket = found
        except OSError:
            self._shut()
        finally:
            os.close(number)

    def _shut(self) -> None:
        """Refuse further connections, by leading to a file that is not a socket (connect(2))."""
        if self._socket is not None:
            nothing = os.memfd_create("door")
            os.dup2(nothing, self._number, inheritable=False)
            os.close(nothing)
            self._socket = None

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._number)


def _open_socket(path: str, pid: int) -> int:
    """A descriptor of the socket that a process has at a path.

    Links to directories are resolved here, inside the root of the process, so neither an absolute
    link nor one of /proc leads out.
    Errors: OSError, with ENOTSOCK for a link in the socket's place.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    trail = [os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    left = _names(path)
    links = 0
    try:
        while left:
            name = left.pop()
            if name == "..":
                if len(trail) > 1:
                    os.close(trail.pop())
                continue
            trail.append(os.open(name, flags, dir_fd=trail[-1]))
            if not left or not stat.S_ISLNK(os.fstat(trail[-1]).st_mode):
                continue
            target = os.readlink("", dir_fd=trail[-1])  # of the descriptor itself
            os.close(trail.pop())
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                while len(trail) > 1:
                    os.close(trail.pop())
            left += _names(target)
        if not stat.S_ISSOCK(os.fstat(trail[-1]).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), path)
        return trail.pop()
    finally:
        for descriptor in trail:
            os.close(descriptor)


def _names(path: str) -> list[str]:
    """The names on a path, last one first."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]


def _connect(number: int, pid: int, timeout_seconds: float) -> socket.socket:
    """A connection to an open socket, if ``pid`` or a process in its sandbox listens on it.

    Errors: OSError; PermissionError if another process listens.
    """
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(timeout_seconds)
        client.connect(f"/proc/self/fd/{number}")
        _check_listener(client, pid)
    except BaseException:
        client.close()
        raise
    return client


def _check_listener(client: socket.socket, pid: int) -> None:
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if not _is_beside(_CREDENTIALS.unpack(peer)[0], pid):
        raise PermissionError(errno.EPERM, "another process listens there")


def _is_beside(listener: int, pid: int) -> bool:
    """True if a listener belongs to the nginx with process id ``pid``.

    That is so if both are in one sandbox or, without a sandbox, if the listener is that process or
    a descendant. The kernel reports 0 for a process that is not visible here, as the host's
    processes are inside a sandbox.
    """
    if listener <= 0:
        return False
    try:
        theirs = _process_namespace(listener)
    except (FileNotFoundError, ProcessLookupError):
        # nginx listens before it goes to the background, and the listening process ends. For the
        # first process of the sandbox's namespace, every visible process belonged to the lab.
        return os.getpid() == 1
    except OSError:
        return False
    if theirs != _process_namespace(pid):
        return False
    return theirs != _process_namespace("self") or pid in lineage(LiveHost(), listener)


def _process_namespace(process: int | str) -> int:
    """The inode of a process's PID namespace."""
    return os.stat(f"/proc/{process}/ns/pid").st_ino  # noqa: PTH116
