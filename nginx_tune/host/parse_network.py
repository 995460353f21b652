"""Texts of ``/proc/net`` and of links: listening sockets and the network stack's counters; pure."""

import ipaddress
import re
from itertools import pairwise
from typing import NamedTuple

from nginx_tune.documents.facts import Softnet
from nginx_tune.host.door import Missing

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

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class ListeningSocket(NamedTuple):
    """A listening TCP socket."""

    address: IPAddress
    port: int
    inode: int
    accept_queue: int | None = None
    """Connections in the accept queue: ``rx_queue`` of a listening socket."""

    def covers(self, address: IPAddress, port: int) -> bool:
        """True if this socket may accept a connection to an address and port.

        An IPv6 wildcard may accept IPv4 too, unless IPV6_V6ONLY is set, which is unknown here.
        """
        if port != self.port:
            return False
        if self.address.is_unspecified:
            return self.address.version == 6 or address.version == 4  # noqa: PLR2004
        return canonical(self.address) == canonical(address)


def canonical(address: IPAddress) -> IPAddress:
    """The address; for an IPv4-mapped IPv6 address, the IPv4 address."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def parse_listeners(text: str, *, byteorder: str) -> list[ListeningSocket]:
    """The listening sockets in ``/proc/net/tcp`` or ``tcp6``; malformed rows are skipped.

    ``byteorder`` is that machine's (``sys.byteorder``), in which addresses are printed as 32-bit
    numbers.
    Source: net/ipv4/tcp_ipv4.c get_openreq4(), get_tcp4_sock().
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
    """The inodes of the unix sockets that listen at a path, from ``/proc/net/unix``.

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
    """The inode of a socket's link in ``/proc/PID/fd``; None for another link."""
    match = _SOCKET.fullmatch(target)
    return int(match[1]) if match else None


_TLS_LINE = re.compile(r"^(Tls\w+)\s+([0-9]{1,20})\s*$", re.MULTILINE)


def parse_netstat(text: str) -> dict[str, int]:
    """The counters by name; of each pair of lines, the first has names and the second values.

    Source: net/ipv4/proc.c netstat_seq_show().
    """
    found: dict[str, int] = {}
    lines = text.splitlines()
    for names, values in pairwise(lines):
        title, _, words = names.partition(": ")
        same, _, numbers = values.partition(": ")
        if title != same:
            continue
        pairs = zip(words.split(), numbers.split(), strict=False)
        found |= {
            name: int(number)
            for name, number in pairs
            if re.fullmatch(r"-?[0-9]{1,20}", number) and not name.isdecimal()
        }
    return found


def parse_tls_stat(text: str) -> dict[str, int]:
    """The counters of kernel TLS, by name. Source: Documentation/networking/tls.rst."""
    return {name: int(value) for name, value in _TLS_LINE.findall(text)}


_SOFTNET = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{8})(?: [0-9a-f]{8})*")
_MASK = re.compile(r"[0-9a-f,]*[1-9a-f][0-9a-f,]*")
_LEVELS = 3


def parse_softnet(text: str) -> Softnet | Missing:
    """The sums of the counters over all CPUs.

    Source: net/core/net-procfs.c softnet_seq_show(): a line for each CPU, of 32-bit hexadecimal
            numbers; every kernel has the first three.
    """
    rows = [_SOFTNET.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    if not rows:
        return Missing("softnet_stat is empty")
    totals = [0, 0, 0]
    for row in rows:
        if row is None:
            return Missing("softnet_stat has an unknown format")
        totals = [
            total + int(number, 16) for total, number in zip(totals, row.groups(), strict=True)
        ]
    return Softnet(processed=totals[0], dropped=totals[1], squeezed=totals[2])


def parse_tcp_pages(text: str) -> int | Missing:
    """The memory of TCP's buffers, in pages.

    Source: net/ipv4/proc.c sockstat_seq_show(): ``TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1``.
    """
    match = re.search(r"^TCP: .*\bmem ([0-9]{1,18})$", text, re.MULTILINE)
    return int(match[1]) if match else Missing("sockstat has no TCP memory")


def parse_time_wait(text: str) -> int | Missing:
    """The connections in TIME_WAIT, from the line ``TCP:`` of sockstat."""
    match = re.search(r"^TCP: .*\btw ([0-9]{1,18})\b", text, re.MULTILINE)
    return int(match[1]) if match else Missing("sockstat has no connections in TIME_WAIT")


def parse_tcp_mem(text: str) -> tuple[int, int, int] | Missing:
    """The thresholds of TCP's memory, in pages: for free allocation, for saving, and the limit.

    Source: Documentation/networking/ip-sysctl.rst, tcp_mem.
    """
    words = text.split()
    if len(words) != _LEVELS or not all(re.fullmatch(r"[0-9]{1,19}", word) for word in words):
        return Missing(f"not three numbers of pages: {text.strip()[:40]!r}")
    low, pressure, high = map(int, words)
    return low, pressure, high


def has_cpus(mask: str) -> bool:
    """True for a non-empty CPU mask of sysfs."""
    return _MASK.fullmatch(mask.strip()) is not None
