"""TCP sockets from the answers of sock_diag, and which side of each waits; pure.

The side that sent last waits for an answer. ``TurnTaking`` finds it from the times of the last
data in each direction and from acknowledgements.
Source: include/uapi/linux/inet_diag.h (inet_diag_msg), include/uapi/linux/tcp.h (tcp_info);
new fields are only added at the end.
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
"""Offset of tcpi_segs_out, tcpi_segs_in, tcpi_notsent_bytes, tcpi_min_rtt, tcpi_data_segs_in and
tcpi_data_segs_out; Linux has all of them since 4.6."""
_SYN = 1
"""The handshake adds one acknowledged byte to a connection, on the side that connects."""
_MILLISECONDS = struct.Struct("=I")
_MICROSECONDS = struct.Struct("=I")
DONE, ERROR = 3, 2
ESTABLISHED, SYN_SENT, CLOSE_WAIT = 1, 2, 8


class Segments(NamedTuple):
    """Segments of a connection since it was opened."""

    pure_received: int
    """Segments without data, mostly acknowledgements."""
    pure_sent: int
    data_received: int
    data_sent: int

    def minus(self, earlier: Segments) -> Segments:
        """The segments since an earlier count."""
        return Segments(*(now - before for now, before in zip(self, earlier, strict=True)))


class TcpSocket(NamedTuple):
    """A connection of a network namespace."""

    state: int
    port: int
    peer_port: int
    inode: int
    """Inode of the socket; 0 while the connection waits to be accepted."""
    unsent_bytes: int
    """Bytes that the program has written and the peer has not acknowledged."""
    sent_ago_seconds: float | None
    received_ago_seconds: float | None
    """Time since the last data in each direction; before any data, since the connection began."""
    has_sent: bool = True
    has_received: bool = True
    round_trip_seconds: float | None = None
    """The smoothed round-trip time (``tcpi_rtt``); null before the first measurement."""
    acked_ago_seconds: float | None = None
    """Time since the last acknowledgement, with or without data."""
    held_bytes: int | None = None
    """The part of ``unsent_bytes`` that was never sent, since the peer takes no more."""
    segments: Segments | None = None
    acked_bytes: int = 0
    received_bytes: int = 0

    def asked_bytes(self, *, we_ask: bool) -> int:
        """Bytes sent so far by the side that sends requests."""
        return self.acked_bytes if we_ask else self.received_bytes


def parse_sockets(data: bytes) -> tuple[list[TcpSocket], bool]:
    """The sockets of one answer, and True at the end of the dump.

    Errors: ValueError with the kernel's errno when it refuses the request.
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
    """The socket with the fields of tcp_info; older kernels have fewer."""

    def seconds(at: int) -> float:
        return float(_MILLISECONDS.unpack_from(info, at)[0]) / 1000

    sock = plain._replace(
        sent_ago_seconds=seconds(_LAST_DATA_SENT), received_ago_seconds=seconds(_LAST_DATA_RECEIVED)
    )
    if len(info) >= _ROUND_TRIP + 4:
        micros = _MICROSECONDS.unpack_from(info, _ROUND_TRIP)[0]
        sock = sock._replace(
            acked_ago_seconds=seconds(_LAST_ACK_RECEIVED), round_trip_seconds=micros / 1e6 or None
        )
    if len(info) >= _BYTES_RECEIVED + _BYTES.size:
        acked = max(0, _BYTES.unpack_from(info, _BYTES_ACKED)[0] - _SYN)
        received = _BYTES.unpack_from(info, _BYTES_RECEIVED)[0]
        sock = sock._replace(
            has_sent=acked > 0,
            has_received=received > 0,
            acked_bytes=acked,
            received_bytes=received,
        )
    if len(info) >= _SEGMENTS_AT + _SEGMENTS.size:
        out, came, held, _, data_in, data_out = _SEGMENTS.unpack_from(info, _SEGMENTS_AT)
        sock = sock._replace(
            held_bytes=held, segments=Segments(came - data_in, out - data_out, data_in, data_out)
        )
    return sock


_ESTABLISHED = "01"
_INODE = 9


