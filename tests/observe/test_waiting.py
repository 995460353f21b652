"""Who waits for whom, from what the kernel tells of real connections."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.observe.connections import WaitingLook, look_at_waiting, read_sockets, sort_waiting
from nginx_tune.observe.parse_sock_diag import TcpSocket, parse_sockets

ESTABLISHED, SYN_SENT = 1, 2


def one(**changes: object) -> TcpSocket:
    plain = TcpSocket(ESTABLISHED, 80, 40000, 1, 0, 1.0, 1.0)
    return plain._replace(**changes)  # type: ignore[arg-type]


def test_sorting() -> None:
    sockets = [
        one(inode=1, sent_ago_seconds=9.0, received_ago_seconds=0.5),  # asked 0.5 s ago
        one(inode=2, sent_ago_seconds=0.2, received_ago_seconds=3.0),  # kept, idle
        one(inode=3, has_sent=False, has_received=False),  # open, never asked
        one(inode=4, unsent_bytes=9000, sent_ago_seconds=0.1, received_ago_seconds=0.05),  # slow
        one(inode=5, port=50000, peer_port=8080, sent_ago_seconds=0.4, received_ago_seconds=7.0),
        one(inode=6, port=50001, peer_port=8080, sent_ago_seconds=7.0, received_ago_seconds=2.0),
        one(inode=7, port=50002, peer_port=8080, state=SYN_SENT),
        one(inode=0, sent_ago_seconds=9.0, received_ago_seconds=0.5),  # in the accept queue
        one(inode=99, sent_ago_seconds=9.0, received_ago_seconds=0.5),  # of another program
    ]
    found = sort_waiting(sockets, {11: {1, 2, 3, 4}, 12: {5, 6, 7, 8}}, {80})
    assert found == WaitingLook(
        clients=4, client_seconds=[0.5], sending=1, upstreams=3, upstream_seconds=[0.4],
        connecting=1, connections={11: 4, 12: 3},
    )  # fmt: skip


@each_row("pause", [0.0, 0.05])
def test_real_connections(pause: float) -> None:
    """This process is the server and its own client: who spoke last is told by the kernel."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # Who runs the tests may hold connections of its own.
        before = look_at_waiting(os.getpid(), [os.getpid()], {port})
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                time.sleep(pause)
                client.sendall(b"GET")
                time.sleep(0.3)
                asked = look_at_waiting(os.getpid(), [os.getpid()], {port})
                accepted.sendall(b"ok")
                time.sleep(0.1)
                answered = look_at_waiting(os.getpid(), [os.getpid()], {port})
    assert isinstance(before, WaitingLook)
    assert isinstance(asked, WaitingLook)
    assert isinstance(answered, WaitingLook)
    assert asked.clients == 1
    assert len(asked.client_seconds) == 1
    assert asked.client_seconds[0] >= 0.25
    # The connecting side is as one to an upstream: it asked and waits.
    assert len(asked.upstream_seconds) == len(before.upstream_seconds) + 1
    assert len(answered.upstream_seconds) == len(before.upstream_seconds)
    assert answered.client_seconds == []
    assert asked.connections[os.getpid()] - before.connections.get(os.getpid(), 0) == 2


def test_sockets_of_the_namespace_are_all_told() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        clients = [socket.create_connection(server.getsockname()) for _ in range(60)]
        port = server.getsockname()[1]
        found = [one for one in read_sockets() if one.peer_port == port]
        for client in clients:
            client.close()
    assert len(found) == 60


def test_a_refusal_and_the_end() -> None:
    header = struct.pack("=IHHII", 20, 2, 0, 1, 0) + struct.pack("=i", -13)
    with pytest.raises(ValueError, match=r"^13$"):
        parse_sockets(header)
    assert parse_sockets(struct.pack("=IHHII", 20, 3, 0, 1, 0) + bytes(4)) == ([], True)


@given(st.binary(max_size=400))
def test_no_answer_is_a_crash(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_sockets(data)
