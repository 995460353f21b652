"""Ports that are taken on this machine, over TCP and UDP, and by whom.

Asked beside the facts, when somebody means to listen somewhere: nothing is bound for it that others
could want. Source: sock_diag(7); net/ipv4/inet_diag.c inet_diag_msg_attrs_fill().
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from nginx_tune.host.door import HostReadError
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.host.parse_listeners import parse_socket_link

T = TypeVar("T")
_STATES = {"tcp": 1 << 10, "udp": 1 << 7}
"""TCP_LISTEN; TCP_CLOSE, which is a UDP socket that is bound and not connected."""
_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}
_PIDFD_GETFD = 438
"""The same number on every architecture but alpha (Linux 5.6)."""
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class BoundSocket(NamedTuple):
    """A listening TCP socket, or a UDP socket that takes what comes to its port."""

    kind: Literal["tcp", "udp"]
    address: str
    port: int
    inode: int
    user_id: int
    is_ipv6_only: bool


class Holder(NamedTuple):
    """A process that holds a socket, and how it may be shared."""

    pid: int
    name: str
    reuses_address: bool | None = None
    """SO_REUSEADDR; null where this user may not look."""
    reuses_port: bool | None = None
    """SO_REUSEPORT."""


def read_bound(pid: int | None) -> list[BoundSocket]:
    """Of the network namespace of a process; None: of the reader's.

    Errors: HostReadError when the kernel has no sock_diag, OSError when the namespace may not be
            entered.
    """
    return in_network(pid, _ask)


def in_network(pid: int | None, ask: Callable[[], T]) -> T:
    """What a function gives back in that network namespace."""
    return ask() if pid is None else in_network_of(pid, ask)


def _ask() -> list[BoundSocket]:
    from pyroute2 import DiagSocket, NetlinkError  # noqa: PLC0415  # heavy

    found: list[BoundSocket] = []
    for kind in ("tcp", "udp"):
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                with DiagSocket() as diag:
                    diag.bind()
                    messages = diag.get_sock_stats(
                        family=family, states=_STATES[kind], protocol=_PROTOCOLS[kind]
                    )
            except NetlinkError as error:
                if kind == "udp" or family == socket.AF_INET6:  # a kernel without udp_diag, IPv6
                    continue
                raise HostReadError("bound sockets", f"sock_diag: {error}") from None
            found += [_socket(kind, one) for one in messages]
    return found


def _socket(kind: Literal["tcp", "udp"], message: Any) -> BoundSocket:
    return BoundSocket(
        kind,
        message["idiag_src"],
        message["idiag_sport"],
        message["idiag_inode"],
        message["idiag_uid"],
        _is_set(message.get_attr("INET_DIAG_SKV6ONLY")),
    )


def _is_set(value: object) -> bool:
    """An attribute of one byte, as a number or as what pyroute2 prints of it (``01``)."""
    return str(value).strip("0: ") not in {"", "None"}


def find_holder(inode: int) -> Holder | None:
    """The process that holds a socket; None where none can be seen."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it ended, or is another user's
            for name in os.listdir(entry / "fd"):  # noqa: PTH208  # names, not paths
                with contextlib.suppress(OSError):
                    target = os.readlink(entry / "fd" / name)  # noqa: PTH115
                    if parse_socket_link(target) == inode:
                        return _holder(int(entry.name), int(name))
    return None


def _holder(pid: int, descriptor: int) -> Holder:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        name = "a process"
    try:
        with _copied(pid, descriptor) as copy:
            address, port = (
                bool(copy.getsockopt(socket.SOL_SOCKET, option))
                for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
            )
    except OSError:
        return Holder(pid, name)
    return Holder(pid, name, address, port)


def _copied(pid: int, descriptor: int) -> socket.socket:
    """A socket of another process, to ask what is set on it. Errors: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        copy = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(process)
    return socket.socket(fileno=copy)


def why_not_here(host: str) -> int | None:
    """The error number with which no socket of this network can be bound to an address.

    Tried with any free port, and nothing listens on it: so routes of type ``local`` and
    ``ip_nonlocal_bind`` count as they do for nginx. Null for an address that is here, or may be.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((host, 0))
    except OSError as error:
        return error.errno if error.errno in _NOT_HERE else None
    return None
