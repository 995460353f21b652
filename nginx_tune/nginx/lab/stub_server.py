"""Stubs of servers other than HTTP servers: FastCGI, SCGI, uwsgi, a resolver, a log, an echo.

The echo serves connections that were upgraded to another protocol, such as WebSocket, whose frames
it parses. One process serves all. Every request to an application gets the same answer at once: 200
with a body of ``BODY_BYTES``. Every name resolves to one address. Log messages are discarded.
Source: the FastCGI, SCGI and uwsgi specifications; RFC 1035; RFC 6455.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import hashlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

import msgspec

BODY_BYTES = 2048
RESOLVED = "192.0.2.1"
"""The address to which every name resolves, from a range without hosts (RFC 5737)."""
_BODY = b"x" * BODY_BYTES
_CGI = b"Status: 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
_HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
_FCGI_END, _FCGI_STDIN, _FCGI_STDOUT = 3, 5, 6
_FCGI_HEADER = struct.Struct("!BBHHBx")
_UWSGI_HEADER = struct.Struct("<BHB")
_ENDLESS = 1 << 24
"""Maximum number of bytes of an unfinished request."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A stub's protocol and listening address."""

    protocol: Literal["fastcgi", "scgi", "uwsgi", "dns", "syslog", "echo"]
    address: str = ""
    """An IP address; empty for all addresses."""
    port: int = 0
    path: str = ""
    """The path of a Unix socket."""


class _Application(asyncio.Protocol, abc.ABC):
    """A connection with requests; ``seen`` has the bytes that are not yet consumed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a client."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream
        self.transport = transport
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        """Take more bytes."""
        self.seen += data
        if len(self.seen) > _ENDLESS:
            self.transport.abort()
        else:
            self.answer_seen()

    @abc.abstractmethod
    def answer_seen(self) -> None:
        """Answer the complete requests in ``seen``."""


class FastCgi(_Application):
    """Answers at the end of a request's input; keeps the connection if asked to."""

    keeps = False

    def answer_seen(self) -> None:
        """Answer the complete requests in ``seen``."""
        while len(self.seen) >= _FCGI_HEADER.size:
            version, kind, number, length, padding = _FCGI_HEADER.unpack_from(self.seen)
            end = _FCGI_HEADER.size + length + padding
            if version != 1 or len(self.seen) < end:
                break
            if kind == 1:  # FCGI_BEGIN_REQUEST: the third byte holds FCGI_KEEP_CONN
                self.keeps = bool(self.seen[_FCGI_HEADER.size + 2] & 1)
            self.seen = self.seen[end:]
            if kind == _FCGI_STDIN and not length:
                self._answer(number)

    def _answer(self, number: int) -> None:
        text = _CGI % BODY_BYTES + _BODY
        self.transport.write(
            _FCGI_HEADER.pack(1, _FCGI_STDOUT, number, len(text), 0) + text
            + _FCGI_HEADER.pack(1, _FCGI_STDOUT, number, 0, 0)
            + _FCGI_HEADER.pack(1, _FCGI_END, number, 8, 0) + bytes(8)
        )  # fmt: skip
        if not self.keeps:
            self.transport.close()


class Scgi(_Application):
    """Answers once the netstring of the headers is complete."""

    def answer_seen(self) -> None:
        """Answer a request once it is complete."""
        length, colon, rest = self.seen.partition(b":")
        if colon and length.isdigit() and len(rest) > int(length):
            self.transport.write(_CGI % BODY_BYTES + _BODY)
            self.transport.close()


class Uwsgi(_Application):
    """Answers in HTTP once the variables are complete."""

    def answer_seen(self) -> None:
        """Answer a request once it is complete."""
        head = _UWSGI_HEADER.size
        if len(self.seen) < head:
            return
        _, length, _ = _UWSGI_HEADER.unpack_from(self.seen)
        if len(self.seen) >= head + length:
            self.transport.write(_HTTP % BODY_BYTES + _BODY)
            self.transport.close()


class Echo(_Application):
    """Accepts an upgrade and sends the bytes back; WebSocket frames return as a server's."""

    is_upgraded = False
    frames: FrameReader | None = None

    def answer_seen(self) -> None:
        """Answer the upgrade, then the complete frames."""
        if not self.is_upgraded:
            head, end, rest = self.seen.partition(b"\r\n\r\n")
            if not end:
                return
            self.transport.write(switching(head))
            self.is_upgraded, self.seen = True, rest
        data, self.seen = self.seen, b""
        if not data:
            return
        if self.frames is None and data[0] & _FINAL:  # ASCII text without frames lacks that bit
            self.frames = FrameReader()
        if self.frames is None:
            self.transport.write(data)
            return
        try:
            for frame in self.frames.feed(data):
                self.transport.write(echo_of(frame))
                if frame.opcode == CLOSE:
                    self.transport.close()
        except ValueError:
            self.transport.abort()


TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_KEY_ENDS_IN = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SWITCHES = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: %s\r\n\r\n"
)
_FINAL, _MASKED, _OPCODE, _LENGTH = 0x80, 0x80, 0x0F, 0x7F
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_MASK_BYTES = 4
_MOST_PAYLOAD_BYTES = 4 << 20


