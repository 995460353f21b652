"""Which side of a connection spoke last, and so whether an answer is waited for; pure.

The kernel tells how long ago data came and went, in ticks. Where both lie within a tick or two,
the answer came right after the request, or the next request right after the answer: a client
that thinks, and one that waits. Then the acknowledgements tell. Data that nothing follows is
acknowledged by a segment of its own; data that is answered at once, along with the answer. So a
server whose clients wait acknowledges their requests apart, and clients that are idle acknowledge
their answers apart.
Source: net/ipv4/tcp_input.c (tcp_ack: rcv_tstamp; __tcp_ack_snd_check), include/net/tcp.h
(TCP_DELACK_MAX), RFC 9293 3.8.6.3.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.observe.parse_sock_diag import Segments, TcpSocket

CLOCK_SECONDS = 0.0055
"""Times of sockets are told in whole ticks of the kernel's clock, of 4 ms mostly."""
_SHORT_SECONDS = 0.02
"""A silence that may end in the next moment says nothing of either side."""
LATEST_ACK_SECONDS = 0.25
"""The longest delay of an acknowledgement, and some more; the way there and back comes on top."""
_LARGEST_ASK_BYTES = 1200
"""Of a segment on average: more are uploads, which are acknowledged as they come."""
_MOSTLY = 0.5
_SEVERAL = 1.5
_AT_FIRST = Segments(pure_received=3, pure_sent=2, data_received=1, data_sent=1)
"""What the handshake and the first request make, and what a new connection acknowledges fast."""


class _Seen(NamedTuple):
    segments: Segments | None
    waits: bool | None


class TurnTaking:
    """What earlier looks saw of each connection."""

    def __init__(self) -> None:
        self._before: dict[int, _Seen] = {}
        self._now: dict[int, _Seen] = {}

    def begin_look(self) -> None:
        """What is not seen again is gone."""
        self._before, self._now = self._now, {}

    def waits(self, one: TcpSocket, *, we_ask: bool) -> bool | None:
        """Whether who asks on this connection waits for the answer; None where nothing tells.

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
    """By the times of the last data each way and of the last acknowledgement."""
    sent, received, acked = one.sent_ago_seconds, one.received_ago_seconds, one.acked_ago_seconds
    if sent is None or received is None:
        return False
    # The first request may go in the tick of the handshake: then the bytes tell.
    if not one.has_sent or not one.has_received:
        return one.has_sent is we_ask and one.has_received is not we_ask
    if abs(sent - received) > CLOCK_SECONDS:
        return (sent < received) is we_ask
    if one.unsent_bytes:
        return we_ask  # What came after it would have acknowledged it.
    latest = LATEST_ACK_SECONDS + 2 * (one.round_trip_seconds or 0.0)
    if acked is not None and CLOCK_SECONDS < received - acked <= latest:
        return we_ask  # What was sent last was acknowledged after what came last.
    return None


def _by_acknowledgements(one: TcpSocket, before: _Seen | None, *, we_ask: bool) -> bool | None:
    """By segments that only acknowledge, since the look before or since the beginning."""
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
