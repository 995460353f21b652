"""The connections of workers: the numbers served and held, and which side of each waits.

Clients wait for nginx, and nginx for upstreams; the sockets show both (``parse_sock_diag``).
"""

import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.host.parse_network import parse_socket_link
from nginx_tune.observe.parse_sock_diag import (
    CLOSE_WAIT,
    ESTABLISHED,
    LATEST_ACK_SECONDS,
    SYN_SENT,
    TcpSocket,
    TurnTaking,
    parse_established,
    parse_sockets,
)

LOG_NAME = "nginx_tune_connections"
LOG_WORDS = ("$pid", " ", "$connection")
"""Format of the log, a line for each request; ``$connection`` numbers a server's connections."""


def count_connections(log: BinaryIO, *, start: int) -> dict[str, int]:
    """Connections that each worker served since the log had ``start`` bytes.

    Shape: {process id: connections}.
    """
    log.seek(start)
    lines = log.read().splitlines()
    seen = {tuple(line.split()) for line in lines}
    workers = Counter(words[0].decode("ascii", "replace") for words in seen if words)
    return dict(sorted(workers.items()))


_MOST_HELD_DESCRIPTORS = 200_000
"""Maximum number of descriptors to read over all workers, at about 2 µs each."""


def count_held(workers: Sequence[int], ports: AbstractSet[int]) -> dict[int, int] | None:
    """The number of established connections to these ports, by worker; None if unreadable.

    Connections in the accept queue belong to no worker and are not counted.
    """
    if not workers or not ports:
        return None
    established: set[int] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{workers[0]}/net/{table}").read_text(errors="replace")
            established |= parse_established(text, ports)
    left = _MOST_HELD_DESCRIPTORS
    held = {}
    for worker in workers:
        directory = f"/proc/{worker}/fd"
        try:
            names = os.listdir(directory)  # noqa: PTH208  # many, and only their names
        except OSError:
            return None
        left -= len(names)
        if left < 0:
            return None
        held[worker] = sum(_inode(f"{directory}/{name}") in established for name in names)
    return held


def _inode(path: str) -> int | None:
    try:
        return parse_socket_link(os.readlink(path))  # noqa: PTH115  # as stored
    except OSError:
        return None


_SOCK_DIAG = 4
_BY_FAMILY = 20
_DUMP_REQUEST = 0x301
_STATES = 1 << ESTABLISHED | 1 << SYN_SENT | 1 << CLOSE_WAIT
_WITH_INFO = 1 << (2 - 1)
_SECONDS = 2.0
_MOST_DESCRIPTORS = 20_000
"""Maximum number of descriptors to read in one sample over all workers, at about 2 µs each."""
_MOST_SOCKETS = 50_000
"""Maximum number of sockets in the whole namespace."""


class WaitingLook(NamedTuple):
    """A sample of the connections of a server."""

    clients: int
    client_seconds: list[float]
    """The time so far that each waiting client has waited."""
    sending: int
    """Clients that do not take the data sent to them."""
    upstreams: int
    upstream_seconds: list[float]
    """The time so far that nginx has waited for each upstream."""
    connecting: int
    connections: dict[int, int]
    """TCP connections by worker."""
    pool_threads: int = 0
    pool_busy: int = 0
    """Pool threads that are not asleep."""
    round_trips: Mapping[int, float] = MappingProxyType({})
    """Round-trip seconds of client connections by inode (``tcpi_rtt``)."""
    clients_unclear: Sequence[float] = ()
    """The idle time of each client that may or may not wait."""
    upstreams_unclear: Sequence[float] = ()


def look_at_waiting(
    master: int, workers: Sequence[int], ports: AbstractSet[int], turns: TurnTaking | None = None
) -> WaitingLook | Missing:
    """Sample the connections of these workers; ``turns`` has the results of earlier samples."""
    held: dict[int, set[int]] = {}
    left = _MOST_DESCRIPTORS
    for worker in workers:
        try:
            names = os.listdir(f"/proc/{worker}/fd")  # noqa: PTH208  # many, and only their names
        except OSError:
            continue
        left -= len(names)
        if left < 0:
            return Missing(f"the workers hold more than {_MOST_DESCRIPTORS:,} descriptors")
        inodes = {_inode(f"/proc/{worker}/fd/{name}") for name in names}
        held[worker] = {inode for inode in inodes if inode is not None}
    try:
        sockets = in_network_of(master, read_sockets)
    except OSError as error:
        return Missing(f"sock_diag: {error.strerror or error}")
    threads = [_busy_pool_threads(worker) for worker in workers]
    return sort_waiting(sockets, held, ports, turns)._replace(
        pool_threads=sum(total for total, _ in threads), pool_busy=sum(busy for _, busy in threads)
    )


