"""A server behind nginx that counts what it gets."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Request:
    """A request with its place among those of its connection, from 1."""

    head: str
    body: bytes
    number: int

    @property
    def method(self) -> str:
        return self.head.split(" ", 1)[0]

    @property
    def path(self) -> str:
        return self.head.split(" ", 2)[1]

    @property
    def asks_to_close(self) -> bool:
        """As every server takes it: HTTP/1.0, or Connection: close."""
        line = self.head.partition("\r\n")[0]
        return line.endswith("HTTP/1.0") or "\r\nconnection: close" in self.head.lower()


@dataclass
class Origin:
    port: int
    connections: int = 0
    requests: list[Request] = field(default_factory=list)
    resumed: list[bool] = field(default_factory=list)
    """For each TLS connection, whether its session was resumed."""


Answer = Callable[[Request, socket.socket], bytes | None]


def ok(body: bytes = b"here", *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _here(request: Request, peer: socket.socket) -> bytes:
    return ok()


def no_answer(request: Request, peer: socket.socket) -> None:
    """Close the connection instead."""


@contextlib.contextmanager
def run_origin(answer: Answer | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Origin]:
    """Serve on every address of the loopback; no answer closes the connection without one."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        origin = Origin(listener.getsockname()[1])
        peers: list[socket.socket] = []
        threading.Thread(
            target=_accept, args=(listener, origin, answer or _here, tls, peers), daemon=True
        ).start()
        yield origin
        listener.shutdown(socket.SHUT_RDWR)
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)


def _accept(
    listener: socket.socket,
    origin: Origin,
    answer: Answer,
    tls: ssl.SSLContext | None,
    peers: list[socket.socket],
) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        peers.append(peer)
        origin.connections += 1
        threading.Thread(target=_serve, args=(peer, origin, answer, tls), daemon=True).start()


def _serve(peer: socket.socket, origin: Origin, answer: Answer, tls: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        stack.enter_context(peer)
        if tls is not None:
            secured = stack.enter_context(tls.wrap_socket(peer, server_side=True))
            origin.resumed.append(bool(secured.session_reused))
            peer = secured
        data = b""
        number = 0
        while True:
            while b"\r\n\r\n" not in data:
                part = peer.recv(65536)
                if not part:
                    return
                data += part
            head, _, data = data.partition(b"\r\n\r\n")
            number += 1
            request = Request(head.decode(), b"", number)
            while len(data) < _length(request):
                data += peer.recv(65536)
            request.body, data = data[: _length(request)], data[_length(request) :]
            origin.requests.append(request)
            reply = answer(request, peer)
            if reply is None:
                return
            if request.asks_to_close:
                reply = reply.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            peer.sendall(reply)
            if request.asks_to_close:
                return


def _length(request: Request) -> int:
    for line in request.head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0
