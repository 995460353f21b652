"""``/proc/net/tcp``, ``/proc/net/tcp6`` and ``/proc/net/unix``: who listens where."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_LISTEN = "0A"
_ROW = re.compile(r"\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) \S+ ([0-9A-F]{2}) ")
_INODE_COLUMN = 9
_QUEUE_COLUMN = 4
_QUEUES = re.compile(r"[0-9A-F]{8}:([0-9A-F]{8})")
_UNIX_ROW = re.compile(
    r"[0-9a-f]+: [0-9A-F]+ [0-9A-F]+ ([0-9A-F]+) [0-9A-F]+ [0-9A-F]+ +(\d+) (.+)"
)
_ACCEPTS = 0x10000
_SOCKET = re.compile(r"socket:\[(\d+)\]")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ListeningSocket(NamedTuple):
    """A listening TCP socket."""

    address: Address
    port: int
    inode: int
    accept_queue: int | None = None
    """Connections that wait to be accepted: ``rx_queue`` of a listening socket."""

    def covers(self, address: Address, port: int) -> bool:
        """Whether it may take a connection to this address and port.

        An IPv6 wildcard takes IPv4 too, unless IPV6_V6ONLY is set, which is not told here.
        """
        if port != self.port:
            return False
        if self.address.is_unspecified:
            return self.address.version == 6 or address.version == 4  # noqa: PLR2004
        return canonical(self.address) == canonical(address)


def canonical(address: Address) -> Address:
    """The address, of IPv4 where it is one mapped into IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def parse_listeners(text: str, *, byteorder: str) -> list[ListeningSocket]:
    """The listening sockets; rows of another form are left out.

    ``byteorder`` is the machine's (``sys.byteorder``): addresses are printed as numbers of 32
    bits in its order. Source: net/ipv4/tcp_ipv4.c get_openreq4(), get_tcp4_sock().
    """
    found = []
    for line in text.splitlines():
        row = _ROW.match(line)
        columns = line.split()
        if row is None or row[3] != _LISTEN or len(columns) <= _INODE_COLUMN:
            continue
        words = [row[1][at : at + 8] for at in range(0, len(row[1]), 8)]
        packed = b"".join(
            bytes.fromhex(word)[::-1] if byteorder == "little" else bytes.fromhex(word)
            for word in words
        )
        if columns[_INODE_COLUMN].isascii() and columns[_INODE_COLUMN].isdigit():
            inode = int(columns[_INODE_COLUMN])
            queue = _QUEUES.fullmatch(columns[_QUEUE_COLUMN])
            found.append(
                ListeningSocket(
                    ipaddress.ip_address(packed),
                    int(row[2], 16),
                    inode,
                    int(queue[1], 16) if queue else None,
                )
            )
    return found


def parse_unix_listeners(text: str, path: str) -> set[int]:
    """The inodes of the unix sockets of ``/proc/net/unix`` that listen at a path.

    Source: net/unix/af_unix.c unix_seq_show(): address, references, protocol, flags, type, state,
    inode and path; ``__SO_ACCEPTCON`` is flag 0x10000.
    """
    found = set()
    for line in text.splitlines():
        row = _UNIX_ROW.fullmatch(line)
        if row is not None and int(row[1], 16) & _ACCEPTS and row[3] == path:
            found.add(int(row[2]))
    return found


def parse_socket_link(target: str) -> int | None:
    """The inode in a link of ``/proc/PID/fd`` to a socket."""
    match = _SOCKET.fullmatch(target)
    return int(match[1]) if match else None
