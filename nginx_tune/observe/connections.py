"""The connections of workers: how many each took and holds, and who waits for whom.

Clients that asked wait for nginx, and nginx waits for upstreams that it asked; sockets tell both
(``parse_sock_diag``).
"""

from __future__ import annotations

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
"""Format of the log: a line a request; ``$connection`` numbers a server's connections."""


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
"""The most of all workers together that are looked at: about 2 µs each."""


def count_held(workers: Sequence[int], ports: AbstractSet[int]) -> dict[int, int] | None:
    """Established connections to these ports by worker; None when it cannot be told.

    A connection that is still in the accept queue belongs to nobody and is not counted.
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
"""The most of all workers together in one look: about 2 µs each."""
_MOST_SOCKETS = 50_000
"""The most of the whole namespace."""


class WaitingLook(NamedTuple):
    """One look at the connections of a server."""

    clients: int
    client_seconds: list[float]
    """The time that each client that asked last has waited so far."""
    sending: int
    """Clients that take no more of what is sent to them."""
    upstreams: int
    upstream_seconds: list[float]
    """The time that each upstream that was asked last has not answered so far."""
    connecting: int
    connections: dict[int, int]
    """TCP connections that each worker holds."""
    pool_threads: int = 0
    pool_busy: int = 0
    """Threads of pools that are not asleep."""
    round_trips: Mapping[int, float] = MappingProxyType({})
    """Seconds to each client and back, by the inode of its connection (``tcpi_rtt``)."""
    clients_unclear: Sequence[float] = ()
    """The time of silence with each client of which nothing tells whether it waits."""
    upstreams_unclear: Sequence[float] = ()


def look_at_waiting(
    master: int,
    workers: Sequence[int],
    ports: AbstractSet[int],
    turns: TurnTaking | None = None,
) -> WaitingLook | Missing:
    """See who waits now, among the connections of these workers.

    ``turns`` holds what earlier looks saw of them.
    """
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
    """The sockets that workers hold, as clients and upstreams.

    ``turns`` holds what earlier looks saw of them.
    """
    ours = set().union(*held.values())
    mine = [one for one in sockets if one.inode in ours]
    clients = [one for one in mine if one.port in ports]
    upstreams = [one for one in mine if one.port not in ports]
    stuck = [_has_not_taken(one) for one in clients]
    turns = TurnTaking() if turns is None else turns
    turns.begin_look()
    asked = [
        (turns.waits(one, we_ask=False), one.received_ago_seconds or 0.0)
        for one, is_stuck in zip(clients, stuck, strict=True)
        if not is_stuck
    ]
    asking = [
        (turns.waits(one, we_ask=True), one.sent_ago_seconds or 0.0)
        for one in upstreams
        if one.state == ESTABLISHED
    ]
    return WaitingLook(
        clients=len(clients),
        client_seconds=[seconds for waits, seconds in asked if waits],
        clients_unclear=tuple(seconds for waits, seconds in asked if waits is None),
        sending=sum(stuck),
        upstreams=len(upstreams),
        upstream_seconds=[seconds for waits, seconds in asking if waits],
        upstreams_unclear=tuple(seconds for waits, seconds in asking if waits is None),
        connecting=sum(one.state == SYN_SENT for one in upstreams),
        connections={
            worker: sum(one.inode in inodes for one in mine) for worker, inodes in held.items()
        },
        round_trips={
            one.inode: one.round_trip_seconds
            for one in clients
            if one.round_trip_seconds is not None and one.state == ESTABLISHED
        },
    )


def _has_not_taken(one: TcpSocket) -> bool:
    """True when the other side, or the way to it, takes no more of what is sent.

    What was sent and is not acknowledged yet may have been read long ago: acknowledgements wait
    for company. So it counts only when one is overdue.
    """
    if one.held_bytes is None:  # before Linux 4.6
        return one.unsent_bytes > 0
    if one.held_bytes or not one.unsent_bytes:
        return one.held_bytes > 0
    ago = one.sent_ago_seconds
    return ago is None or ago > LATEST_ACK_SECONDS + 2 * (one.round_trip_seconds or 0.0)


def read_sockets() -> list[TcpSocket]:
    """The TCP connections of the caller's network namespace.

    Errors: OSError when the kernel has no sock_diag, or there are too many.
    """
    found: list[TcpSocket] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as one:
        one.settimeout(_SECONDS)
        one.bind((0, 0))
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, _WITH_INFO, 0, _STATES)
            one.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _DUMP_REQUEST, 1, 0) + body)
            ended = False
            while not ended:
                try:
                    sockets, ended = parse_sockets(one.recv(1 << 18))
                except ValueError as error:
                    number = int(error.args[0])
                    raise OSError(number, os.strerror(number)) from None
                found += sockets
                if len(found) > _MOST_SOCKETS:
                    raise OSError(0, f"there are more than {_MOST_SOCKETS:,} connections")
    return found


def _busy_pool_threads(worker: int) -> tuple[int, int]:
    """Threads of a worker besides the main one, and how many of them are not asleep."""
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
