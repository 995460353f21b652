"""Frames of WebSocket as an echo reads and writes them; pure.

Source: RFC 6455, sections 1.3, 4.2.2 and 5.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

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
    """What a client sent."""

    opcode: int
    payload: bytes
    is_final: bool = True


def switching(head: bytes) -> bytes:
    """The answer to a client's opening, whose request this is."""
    return _SWITCHES % accept_key(head)


def accept_key(head: bytes) -> bytes:
    """What proves to a client of WebSocket that its request was understood."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n"))
    key = next((v.strip() for n, _, v in pairs if n.lower() == b"sec-websocket-key"), b"")
    return base64.b64encode(hashlib.sha1(key + _KEY_ENDS_IN, usedforsecurity=False).digest())


class FrameReader:
    """Takes bytes of a client, gives its frames."""

    def __init__(self) -> None:
        self._seen = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole by now. Errors: ValueError for what no client may send."""
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
    """A frame as a server sends it: without a mask."""
    first = opcode | (_FINAL if is_final else 0)
    length = len(payload)
    if length < _TWO_BYTES:
        return bytes((first, length)) + payload
    if length < 1 << 16:
        return bytes((first, _TWO_BYTES)) + length.to_bytes(2, "big") + payload
    return bytes((first, _EIGHT_BYTES)) + length.to_bytes(8, "big") + payload


def echo_of(frame: Frame) -> bytes:
    """What an echo answers: data as it came, a pong to a ping, a close to a close."""
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
