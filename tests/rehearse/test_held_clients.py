"""What is told of long connections when their server ends them, in one way or another."""

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from free_ports import free_port
from started import until, within

from nginx_tune.documents.loadplan import Target
from nginx_tune.documents.rehearsal import HeldConnections, HeldKind
from nginx_tune.experiment.held_clients import HeldClients
from nginx_tune.experiment.operations import HeldClient

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
Ending = Callable[[socket.socket], None]


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Server:
    """Answers each connection once in its way, and ends all when it is told."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self.reply = b""
        self.first: list[bytes] = []
        """Answers to the first connections."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.recv(4096)
                connection.sendall(self.first.pop() if self.first else self.reply)
                self.connections.append(connection)

    def wait_for(self, answered: int) -> None:
        until(lambda: len(self.connections) >= answered)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept()
        self.listener.close()

    def client(self, kind: HeldKind, size: int = 0) -> HeldClient:
        port = self.listener.getsockname()[1]
        target = Target(address="127.0.0.1", port=port)
        return HeldClient(kind=kind, target=target, url="/", bytes=size)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()
    for one in made.connections:
        one.close()


def held_until(server: Server, client: HeldClient, end: Ending) -> HeldConnections:
    before = len(server.connections)
    with HeldClients([client]) as clients:
        server.wait_for(before + 1)  # the client can hold the answer before the server is done
        clients.begin_change()
        for one in server.connections[before:]:
            end(one)

        def is_over() -> bool:
            (found,) = clients.tally()
            return any((found.lost, found.closed, found.finished, found.reconnects,
                        found.not_opened))  # fmt: skip

        within(is_over, 5)
        return clients.tally()[0]


def test_an_idle_connection_that_ends_is_no_loss(server: Server) -> None:
    server.reply = HEAD % 2 + b"ok"
    for end in (close, reset):
        found = held_until(server, server.client("idle"), end)
        assert (found.held, found.closed, found.lost) == (1, 1, 0), end


def test_a_download_that_ends_early_is_lost(server: Server) -> None:
    server.reply = HEAD % 1_000_000 + bytes(500)
    for end in (close, reset):
        found = held_until(server, server.client("download"), end)
        assert (found.held, found.lost) == (1, 1), end
        assert found.reasons in ({"cut off": 1}, {"reset": 1})


def test_a_download_whose_rest_is_in_the_kernel_came_to_its_end(server: Server) -> None:
    """It reads slowly; at the end it reads on, to see."""
    server.reply = HEAD % 60_000 + bytes(60_000)
    found = held_until(server, server.client("download"), close)
    assert (found.held, found.finished, found.lost) == (1, 1, 0)


def test_a_server_that_is_gone_has_not_sent_all_that_is_read_slowly(server: Server) -> None:
    server.reply = HEAD % 900_000 + bytes(60_000)
    found = held_until(server, server.client("download"), close)
    assert (found.lost, found.reasons) == (1, {"cut off": 1})


def test_a_websocket_that_ends_is_lost(server: Server) -> None:
    server.reply = SWITCH + b"rehearsal-echo!\n"
    for end in (close, reset):
        found = held_until(server, server.client("websocket"), end)
        assert (found.held, found.lost) == (1, 1), end


def test_an_opening_that_a_limit_refuses_is_tried_again(server: Server) -> None:
    server.first = [HEAD.replace(b"200 OK", b"503 Busy") % 0] * 3
    server.reply = SWITCH + b"rehearsal-echo!\n"
    client = server.client("websocket")
    for limited, held, tried in (([], 0, 1), ([503], 1, 4)):
        with HeldClients([msgspec.structs.replace(client, limited=limited)]) as clients:
            clients.begin_change()
            assert clients.tally()[0].held == held
        server.wait_for(tried)
        assert len(server.connections) == tried


def test_an_upload_that_ends_is_lost_and_one_that_is_refused_was_never_held(server: Server) -> None:
    found = held_until(server, server.client("upload", 500_000), close)
    assert (found.held, found.lost) == (1, 1)
    server.reply = HEAD.replace(b"200 OK", b"413 Too Large") % 0
    found = held_until(server, server.client("upload", 500_000), lambda _: None)
    assert (found.held, found.not_opened) == (0, 1)
    assert found.reasons == {"answers 413 before reading the body": 1}


def test_one_that_asks_on_opens_another_where_its_own_was_closed(server: Server) -> None:
    server.reply = HEAD % 2 + b"ok"
    found = held_until(server, server.client("keepalive"), close)
    assert (found.held, found.kept, found.lost, found.reconnects) == (1, 1, 0, 1)

    def gone(connection: socket.socket) -> None:
        server.stop()
        connection.close()

    found = held_until(server, server.client("keepalive"), gone)
    assert (found.held, found.kept, found.lost) == (1, 0, 1)
    assert found.reasons == {"refused": 1}


def test_what_is_asked_as_an_idle_one_is_closed_is_asked_again_unless_an_answer_began(
    server: Server,
) -> None:
    """A close and a request that meet: nginx never saw it (a reload closes what is idle)."""
    whole = HEAD % 2 + b"ok"
    for said, end in itertools.product((b"", b"H", whole[:9], whole[:-1]), (close, reset)):
        server.reply = whole

        def meet(connection: socket.socket, said: bytes = said, end: Ending = end) -> None:
            connection.settimeout(5)
            connection.recv(4096, socket.MSG_PEEK if end is reset else 0)
            connection.sendall(said)
            time.sleep(0.05)  # a reset overtakes what was sent just before
            end(connection)

        found = held_until(server, server.client("keepalive"), meet)
        again = not said
        wanted = (1, 1, 0, 1) if again else (1, 0, 1, 0)
        assert (found.held, found.kept, found.lost, found.retried) == wanted, (said, end)


def test_who_is_answered_by_one_that_keeps_no_connection_asks_on(server: Server) -> None:
    """A worker that is about to go answers so what had reached it before."""
    server.reply = HEAD % 2 + b"ok"

    def go(connection: socket.socket) -> None:
        server.reply = (HEAD % 2).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"ok"
        connection.close()

    found = held_until(server, server.client("keepalive"), go)
    assert (found.held, found.kept, found.closed, found.lost, found.retried) == (1, 1, 0, 0, 0)
    assert found.reconnects > 0


def test_what_is_asked_again_in_vain_is_lost(server: Server) -> None:
    server.reply = HEAD % 2 + b"ok"

    def meet(connection: socket.socket) -> None:
        connection.settimeout(5)
        connection.recv(4096)
        server.reply = b""
        server.stop()
        connection.close()

    found = held_until(server, server.client("keepalive"), meet)
    assert (found.held, found.lost, found.retried, found.reasons) == (1, 1, 1, {"refused": 1})


def test_who_cannot_be_reached_is_not_held() -> None:
    port = free_port()
    target = Target(address="127.0.0.1", port=port)
    with HeldClients([HeldClient(kind="idle", target=target, url="/")]) as clients:
        clients.begin_change()
        (found,) = clients.tally()
    assert (found.held, found.not_opened, found.reasons) == (0, 1, {"refused": 1})