def sort_waiting(
    sockets: Collection[TcpSocket],
    held: dict[int, set[int]],
    ports: AbstractSet[int],
    turns: TurnTaking | None = None,
) -> WaitingLook:
    """The waiting clients and upstreams among the workers' sockets.

    A socket at a listening port (``ports``) is a client's.
    """
    ours = set().union(*held.values())
    mine = [sock for sock in sockets if sock.inode in ours]
    clients = [sock for sock in mine if sock.port in ports]
    upstreams = [sock for sock in mine if sock.port not in ports]
    stuck = [_has_not_taken(sock) for sock in clients]
    turns = TurnTaking() if turns is None else turns
    turns.begin_look()
    asked = [
        (turns.waits(sock, we_ask=False), sock.received_ago_seconds or 0.0)
        for sock, is_stuck in zip(clients, stuck, strict=True)
        if not is_stuck
    ]
    asking = [
        (turns.waits(sock, we_ask=True), sock.sent_ago_seconds or 0.0)
        for sock in upstreams
        if sock.state == ESTABLISHED
    ]
    return WaitingLook(
        clients=len(clients),
        client_seconds=[seconds for waits, seconds in asked if waits],
        clients_unclear=tuple(seconds for waits, seconds in asked if waits is None),
        sending=sum(stuck),
        upstreams=len(upstreams),
        upstream_seconds=[seconds for waits, seconds in asking if waits],
        upstreams_unclear=tuple(seconds for waits, seconds in asking if waits is None),
        connecting=sum(sock.state == SYN_SENT for sock in upstreams),
        connections={
            worker: sum(sock.inode in inodes for sock in mine) for worker, inodes in held.items()
        },
        round_trips={
            sock.inode: sock.round_trip_seconds
            for sock in clients
            if sock.round_trip_seconds is not None and sock.state == ESTABLISHED
        },
    )


def _has_not_taken(sock: TcpSocket) -> bool:
    """True if the peer, or the path to it, takes no more data.

    Unacknowledged bytes alone do not show it, since acknowledgements are delayed. They count once
    an acknowledgement is overdue.
    """
    if sock.held_bytes is None:  # before Linux 4.6
        return sock.unsent_bytes > 0
    if sock.held_bytes or not sock.unsent_bytes:
        return sock.held_bytes > 0
    ago = sock.sent_ago_seconds
    return ago is None or ago > LATEST_ACK_SECONDS + 2 * (sock.round_trip_seconds or 0.0)


def read_sockets() -> list[TcpSocket]:
    """The TCP connections of the caller's network namespace.

    Errors: OSError when the kernel has no sock_diag, or there are more than 50 000.
    """
    found: list[TcpSocket] = []
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG) as link:
        link.settimeout(_SECONDS)
        link.bind((0, 0))
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, _WITH_INFO, 0, _STATES)
            link.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _DUMP_REQUEST, 1, 0) + body)
            ended = False
            while not ended:
                try:
                    sockets, ended = parse_sockets(link.recv(1 << 18))
                except ValueError as error:
                    number = int(error.args[0])
                    raise OSError(number, os.strerror(number)) from None
                found += sockets
                if len(found) > _MOST_SOCKETS:
                    raise OSError(0, f"there are more than {_MOST_SOCKETS:,} connections")
    return found


def _busy_pool_threads(worker: int) -> tuple[int, int]:
    """The numbers of a worker's pool threads: all, and those that are not asleep."""
    total = busy = 0
    try:
        names = os.listdir(f"/proc/{worker}/task")  # noqa: PTH208
    except OSError:
        return 0, 0
    for name in names:
        if name == str(worker):
            continue
        try:
            with open(f"/proc/{worker}/task/{name}/stat", "rb") as file:  # noqa: PTH123
                state = file.read(512).rpartition(b")")[2].split(maxsplit=1)[0]
        except (OSError, IndexError):
            continue
        total += 1
        busy += state != b"S"
    return total, busy
