"""Who spoke last where request and answer lie in one moment: clients that wait, or that think."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

from rows import each_row

from nginx_tune.observe.connections import WaitingLook, look_at_waiting, sort_waiting
from nginx_tune.observe.parse_sock_diag import Segments, TcpSocket, TurnTaking

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


def looks(port: int, count: int = 5) -> list[WaitingLook]:
    turns, found = TurnTaking(), []
    for _ in range(count):
        time.sleep(0.43)  # not always at the same place of an exchange of 0.3 s
        look = look_at_waiting(os.getpid(), [os.getpid()], {port}, turns)
        assert isinstance(look, WaitingLook)
        found.append(look)
    return found[2:]


@each_row("answer_bytes", [200, 200_000])
def test_clients_that_ask_again_at_once_wait(answer_bytes: int) -> None:
    with talking(wait=0.3, think=0.0, answer_bytes=answer_bytes) as port:
        found = looks(port)
    waiting = sum(len(one.client_seconds) for one in found)
    unclear = sum(len(one.clients_unclear) for one in found)
    assert waiting + unclear >= 0.6 * CONNECTIONS * len(found)
    assert waiting >= unclear
    assert max((seconds for one in found for seconds in one.client_seconds), default=0.2) > 0.1


@each_row("answer_bytes", [200, 200_000])
def test_clients_that_think_do_not_wait(answer_bytes: int) -> None:
    with talking(wait=0.0, think=0.3, answer_bytes=answer_bytes) as port:
        found = looks(port)
    waiting = [seconds for one in found for seconds in one.client_seconds]
    # On a busy machine a thread of the server is late now and then, and one does wait.
    few = 0.3 * CONNECTIONS * len(found)
    assert len([seconds for seconds in waiting if seconds > 0.02]) <= few
    assert sum(one.sending for one in found) <= few


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
