"""A server that speaks frames of HTTP/2 as told, right or wrong; the client's are read in part."""

import contextlib
import heapq
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
OK = b"\x88"
"""A header block: ``:status: 200``."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def answer(
    stream: int, body: bytes = b"good", declared: int | None = None, end: int = END_STREAM
) -> bytes:
    """A response; ``declared``: what its content-length says; without ``end`` more is to come."""
    block = OK
    if declared is not None:
        length = str(declared).encode()
        block += bytes([0x0F, 0x0D, len(length)]) + length
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, end, stream, body)


class Reply(NamedTuple):
    """What a request is answered with, and after how long; ``close``: the connection ends then."""

    said: bytes
    after_seconds: float = 0.0
    close: bool = False


class Peer(NamedTuple):
    port: int
    requests: list[tuple[int, int]]
    """Connection and stream of each request that came."""


@contextlib.contextmanager
def http2_peer(
    reply: Callable[[int, int], Reply],
    settings: bytes = frame(SETTINGS, 0, 0),
    *,
    rest_seconds: float = 0.0,
) -> Iterator[Peer]:
    """A server: ``reply`` tells by the number of the connection and of the stream.

    For ``rest_seconds`` it lets clients connect and says nothing.
    """
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        peer = Peer(listener.getsockname()[1], [])

        def accept() -> None:
            stop.wait(rest_seconds)
            for number in itertools.count():
                while not stop.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection, _ = listener.accept()
                        break
                else:
                    break
                serve = threading.Thread(
                    target=_serve, args=(connection, number, reply, settings, peer, stop)
                )
                threads.append(serve)
                serve.start()

        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield peer
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)


def _serve(
    connection: socket.socket,
    number: int,
    reply: Callable[[int, int], Reply],
    settings: bytes,
    peer: Peer,
    stop: threading.Event,
) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(settings)
        came, waiting = b"", []
        while not stop.is_set():
            left = waiting[0][0] - time.monotonic() if waiting else 0.1
            connection.settimeout(max(min(left, 0.1), 0.0005))
            with contextlib.suppress(TimeoutError):
                more = connection.recv(1 << 16)
                if not more:
                    return
                came += more
            if came.startswith(PREFACE):
                came = came.removeprefix(PREFACE)
            while len(came) >= 9 and len(came) >= (end := 9 + int.from_bytes(came[:3], "big")):
                kind, stream = came[3], int.from_bytes(came[5:9], "big")
                came = came[end:]
                if kind == HEADERS:
                    peer.requests.append((number, stream))
                    told = reply(number, stream)
                    heapq.heappush(waiting, (time.monotonic() + told.after_seconds, stream, told))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, told = heapq.heappop(waiting)
                connection.sendall(told.said)
                if told.close:
                    return