def parse_established(text: str, ports: AbstractSet[int]) -> set[int]:
    """Inodes of the established sockets with one of these local ports.

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
"""Resolution of the times of sockets, since the kernel counts whole ticks, mostly of 4 ms."""
_SHORT_SECONDS = 0.02
"""An idle time that is too short to draw conclusions from."""
LATEST_ACK_SECONDS = 0.25
"""The longest delay of an acknowledgement, with a margin but without the round trip."""
_LARGEST_ASK_BYTES = 1200
"""Mean bytes of a request's segment. Larger segments are uploads, acknowledged as they arrive."""
_MOSTLY = 0.5
_SEVERAL = 1.5
_AT_FIRST = Segments(pure_received=3, pure_sent=2, data_received=1, data_sent=1)
"""Segments of the handshake and the first request; a new connection acknowledges at once."""


class _Seen(NamedTuple):
    segments: Segments | None
    waits: bool | None


class TurnTaking:
    """Judges which side of each connection waits, with the help of the previous sample."""

    def __init__(self) -> None:
        self._before: dict[int, _Seen] = {}
        self._now: dict[int, _Seen] = {}

    def begin_look(self) -> None:
        """Begin a sample; connections that were not in the previous one are forgotten."""
        self._before, self._now = self._now, {}

    def waits(self, sock: TcpSocket, *, we_ask: bool) -> bool | None:
        """True when the requesting side waits for an answer; None if that is unclear.

        With ``we_ask`` nginx is the requesting side (an upstream connection).
        """
        found = _by_times(sock, we_ask=we_ask)
        if found is None:
            before = self._before.get(sock.inode)
            found = _by_acknowledgements(sock, before, we_ask=we_ask)
        self._now[sock.inode] = _Seen(sock.segments, found)
        idle = min(sock.sent_ago_seconds or 0.0, sock.received_ago_seconds or 0.0)
        return False if found is None and idle <= _SHORT_SECONDS else found


def _by_times(sock: TcpSocket, *, we_ask: bool) -> bool | None:
    """The verdict from the times of the last data each way and of the last acknowledgement."""
    sent, received, acked = sock.sent_ago_seconds, sock.received_ago_seconds, sock.acked_ago_seconds
    if sent is None or received is None:
        return False
    # The first request may leave in the tick of the handshake, so the byte counts decide.
    if not sock.has_sent or not sock.has_received:
        return sock.has_sent is we_ask and sock.has_received is not we_ask
    if abs(sent - received) > _CLOCK_SECONDS:
        return (sent < received) is we_ask
    if sock.unsent_bytes:
        return we_ask  # Data received after it would have acknowledged it.
    latest = LATEST_ACK_SECONDS + 2 * (sock.round_trip_seconds or 0.0)
    if acked is not None and _CLOCK_SECONDS < received - acked <= latest:
        return we_ask  # The last data sent was acknowledged after the last data received.
    return None


def _by_acknowledgements(sock: TcpSocket, before: _Seen | None, *, we_ask: bool) -> bool | None:
    """The verdict from bare acknowledgements since the previous sample or the handshake."""
    now = sock.segments
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
        # No data since: only the acknowledgement of the last data may have come.
        return before.waits if by_answerer == by_asker else by_answerer > by_asker
    answers = grown.data_received if we_ask else grown.data_sent
    if before is not None and before.waits is False and asks == 1 and answers:
        return False  # It was idle, so the answer came after the only request.
    sent_bytes = sock.asked_bytes(we_ask=we_ask)
    if sent_bytes > _LARGEST_ASK_BYTES * max(1, now.data_sent if we_ask else now.data_received):
        return None
    if bool(by_answerer) is not bool(by_asker):
        return bool(by_answerer)
    # An answer within a tick carries the acknowledgement, so the last bare one is missing.
    # Answers of several segments are acknowledged as they arrive, and are weaker evidence.
    if by_answerer >= asks and (by_asker < asks or answers >= _SEVERAL * asks):
        return True
    if by_answerer >= _MOSTLY * asks and by_asker < _MOSTLY * asks:
        return True
    return False if by_asker >= _MOSTLY * asks and by_answerer < _MOSTLY * asks else None