class Frame(NamedTuple):
    """A frame from a client."""

    opcode: int
    payload: bytes
    is_final: bool = True


def switching(head: bytes) -> bytes:
    """The answer to the opening handshake of a client."""
    return _SWITCHES % accept_key(head)


def accept_key(head: bytes) -> bytes:
    """The value of ``Sec-WebSocket-Accept`` for a request."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n"))
    key = next((v.strip() for n, _, v in pairs if n.lower() == b"sec-websocket-key"), b"")
    return base64.b64encode(hashlib.sha1(key + _KEY_ENDS_IN, usedforsecurity=False).digest())


class FrameReader:
    """A parser for a client's frames."""

    def __init__(self) -> None:
        self._seen = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are now complete. Errors: ValueError for bytes no client may send."""
        self._seen += data
        while (whole := self._next()) is not None:
            yield whole

    def _next(self) -> Frame | None:
        seen = self._seen
        if len(seen) < 2:  # noqa: PLR2004  # opcode and length
            return None
        if not seen[1] & _MASKED:
            raise ValueError("a frame without a mask")
        length, place = seen[1] & _LENGTH, 2
        if length >= _TWO_BYTES:
            size = 2 if length == _TWO_BYTES else 8
            if len(seen) < place + size:
                return None
            length, place = int.from_bytes(seen[place : place + size], "big"), place + size
        if length > _MOST_PAYLOAD_BYTES:
            raise ValueError("a frame that is too long")
        end = place + _MASK_BYTES + length
        if len(seen) < end:
            return None
        payload = _unmasked(seen[place + _MASK_BYTES : end], seen[place : place + _MASK_BYTES])
        self._seen = seen[end:]
        return Frame(seen[0] & _OPCODE, payload, bool(seen[0] & _FINAL))


def server_frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    """A frame from a server, which has no mask."""
    first = opcode | (_FINAL if is_final else 0)
    length = len(payload)
    if length < _TWO_BYTES:
        return bytes((first, length)) + payload
    if length < 1 << 16:
        return bytes((first, _TWO_BYTES)) + length.to_bytes(2, "big") + payload
    return bytes((first, _EIGHT_BYTES)) + length.to_bytes(8, "big") + payload


def echo_of(frame: Frame) -> bytes:
    """The echo of a frame: the same data, a pong to a ping, a close to a close."""
    if frame.opcode == PING:
        return server_frame(PONG, frame.payload)
    if frame.opcode == PONG:
        return b""
    if frame.opcode == CLOSE:
        return server_frame(CLOSE, frame.payload[:2])
    return server_frame(frame.opcode, frame.payload, is_final=frame.is_final)


def _unmasked(payload: bytes, key: bytes) -> bytes:
    mask = (key * (len(payload) // _MASK_BYTES + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return number.to_bytes(len(payload), "big")


class Resolver(asyncio.DatagramProtocol):
    """A resolver of every name, to IPv4 only, so that nginx has one address to connect to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # The transport of asyncio is not an instance of its documented class.
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer a query."""
        answer = resolve(data)
        if answer:
            self.transport.sendto(answer, address)


def resolve(query: bytes) -> bytes:
    """The answer to a query for one name; empty for other messages."""
    end = query.find(b"\0", 12) + 1
    if len(query) < 17 or not end or len(query) < end + 4:  # noqa: PLR2004  # a head and a name
        return b""
    question = query[12 : end + 4]
    wants_ipv4 = question[-4:-2] == b"\0\x01"
    head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(wants_ipv4), 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(RESOLVED)
    return head + question + (record if wants_ipv4 else b"")


class SystemLog(asyncio.DatagramProtocol):
    """A log that discards its messages."""


_STREAMS = {"echo": Echo, "fastcgi": FastCgi, "scgi": Scgi, "uwsgi": Uwsgi}
_DATAGRAMS = {"dns": Resolver, "syslog": SystemLog}


async def _serve(endpoints: list[Endpoint]) -> None:
    loop = asyncio.get_running_loop()
    for endpoint in endpoints:
        if endpoint.protocol in _DATAGRAMS:
            kind = _DATAGRAMS[endpoint.protocol]
            if endpoint.path:
                await loop.create_datagram_endpoint(
                    kind, local_addr=endpoint.path, family=socket.AF_UNIX
                )
                continue
            await loop.create_datagram_endpoint(
                kind,
                local_addr=(endpoint.address or "0.0.0.0", endpoint.port),  # noqa: S104  # in the sandbox
            )
        elif endpoint.path:
            await loop.create_unix_server(_STREAMS[endpoint.protocol], endpoint.path, backlog=1024)
        else:
            place = endpoint.address or None
            await loop.create_server(
                _STREAMS[endpoint.protocol], place, endpoint.port, backlog=1024
            )
    os.write(1, b"ready\n")
    await asyncio.Event().wait()


def _main() -> None:
    endpoints = msgspec.json.decode(sys.argv[1], type=list[Endpoint])
    os.umask(0)  # sockets are for every user
    asyncio.run(_serve(endpoints))


if __name__ == "__main__":
    _main()
