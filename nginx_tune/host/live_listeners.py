"""Listening sockets of this machine, by sock_diag in the network namespace of a process."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any

from msgspec.structs import replace

from nginx_tune.documents.listening import Listening, ListenSocket
from nginx_tune.host.door import HostReadError
from nginx_tune.host.kernel import NETWORK_SYSCTLS, sysctl_path
from nginx_tune.host.namespaces import in_network_of, is_our_network

_TCP_LISTEN = 1 << 10
_SKMEMINFO = 7
_DROPS = 8
"""Place of the drops in INET_DIAG_SKMEMINFO (include/uapi/linux/sock_diag.h)."""


def read_listening(pid: int | None) -> Listening:
    """The listening TCP sockets of a process's network namespace; None: of the reader's.

    Errors: HostReadError when the kernel has no sock_diag, OSError when the namespace may not be
            entered.
    """
    if pid is None or is_our_network(pid):
        return _ask()
    return in_network_of(pid, lambda: replace(_ask(), sysctls=_sysctls()))


def _ask() -> Listening:
    from pyroute2 import DiagSocket, NetlinkError  # noqa: PLC0415  # heavy

    sockets = []
    try:
        with DiagSocket() as diag:
            diag.bind()
            for family in (AF_INET, AF_INET6):
                sockets += diag.get_sock_stats(
                    family=family, states=_TCP_LISTEN, extensions=1 << (_SKMEMINFO - 1)
                )
    except NetlinkError as error:
        raise HostReadError("listening", f"sock_diag: {error}") from None
    found = sorted(map(_socket, sockets), key=lambda one: (one.port, one.address, one.inode))
    return Listening(sockets=found, somaxconn=_somaxconn())


def _socket(message: Any) -> ListenSocket:
    return ListenSocket(
        address=message["idiag_src"],
        port=message["idiag_sport"],
        inode=message["idiag_inode"],
        backlog=message["idiag_wqueue"],
        accept_queue=message["idiag_rqueue"],
        drops=_drops(message.get_attr("INET_DIAG_SKMEMINFO")),
    )


def _drops(meminfo: str | None) -> int | None:
    """The drops in an attribute that is given as ``00:1f:…``."""
    data = bytes.fromhex((meminfo or "").replace(":", ""))
    numbers = struct.unpack(f"={len(data) // 4}I", data[: len(data) // 4 * 4])
    return numbers[_DROPS] if len(numbers) > _DROPS else None


def _sysctls() -> dict[str, str]:
    """Those of the calling thread's namespace; one that this kernel has not is left out."""
    found = {}
    for name in NETWORK_SYSCTLS:
        with contextlib.suppress(OSError):
            found[name] = Path(sysctl_path(name)).read_text()
    return found


def _somaxconn() -> int | None:
    """The sysctl as the calling thread's namespace has it."""
    try:
        return int(Path("/proc/sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return None
