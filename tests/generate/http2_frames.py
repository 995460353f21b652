"""HTTP/2 by single frames, over a socket. Source: RFC 9113, section 6."""

import socket
import ssl
import struct
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, PING, WINDOW_UPDATE, RST_STREAM, GOAWAY = 4, 1, 6, 8, 3, 7
ACK = END_STREAM = 1
END_HEADERS = 4


def connection(port: int, protocol: str) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10))


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def frames(client: ssl.SSLSocket) -> Iterator[tuple[int, int, int, bytes]]:
    file = client.makefile("rb")
    while head := file.read(9):
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        yield kind, flags, stream, file.read(int.from_bytes(head[:3], "big"))
