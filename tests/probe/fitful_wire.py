"""A connection of a server that reads and writes in fits and starts, at its two ends."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

PERIOD = 1 << 16
TEXT = bytes(((place * 0x9E3779B1) & 0xFFFFFFFF) >> 24 for place in range(PERIOD)) * 2
"""What answers are made of, again and again; twice."""

WAITING_BYTES = 32 << 10
"""Of an answer no more is made while so much waits for the client."""


def text(place: int, count: int) -> bytes:
    """So many bytes of a body from a place on."""
    first = place % PERIOD
    whole = TEXT * (count // PERIOD + 1)
    return whole[first : first + count]


@dataclass(frozen=True)
class Temper:
    """How a server is: what it is told by whoever draws it."""

    seed: int
    unix: str | None = None
    tls: list[str] | None = None
    """Files of the certificate and its key."""
    rests_seconds: float = 1.0
    """All rests of all connections together."""
    longest_rest_seconds: float = 0.2
    read_bytes: tuple[int, int] = (1000, 65536)
    """Taken from the socket at a time: from, to."""
    read_rests: float = 0.1
    """Chance of a rest after that."""
    write_bytes: tuple[int, int] = (1000, 65536)
    write_rests: float = 0.1
    receive_buffer_bytes: int | None = None
    send_buffer_bytes: int | None = None
    delays: float = 0.3
    """Chance that an answer waits."""
    parts: bool = False
    """Whether answers go in many parts: chunks, frames, fragments."""
    closes: float = 0.0
    """Chance that HTTP/1.1 says with an answer that it closes the connection."""
    drops: float = 0.0
    """Chance that a request is broken off: reset, or the connection closed."""


class Rests:
    """What the connections of a server may rest, all together."""

    def __init__(self, seconds: float, longest: float) -> None:
        self.left, self._longest = seconds, longest
        self._lock = threading.Lock()

    def take(self, dice: random.Random) -> float:
        wanted = self._longest * dice.random() ** 2
        with self._lock:
            taken = min(wanted, self.left)
            self.left -= taken
        return taken


@dataclass
class Tally:
    """What came over a connection, and what was wrong with it."""

    whole: int = 0
    """Requests of which all came."""
    faults: list[str] = field(default_factory=list)
    given: Counter[str] = field(default_factory=Counter)
    """Failures that the client has a right to."""


def spread(dice: random.Random, least: int, most: int) -> int:
    """A number between two, as likely small as large."""
    return min(most, int(least * (most / least) ** dice.random() + dice.random()))


class Talk(Protocol):
    """What is said over a connection."""

    def feed(self, came: bytes) -> None: ...

    def make(self) -> None:
        """More to be sent, where there is."""


class Wire:
    """One connection: bytes in and out, by the server's temper."""

    def __init__(
        self, peer: socket.socket, temper: Temper, dice: random.Random, rests: Rests
    ) -> None:
        peer.setblocking(False)
        self._peer = peer
        self.temper, self.dice, self.rests = temper, dice, rests
        self.tally = Tally()
        self.out = bytearray()
        self.is_over = False
        """It is closed once all is sent."""
        self._is_reset = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._raw = bytearray()
        self._tls: ssl.SSLObject | None = None

    def encrypt(self, context: ssl.SSLContext) -> None:
        self._inside, self._outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._inside, self._outside, server_side=True)
        self._stands = False

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        moment = time.monotonic() + seconds
        heapq.heappush(self._timers, (moment, next(self._numbers), call))

    def maybe_rest(self, chance: float) -> float:
        return self.rests.take(self.dice) if self.dice.random() < chance else 0.0

    def reset(self) -> None:
        """End the connection at once, with a reset where that is possible."""
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._is_reset = True

    def run(self, talk: Talk) -> None:
        """Until either end closes it."""
        read_at = write_at = 0.0
        poll = select.poll()
        poll.register(self._peer, 0)
        while True:
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            if self._is_reset:
                return
            if len(self.out) < WAITING_BYTES:
                talk.make()
            has_out = bool(self.out or self._raw)
            if self.is_over and not has_out:
                return
            wanted = select.POLLIN if read_at <= now else 0
            wanted |= select.POLLOUT if has_out and write_at <= now else 0
            moments = [self._timers[0][0]] if self._timers else []
            moments += [at for at in (read_at, write_at) if at > now]
            poll.modify(self._peer, wanted)
            left = max(min(moments) - time.monotonic(), 0.0) * 1000 + 0.5 if moments else None
            events = sum(event for _, event in poll.poll(left))
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                if not self._read(talk):
                    return
                read_at = time.monotonic() + self.maybe_rest(self.temper.read_rests)
            if events & select.POLLOUT:
                self._write()
                write_at = time.monotonic() + self.maybe_rest(self.temper.write_rests)

    def _read(self, talk: Talk) -> bool:
        try:
            came = self._peer.recv(spread(self.dice, *self.temper.read_bytes))
        except BlockingIOError:
            return True
        if not came:
            return False
        if self._tls is None:
            talk.feed(came)
            return True
        self._inside.write(came)
        try:
            if not self._stands:
                self._tls.do_handshake()
                self._stands = True
            while more := self._tls.read(1 << 16):
                talk.feed(more)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            return False
        self._raw += self._outside.read()
        return True

    def _write(self) -> None:
        count = spread(self.dice, *self.temper.write_bytes)
        if self._tls is not None:
            if self._stands and not self._raw and self.out:
                own = bytes(self.out[:count])
                del self.out[: self._tls.write(own)]
                self._raw += self._outside.read()
            count = len(self._raw)
        waiting = self.out if self._tls is None else self._raw
        with contextlib.suppress(BlockingIOError):
            del waiting[: self._peer.send(waiting[:count])]
