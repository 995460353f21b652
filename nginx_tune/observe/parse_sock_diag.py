"""TCP sockets as sock_diag tells them, with how long ago each got and sent data; pure.

Source: include/uapi/linux/inet_diag.h (inet_diag_msg), include/uapi/linux/tcp.h (tcp_info);
fields are only ever added at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("=IHHII")
_MESSAGE = 72
_QUEUES = struct.Struct("=IIII")
_QUEUES_AT = 56
_PORTS = struct.Struct(">HH")
_ATTRIBUTE = struct.Struct("=HH")
_INFO = 2
_LAST_DATA_SENT, _LAST_DATA_RECEIVED = 44, 52
_ROUND_TRIP = 68
_BYTES_ACKED, _BYTES_RECEIVED = 120, 128
_BYTES = struct.Struct("=Q")
_SYN = 1
"""The handshake of the side that connects counts as one byte acknowledged."""
_MILLISECONDS = struct.Struct("=I")
_MICROSECONDS = struct.Struct("=I")

DONE, ERROR = 3, 2
ESTABLISHED, SYN_SENT, CLOSE_WAIT = 1, 2, 8


class TcpSocket(NamedTuple):
    """One connection of a network namespace."""

    state: int
    port: int
    peer_port: int
    inode: int
    """0 while it waits to be accepted."""
    unsent_bytes: int
    """Sent by the program and not acknowledged yet."""
    sent_ago_seconds: float | None
    received_ago_seconds: float | None
    """Since data came last; both count from the connection's begin before there was any."""
    has_sent: bool = True
    has_received: bool = True
    """Whether any data went, or came, at all."""
    round_trip_seconds: float | None = None
    """Smoothed, as the kernel has it; null before it has measured any."""


def parse_sockets(data: bytes) -> tuple[list[TcpSocket], bool]:
    """The sockets in one answer, and whether it was the last.

    Errors: ValueError with the kernel's errno when it refused.
    """
    sockets: list[TcpSocket] = []
    for kind, payload in _messages(data):
        if kind == DONE:
            return sockets, True
        if kind == ERROR:
            raise ValueError(-struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0)  # noqa: PLR2004
        if len(payload) >= _MESSAGE:
            sockets.append(_socket(payload))
    return sockets, False


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _socket(payload: bytes) -> TcpSocket:
    port, peer_port = _PORTS.unpack_from(payload, 4)
    _, unsent, _, inode = _QUEUES.unpack_from(payload, _QUEUES_AT)
    sent = received = round_trip = None
    has_sent = has_received = True
    at = _MESSAGE
    while at + _ATTRIBUTE.size <= len(payload):
        length, kind = _ATTRIBUTE.unpack_from(payload, at)
        if length < _ATTRIBUTE.size:
            break
        if kind == _INFO and length >= _ATTRIBUTE.size + _LAST_DATA_RECEIVED + 4:
            start = at + _ATTRIBUTE.size
            sent = _MILLISECONDS.unpack_from(payload, start + _LAST_DATA_SENT)[0] / 1000
            received = _MILLISECONDS.unpack_from(payload, start + _LAST_DATA_RECEIVED)[0] / 1000
            if length >= _ATTRIBUTE.size + _ROUND_TRIP + 4:
                micros = _MICROSECONDS.unpack_from(payload, start + _ROUND_TRIP)[0]
                round_trip = micros / 1e6 or None
            if length >= _ATTRIBUTE.size + _BYTES_RECEIVED + _BYTES.size:
                has_sent = _BYTES.unpack_from(payload, start + _BYTES_ACKED)[0] > _SYN
                has_received = _BYTES.unpack_from(payload, start + _BYTES_RECEIVED)[0] > 0
        at += (length + 3) & ~3
    return TcpSocket(
        payload[1],
        port,
        peer_port,
        inode,
        unsent,
        sent,
        received,
        has_sent,
        has_received,
        round_trip,
    )
