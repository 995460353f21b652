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
_LAST_ACK_RECEIVED = 56
_ROUND_TRIP = 68
_BYTES_ACKED, _BYTES_RECEIVED = 120, 128
_BYTES = struct.Struct("=Q")
_SEGMENTS = struct.Struct("=IIIIII")
_SEGMENTS_AT = 136
"""tcpi_segs_out, tcpi_segs_in, tcpi_notsent_bytes, tcpi_min_rtt, tcpi_data_segs_in,
tcpi_data_segs_out; all of them since Linux 4.6."""
_SYN = 1
"""The handshake of the side that connects counts as one byte acknowledged."""
_MILLISECONDS = struct.Struct("=I")
_MICROSECONDS = struct.Struct("=I")

DONE, ERROR = 3, 2
ESTABLISHED, SYN_SENT, CLOSE_WAIT = 1, 2, 8


class Segments(NamedTuple):
    """Segments of a connection since its beginning."""

    pure_received: int
    """Without data: acknowledgements, mostly."""
    pure_sent: int
    data_received: int
    data_sent: int

    def minus(self, earlier: Segments) -> Segments:
        """How many came and went since."""
        return Segments(*(now - before for now, before in zip(self, earlier, strict=True)))


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
    acked_ago_seconds: float | None = None
    """Since an acknowledgement came last, with data or without."""
    held_bytes: int | None = None
    """Of ``unsent_bytes`` what has not gone out at all: the other side takes no more."""
    segments: Segments | None = None
    acked_bytes: int = 0
    received_bytes: int = 0

    def asked_bytes(self, *, we_ask: bool) -> int:
        """What who asks has sent so far."""
        return self.acked_bytes if we_ask else self.received_bytes


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
    plain = TcpSocket(payload[1], port, peer_port, inode, unsent, None, None)
    at = _MESSAGE
    while at + _ATTRIBUTE.size <= len(payload):
        length, kind = _ATTRIBUTE.unpack_from(payload, at)
        if length < _ATTRIBUTE.size:
            break
        start = at + _ATTRIBUTE.size
        if kind == _INFO and length >= _ATTRIBUTE.size + _LAST_DATA_RECEIVED + 4:
            plain = _with_info(plain, payload[start : at + length])
        at += (length + 3) & ~3
    return plain


def _with_info(plain: TcpSocket, info: bytes) -> TcpSocket:
    """With what tcp_info has; older kernels have less of it."""

    def seconds(at: int) -> float:
        return float(_MILLISECONDS.unpack_from(info, at)[0]) / 1000

    one = plain._replace(
        sent_ago_seconds=seconds(_LAST_DATA_SENT), received_ago_seconds=seconds(_LAST_DATA_RECEIVED)
    )
    if len(info) >= _ROUND_TRIP + 4:
        micros = _MICROSECONDS.unpack_from(info, _ROUND_TRIP)[0]
        one = one._replace(
            acked_ago_seconds=seconds(_LAST_ACK_RECEIVED), round_trip_seconds=micros / 1e6 or None
        )
    if len(info) >= _BYTES_RECEIVED + _BYTES.size:
        acked = max(0, _BYTES.unpack_from(info, _BYTES_ACKED)[0] - _SYN)
        received = _BYTES.unpack_from(info, _BYTES_RECEIVED)[0]
        one = one._replace(
            has_sent=acked > 0,
            has_received=received > 0,
            acked_bytes=acked,
            received_bytes=received,
        )
    if len(info) >= _SEGMENTS_AT + _SEGMENTS.size:
        out, came, held, _, data_in, data_out = _SEGMENTS.unpack_from(info, _SEGMENTS_AT)
        one = one._replace(
            held_bytes=held, segments=Segments(came - data_in, out - data_out, data_in, data_out)
        )
    return one
