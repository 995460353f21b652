"""HTTP/2 of a server in fits and starts: settings and answers come when it likes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fitful_wire import Wire, spread, text
from http2_peer import DATA, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame

PING, WINDOW_UPDATE, CONTINUATION, UNKNOWN = 6, 8, 9, 0x77
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
MOST_STREAMS, FIRST_WINDOW, FRAME_BYTES = 3, 4, 5
REFUSED, CANCELLED = 7, 8
DEFAULT_WINDOW, LONGEST_FRAME = 65_535, 16_384
STATUS_200 = b"\x88"
WHOLE = {0x82: ("method", "GET"), 0x86: ("scheme", "http"), 0x87: ("scheme", "https")}
NAMES = {1: "authority", 2: "method", 4: "path"}


def fields_of(block: bytes) -> dict[str, str]:
    """What the probe writes: nothing but literals, and some of the static table (RFC 7541)."""
    rest, found = block, {}

    def string() -> str:
        nonlocal rest
        size = rest[0]
        assert size < 127
        said, rest = rest[1 : 1 + size], rest[1 + size :]
        return said.decode()

    while rest:
        first, rest = rest[0], rest[1:]
        if first in WHOLE:
            found.update([WHOLE[first]])
        else:
            name = NAMES[first] if first else string()
            found[name] = string()
    return found


@dataclass
class Stream:
    """A request and its answer."""

    number: int
    may_send: int
    """What the client lets the server send."""
    answer: Iterator[tuple[int, int, bytes]]
    says: bool = False
    """Whether the answer has begun."""
    waiting: tuple[int, int, bytes] | None = None
    """A frame that waits for a window."""


class Http2:
    """One connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._came = bytearray()
        self._has_preface = False
        self._streams: dict[int, Stream] = {}
        self._may_send = DEFAULT_WINDOW
        self._their_first = DEFAULT_WINDOW
        self._most: int | None = None
        self._unheard: list[dict[int, int]] = []
        """SETTINGS that were not acknowledged."""
        self._pings = 0
        self._highest = 0
        self._served = 0
        self._is_leaving = False
        self._changes = 0
        self._turn = 0
        temper = wire.temper
        first = {}
        if temper.most_streams is not None:
            first[MOST_STREAMS] = temper.most_streams
        if temper.frame_bytes is not None:
            first[FRAME_BYTES] = temper.frame_bytes
        self._speaks = False
        wire.later(wire.maybe_rest(0.3), lambda: self._begin(first))

    def _begin(self, settings: dict[int, int]) -> None:
        """A server's SETTINGS come before all else that it says."""
        self._set(settings)
        self._speaks = True
        self.feed(b"")
        self._wire.later(self._wire.maybe_rest(0.5), self._say_more)

    def _say(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self._wire.out += frame(kind, flags, stream, payload)

    def _set(self, settings: dict[int, int]) -> None:
        self._unheard.append(settings)
        said = b"".join(struct.pack(">HI", *pair) for pair in settings.items())
        self._say(SETTINGS, 0, 0, said)

    def _fault(self, what: str) -> None:
        self._wire.tally.faults.append(what)

    # What comes.

    def feed(self, came: bytes) -> None:
        self._came += came
        if not self._speaks:
            return
        if not self._has_preface:
            if len(self._came) < len(PREFACE):
                return
            if not self._came.startswith(PREFACE):
                self._fault("no preface")
            del self._came[: len(PREFACE)]
            self._has_preface = True
        while len(self._came) >= 9:
            size = int.from_bytes(self._came[:3], "big")
            if len(self._came) < 9 + size:
                break
            kind, flags = self._came[3:5]
            stream = int.from_bytes(self._came[5:9], "big")
            payload = bytes(self._came[9 : 9 + size])
            del self._came[: 9 + size]
            if size > LONGEST_FRAME:
                self._fault(f"a frame of {size} bytes")
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if kind == HEADERS:
            self._open(number, flags, fields_of(payload))
        elif kind == DATA:
            self._fault("a body")
        elif kind == RST_STREAM:
            self._streams.pop(number, None)
        elif kind == WINDOW_UPDATE and number == 0:
            self._may_send += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE and stream is not None:
            stream.may_send += int.from_bytes(payload, "big")
        elif number == 0:
            self._take_of_connection(kind, flags, payload)

    def _take_of_connection(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == SETTINGS and flags:
            self._heard(self._unheard.pop(0))
        elif kind == SETTINGS:
            told = dict(struct.iter_unpack(">HI", payload))
            self._their_first = told.get(FIRST_WINDOW, self._their_first)
            self._say(SETTINGS, 1, 0)
        elif kind == PING:
            self._pings -= 1
            if not flags or payload != b"are here":
                self._fault("a PING of its own")
        elif kind == GOAWAY:
            self._fault(f"the client leaves: {payload!r}")

    def _heard(self, settings: dict[int, int]) -> None:
        self._most = settings.get(MOST_STREAMS, self._most)

    def _open(self, number: int, flags: int, fields: dict[str, str]) -> None:
        wire, dice = self._wire, self._wire.dice
        if self._is_leaving and number > self._last:
            return
        self._highest = number
        self._served += 1
        limits = [self._most, *(it.get(MOST_STREAMS) for it in self._unheard)]
        known = [limit for limit in limits if limit is not None]
        is_above = self._most is not None and len(self._streams) >= max(known)
        if is_above or dice.random() < wire.temper.refuses:
            wire.tally.given["refused"] += 1
            self._say(RST_STREAM, 0, number, struct.pack(">I", REFUSED))
            return
        size = int(fields["path"][1:])
        stream = Stream(number, self._their_first, iter(()))
        self._streams[number] = stream
        if dice.random() < wire.temper.drops:
            self._drop(stream)
            return
        stream.answer = self._answer(stream, size)
        if not flags & END_STREAM:
            self._fault("a request that does not end with its head")
        wire.tally.whole += 1

        def say() -> None:
            stream.says = True

        wire.later(wire.maybe_rest(wire.temper.delays), say)
        if wire.temper.goaway_every and dice.random() * wire.temper.goaway_every < 1:
            self._leave()

    def _drop(self, stream: Stream) -> None:
        wire = self._wire
        wire.tally.given["drop"] += 1

        def drop() -> None:
            if wire.dice.random() < 0.3:
                wire.reset()
            elif self._streams.pop(stream.number, None):
                self._say(RST_STREAM, 0, stream.number, struct.pack(">I", CANCELLED))

        wire.later(wire.maybe_rest(0.5), drop)

    def _leave(self) -> None:
        """GOAWAY, now and then with streams that were not looked at."""
        if self._is_leaving:
            return
        self._is_leaving = True
        numbers = sorted(self._streams)
        # What was answered in part was looked at.
        begun = [it.number for it in self._streams.values() if it.says]
        least = max(begun, default=0)
        last = [number for number in numbers if number >= least] or [least]
        self._last = self._wire.dice.choice(last) if self._wire.dice.random() < 0.5 else numbers[-1]
        for number in numbers:
            if number > self._last:
                del self._streams[number]
                self._wire.tally.given["unseen"] += 1
        self._say(GOAWAY, 0, 0, struct.pack(">II", self._last, 0))

    # What is said.

    def _answer(self, stream: Stream, size: int) -> Iterator[tuple[int, int, bytes]]:
        """The frames of an answer; it is asked for more once it may begin."""
        temper, dice = self._wire.temper, self._wire.dice
        yield HEADERS, END_HEADERS, STATUS_200
        place = 0
        while place < size:
            most = spread(dice, max(1, size // 200), LONGEST_FRAME) if temper.parts else 16_000
            part = text(place, min(most, size - place))
            place += len(part)
            if temper.parts and dice.random() < 0.2 and len(part) < 16_000:
                filling = dice.randint(0, 200)
                yield DATA, PADDED, bytes([filling]) + part + bytes(filling)
            else:
                yield DATA, 0, part
        yield DATA, END_STREAM, b""

    def make(self) -> None:
        """A frame of each stream in turn, as far as windows let them."""
        is_moving = bool(self._streams)
        while is_moving and len(self._wire.out) < 1 << 15:
            is_moving = False
            for stream in list(self._streams.values()):
                is_moving |= stream.says and self._go_on(stream)

    def _go_on(self, stream: Stream) -> bool:
        if stream.waiting is None:
            stream.waiting = next(stream.answer, None)
        if stream.waiting is None:
            return False
        kind, flags, payload = stream.waiting
        if kind == DATA:
            room = min(stream.may_send, self._may_send)
            if len(payload) > room:
                if room <= 0:
                    return False
                if flags & PADDED:
                    flags, payload = 0, payload[1 : len(payload) - payload[0]]
                rest = payload[room:]
                payload = payload[:room]
                self._send_part(stream, payload)
                stream.waiting = (DATA, flags, rest) if rest else None
                return True
            stream.may_send -= len(payload)
            self._may_send -= len(payload)
        if kind == HEADERS and self._wire.temper.parts:
            self._say(HEADERS, 0, stream.number, payload[:1])
            self._say(CONTINUATION, END_HEADERS, stream.number, payload[1:])
        else:
            self._say(kind, flags, stream.number, payload)
        stream.waiting = None
        if kind == DATA and flags & END_STREAM:
            del self._streams[stream.number]
        return True

    def _send_part(self, stream: Stream, part: bytes) -> None:
        stream.may_send -= len(part)
        self._may_send -= len(part)
        self._say(DATA, 0, stream.number, part)

    # Settings, and what is of no matter.

    def _say_more(self) -> None:
        """Say something else now and then."""
        wire, dice, temper = self._wire, self._wire.dice, self._wire.temper
        what = dice.random()
        if what < 0.1 and self._changes < temper.changes:
            self._changes += 1
            self._change()
        elif what < 0.2 and temper.pings and self._pings == 0:
            for _ in range(dice.randint(1, temper.pings)):
                self._pings += 1
                self._say(PING, 0, 0, b"are here")
        elif what < 0.25 and temper.pings:
            self._say(UNKNOWN, 0, 0, b"of no matter")
        wire.later(0.02 + wire.maybe_rest(0.2), self._say_more)

    def _change(self) -> None:
        """Another number of streams, or a window of no matter to who sends no body."""
        dice = self._wire.dice
        if self._wire.temper.most_streams is not None and dice.random() < 0.5:
            most = dice.choice([0, 1, 2, 5, 50])
            self._set({MOST_STREAMS: most})
            if most == 0:
                more = dice.randint(1, 10)
                self._wire.later(
                    self._wire.maybe_rest(1.0), lambda: self._set({MOST_STREAMS: more})
                )
        else:
            self._set({FIRST_WINDOW: dice.choice([0, 1, 1000, 16_384, 65_535, 1 << 20])})
