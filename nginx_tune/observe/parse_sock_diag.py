"""TCP sockets as sock_diag tells them, and which side of each spoke last; pure.

The side that spoke last is found by how long ago each got and sent data, and by who acknowledged:
whether an answer is waited for follows from it (``TurnTaking``).
Source: include/uapi/linux/inet_diag.h (inet_diag_msg), include/uapi/linux/tcp.h (tcp_info);
fields are only ever added at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
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
        """Those that came and went since."""
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
    """Some data went, or came, at all."""
    round_trip_seconds: float | None = None
    """Smoothed, as the kernel has it; null before it has measured any."""
    acked_ago_seconds: float | None = None
    """Since an acknowledgement came last, with data or without."""
    held_bytes: int | None = None
    """The part of ``unsent_bytes`` that has not gone out at all: the other side takes no more."""
    segments: Segments | None = None
    acked_bytes: int = 0
    received_bytes: int = 0

    def asked_bytes(self, *, we_ask: bool) -> int:
        """The bytes that the asking side has sent so far."""
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


_ESTABLISHED = "01"
_INODE = 9


def parse_established(text: str, ports: AbstractSet[int]) -> set[int]:
    """Inodes of the established sockets whose own port is one of these.

    Source: proc(5), /proc/net/tcp; addresses are in hexadecimal.
    """
    wanted = {f"{port:04X}" for port in ports}
    inodes = set()
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) <= _INODE or fields[3] != _ESTABLISHED or not fields[_INODE].isdecimal():
            continue
        if fields[1].rpartition(":")[2] in wanted:
            inodes.add(int(fields[_INODE]))
    return inodes


_CLOCK_SECONDS = 0.0055
"""Times of sockets are told in whole ticks of the kernel's clock, of 4 ms mostly."""
_SHORT_SECONDS = 0.02
"""A silence that may end in the next moment says nothing of either side."""
LATEST_ACK_SECONDS = 0.25
"""The longest delay of an acknowledgement, and some more; the way there and back comes on top."""
_LARGEST_ASK_BYTES = 1200
"""The most of a segment on average: more are uploads, which are acknowledged as they come."""
_MOSTLY = 0.5
_SEVERAL = 1.5
_AT_FIRST = Segments(pure_received=3, pure_sent=2, data_received=1, data_sent=1)
"""Segments of the handshake and the first request, with what a new connection acknowledges fast."""


class _Seen(NamedTuple):
    segments: Segments | None
    waits: bool | None


class TurnTaking:
    """The state of each connection as earlier looks saw it."""

    def __init__(self) -> None:
        self._before: dict[int, _Seen] = {}
        self._now: dict[int, _Seen] = {}

    def begin_look(self) -> None:
        """Begin a look: what is not seen again is gone."""
        self._before, self._now = self._now, {}

    def waits(self, one: TcpSocket, *, we_ask: bool) -> bool | None:
        """True when the asking side waits for the answer; None where nothing tells.

        With ``we_ask`` nginx is the one that asks, else the one that answers.
        """
        found = _by_times(one, we_ask=we_ask)
        if found is None:
            before = self._before.get(one.inode)
            found = _by_acknowledgements(one, before, we_ask=we_ask)
        self._now[one.inode] = _Seen(one.segments, found)
        if found is None and _silence(one) <= _SHORT_SECONDS:
            return False
        return found


def _silence(one: TcpSocket) -> float:
    return min(one.sent_ago_seconds or 0.0, one.received_ago_seconds or 0.0)


def _by_times(one: TcpSocket, *, we_ask: bool) -> bool | None:
    """Judge by the times of the last data each way and of the last acknowledgement."""
    sent, received, acked = one.sent_ago_seconds, one.received_ago_seconds, one.acked_ago_seconds
    if sent is None or received is None:
        return False
    # The first request may go in the tick of the handshake: then the bytes tell.
    if not one.has_sent or not one.has_received:
        return one.has_sent is we_ask and one.has_received is not we_ask
    if abs(sent - received) > _CLOCK_SECONDS:
        return (sent < received) is we_ask
    if one.unsent_bytes:
        return we_ask  # What came after it would have acknowledged it.
    latest = LATEST_ACK_SECONDS + 2 * (one.round_trip_seconds or 0.0)
    if acked is not None and _CLOCK_SECONDS < received - acked <= latest:
        return we_ask  # What was sent last was acknowledged after what came last.
    return None


def _by_acknowledgements(one: TcpSocket, before: _Seen | None, *, we_ask: bool) -> bool | None:
    """Judge by segments that only acknowledge, since the look before or since the beginning."""
    now = one.segments
    if now is None:
        return None
    known = before.segments if before is not None else _AT_FIRST
    if known is None or min(grown := now.minus(known)) < 0:
        return None
    asks, by_answerer, by_asker = (
        (grown.data_sent, grown.pure_received, grown.pure_sent)
        if we_ask
        else (grown.data_received, grown.pure_sent, grown.pure_received)
    )
    if before is not None and not grown.data_sent and not grown.data_received:
        # Nothing was said since: only the acknowledgement of what was said last may have come.
        return before.waits if by_answerer == by_asker else by_answerer > by_asker
    sent_bytes = one.asked_bytes(we_ask=we_ask)
    if sent_bytes > _LARGEST_ASK_BYTES * max(1, now.data_sent if we_ask else now.data_received):
        return None
    if bool(by_answerer) is not bool(by_asker):
        return bool(by_answerer)
    # What was answered within a tick was not acknowledged apart, so that one is missing where the
    # last was. Answers of several segments are acknowledged as they come, and tell less.
    answers = grown.data_received if we_ask else grown.data_sent
    if by_answerer >= asks and (by_asker < asks or answers >= _SEVERAL * asks):
        return True
    if by_answerer >= _MOSTLY * asks and by_asker < _MOSTLY * asks:
        return True
    return False if by_asker >= _MOSTLY * asks and by_answerer < _MOSTLY * asks else None
