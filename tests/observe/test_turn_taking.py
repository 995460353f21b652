"""Who waits for whom: who spoke last on a connection, from what the kernel tells."""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.observe.connections import WaitingLook, look_at_waiting, read_sockets, sort_waiting
from nginx_tune.observe.parse_sock_diag import Segments, TcpSocket, TurnTaking, parse_sockets

CONNECTIONS = 6
ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@contextlib.contextmanager
def talking(*, wait: float, think: float, answer_bytes: int = 200) -> Iterator[int]:
    """Clients and their server in this process; the server's port."""
    ended = threading.Event()

    def serve(one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            while one.recv(4096):
                ended.wait(wait)
                one.sendall(b"x" * answer_bytes)

    def ask(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as one, contextlib.suppress(OSError):
            while not ended.is_set():
                one.sendall(ASK)
                left = answer_bytes
                while left > 0:
                    left -= len(one.recv(1 << 16)) or answer_bytes
                ended.wait(think)

    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        port = int(server.getsockname()[1])
        clients = [threading.Thread(target=ask, args=(port,)) for _ in range(CONNECTIONS)]
        for thread in clients:
            thread.start()
        accepted = [server.accept()[0] for _ in clients]
        servers = [threading.Thread(target=serve, args=(one,)) for one in accepted]
        for thread in servers:
            thread.start()
        try:
            yield port
        finally:
            ended.set()
            for thread in (*clients, *servers):
                thread.join()


def test_an_acknowledgement_that_is_late_is_not_a_client_that_takes_nothing() -> None:
    """All was read; the kernel of the client waits for company of its acknowledgement."""
    seen = late = 0
    with talking(wait=0.0, think=0.06) as port:
        turns = TurnTaking()
        for _ in range(60):
            time.sleep(0.013)
            look = look_at_waiting(os.getpid(), [os.getpid()], {port}, turns)
            assert isinstance(look, WaitingLook)
            seen += look.clients
            late += look.sending
    assert seen
    assert late == 0


def test_a_client_that_does_not_read_takes_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as one:
            client.sendall(ASK)
            one.recv(4096)
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.send(b"x" * 65536)
            look = look_at_waiting(os.getpid(), [os.getpid()], {port})
    assert isinstance(look, WaitingLook)
    assert (look.sending, look.client_seconds) == (1, [])


def silent(seconds: float, segments: Segments | None, **changes: object) -> TcpSocket:
    """Where the last request and the last answer lie in one tick."""
    one = TcpSocket(1, 80, 40000, 1, 0, seconds, seconds, acked_ago_seconds=seconds, held_bytes=0)
    return one._replace(segments=segments, **changes)  # type: ignore[arg-type]


OLD = Segments(pure_received=4, pure_sent=4, data_received=10, data_sent=10)


@each_row(
    ("now", "we_ask", "waits"),
    [
        (Segments(4, 7, 13, 13), False, True),  # each request was acknowledged apart
        (Segments(7, 4, 13, 13), False, False),  # each answer was
        (Segments(7, 4, 13, 13), True, True),
        (Segments(4, 7, 13, 13), True, False),
        (Segments(7, 7, 13, 13), False, None),
        (Segments(4, 4, 13, 13), False, None),
        (Segments(5, 7, 13, 40), False, True),  # of large answers some parts were
        (Segments(9, 7, 13, 40), False, True),
        (Segments(9, 6, 13, 40), False, None),
        (Segments(9, 5, 13, 40), False, False),
        (Segments(3, 3, 2, 2), False, None),  # another connection under the same number
    ],
)
def test_acknowledgements_since_the_look_before(
    now: Segments, we_ask: bool, waits: bool | None
) -> None:
    turns = TurnTaking()
    turns.begin_look()
    turns.waits(silent(0.3, OLD), we_ask=we_ask)
    turns.begin_look()
    assert turns.waits(silent(0.3, now), we_ask=we_ask) is waits
    # Nothing was said since: it is as it was.
    turns.begin_look()
    assert turns.waits(silent(1.3, now), we_ask=we_ask) is waits


def test_an_idle_client_that_asked_once_has_its_answer() -> None:
    """After a pause the kernel acknowledges a request apart, before the answer goes out."""
    for now in (Segments(4, 5, 11, 11), Segments(5, 5, 11, 11), Segments(9, 5, 11, 40)):
        turns = TurnTaking()
        turns.begin_look()
        assert turns.waits(silent(0.8, OLD, sent_ago_seconds=0.7), we_ask=False) is False
        turns.begin_look()
        assert turns.waits(silent(0.3, now), we_ask=False) is False, now


def test_times_tell_where_they_differ() -> None:
    for changes, waits in (
        ({"sent_ago_seconds": 0.9}, True),
        ({"received_ago_seconds": 0.9}, False),
        # The client's kernel acknowledged the answer, 40 ms later or a way to it and back.
        ({"acked_ago_seconds": 0.26}, False),
        # Of what it spoke of much later nothing follows: it is asked whether it is there.
        ({"acked_ago_seconds": 0.0, "sent_ago_seconds": 9.0, "received_ago_seconds": 9.0}, None),
        ({"unsent_bytes": 100}, False),
        ({"has_sent": False}, True),
        ({"has_sent": False, "has_received": False}, False),
    ):
        one = silent(0.3, None, **changes)
        assert TurnTaking().waits(one, we_ask=False) is waits, changes
    assert TurnTaking().waits(silent(0.01, None), we_ask=False) is False


def test_uploads_say_nothing_by_their_acknowledgements() -> None:
    turns = TurnTaking()
    for received in (10_000, 400_000):
        turns.begin_look()
        now = OLD._replace(
            pure_sent=OLD.pure_sent + received // 4000, data_received=received // 1400
        )
        found = turns.waits(silent(0.3, now, received_bytes=received), we_ask=False)
    assert found is None


def test_what_is_not_known_is_told_apart() -> None:
    look = sort_waiting([silent(0.3, None), silent(0.5, None, inode=2, port=5)], {9: {1, 2}}, {80})
    assert (look.client_seconds, look.clients_unclear) == ([], (0.3,))
    assert (look.upstream_seconds, look.upstreams_unclear) == ([], (0.5,))


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
