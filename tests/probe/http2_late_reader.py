"""A server of HTTP/2 at a unix socket that reads late, until killed: ``PATH [FIRST_WINDOW]``.

It takes nothing until the client's socket is full and all its requests are under way. Then it takes
all that comes as fast as it can. Its windows never close; with a first window that is smaller they
open only then.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from typing import BinaryIO

DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
PREFACE_BYTES = 24
FIRST_WINDOW = 4
LARGEST_WINDOW, CONNECTION_WINDOW_MORE = (1 << 31) - 1, 1 << 30
STATUS_200 = b"\x88"
"""Of HPACK's static table (RFC 7541, appendix A)."""
REST_SECONDS = 1.0


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def take_frame(peer: socket.socket, came: BinaryIO) -> int:
    """Take a frame, and answer a request at its end: the frame's bytes, none at the end of all."""
    head = came.read(9)
    if not head:
        return 0
    size, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], head[5:]
    came.read(size)
    if kind == SETTINGS and not flags:
        peer.sendall(frame(SETTINGS, 1, 0, b""))
    if kind == DATA and flags & 1:
        peer.sendall(frame(HEADERS, 4 | 1, int.from_bytes(stream), STATUS_200))
    return 9 + size


def first_window(window: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", FIRST_WINDOW, window))


def serve(peer: socket.socket, window: int) -> None:
    peer.sendall(
        first_window(window) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", CONNECTION_WINDOW_MORE))
    )
    with peer, peer.makefile("rb") as came:
        came.read(PREFACE_BYTES)
        time.sleep(REST_SECONDS)
        peer.sendall(first_window(LARGEST_WINDOW))
        while take_frame(peer, came):
            pass


def main(path: str, window: int) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        os.write(1, b"0\n")
        while True:
            peer, _ = server.accept()
            threading.Thread(target=serve, args=[peer, window], daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else LARGEST_WINDOW)
