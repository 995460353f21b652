"""HTTP/1.1 and WebSockets of a server in fits and starts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from fitful_wire import Wire, spread, take_text, text

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CLOSE, PING, PONG = 8, 9, 10


class Http1:
    """One connection: requests one after another, until an upgrade."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._came = bytearray()
        self._steps = self._talk()
        self._is_awake = True
        self._pieces: list[bytes] = []
        next(self._steps)

    def feed(self, came: bytes) -> None:
        self._came += came
        if self._is_awake:
            next(self._steps, None)

    def make(self) -> None:
        while self._pieces and len(self._wire.out) < 1 << 16:
            self._wire.out += self._pieces.pop(0)

    def _until(self, end: bytes) -> Iterator[None]:
        while end not in self._came:
            yield
        at = self._came.index(end) + len(end)
        self._taken = bytes(self._came[:at])
        del self._came[:at]

    def _rest(self, chance: float) -> Iterator[None]:
        """Let time pass, in which more may come."""
        seconds = self._wire.maybe_rest(chance)
        if seconds > 0:
            self._is_awake = False
            self._wire.later(seconds, self._wake)
            yield

    def _wake(self) -> None:
        self._is_awake = True
        next(self._steps, None)

    def _text(self, place: int, count: int) -> Iterator[None]:
        left = count
        while left:
            while not self._came:
                yield
            piece = bytes(self._came[:left])
            del self._came[: len(piece)]
            take_text(self._wire.tally, place + count - left, piece)
            left -= len(piece)

    def _body(self, fields: dict[bytes, bytes]) -> Iterator[None]:
        self._length = 0
        if b"transfer-encoding" not in fields:
            self._length = int(fields.get(b"content-length", b"0"))
            yield from self._text(0, self._length)
            return
        while True:
            yield from self._until(b"\r\n")
            size = int(self._taken, 16)
            yield from self._text(self._length, size)
            self._length += size
            yield from self._until(b"\r\n")
            if self._taken != b"\r\n":
                self._wire.tally.faults.append("a chunk that ends otherwise")
            if size == 0:
                return

    def _talk(self) -> Iterator[None]:
        wire, temper, dice = self._wire, self._wire.temper, self._wire.dice
        while True:
            yield from self._until(b"\r\n\r\n")
            head = self._taken
            path = head.split(b" ")[1]
            lines = head.lower().split(b"\r\n")[1:-2]
            fields = dict(line.split(b": ", 1) for line in lines)
            if b"sec-websocket-key" in fields:
                yield from self._upgrade(head)
                return
            is_last = dice.random() < temper.closes or fields.get(b"connection") == b"close"
            if b"expect" in fields:
                yield from self._rest(0.5)
                wire.out += b"HTTP/1.1 100 Continue\r\n\r\n"
            if dice.random() < temper.drops:
                wire.tally.given["drop"] += 1
                yield from self._text(0, min(1000, int(fields.get(b"content-length", b"0"))))
                wire.reset()
                return
            has_body = b"content-length" in fields or b"transfer-encoding" in fields
            if has_body and dice.random() < temper.early:
                wire.tally.given["early"] += 1
                wire.out += b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                while True:  # until the client closes
                    self._came.clear()
                    yield
            answer = self._pieces_of(int(path[1:]), temper.answers == "end", is_last)
            if temper.answers == "head":
                self._pieces.append(next(answer))
                yield from self._body(fields)
            else:
                yield from self._body(fields)
                yield from self._rest(temper.delays)
                self._pieces.append(next(answer))
            wire.tally.whole += 1
            self._pieces.extend(answer)
            if is_last:
                self.make_all()
                wire.is_over = True
                return

    def make_all(self) -> None:
        self._wire.out += b"".join(self._pieces)
        self._pieces.clear()

    def _pieces_of(self, size: int, tells: bool, is_last: bool) -> Iterator[bytes]:
        """An answer: its head, then its body."""
        wire = self._wire
        fields = [f"Content-Length: {size}"]
        if wire.temper.parts:
            fields = ["Transfer-Encoding: chunked"]
        if is_last:
            fields.append("Connection: close")
        head = "HTTP/1.1 200 OK\r\n" + "".join(f"{line}\r\n" for line in fields)
        if not tells:
            yield head.encode() + b"\r\n"
        else:
            yield f"{head}X-Upload-Bytes: {self._length}\r\n\r\n".encode()
        if not wire.temper.parts:
            yield text(0, size)
            return
        place = 0
        while place < size:
            count = min(size - place, spread(wire.dice, max(1, size // 200), 40_000))
            yield f"{count:x}\r\n".encode() + text(place, count) + b"\r\n"
            place += count
        yield b"0\r\n\r\n"

    def _upgrade(self, head: bytes) -> Iterator[None]:
        """A WebSocket that sends back what it gets (RFC 6455)."""
        wire = self._wire
        key = next(
            line.split(b": ")[1]
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"sec-websocket-key")
        )
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())  # noqa: S324
        yield from self._rest(wire.temper.delays)
        wire.out += (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        gathered: list[bytes] = []
        while True:
            yield from self._frame()
            opcode, payload = self._got
            if opcode == CLOSE:
                self._pieces.append(frame(CLOSE, payload))
                self.make_all()
                wire.is_over = True
                return
            if opcode == PONG:
                continue
            wire.tally.whole += 1
            wire.tally.body_bytes += len(payload)
            yield from self._rest(wire.temper.delays)
            gathered += self._echo(opcode, payload)
            if wire.tally.whole >= wire.temper.gathers:
                self._pieces += gathered
                gathered.clear()

    def _echo(self, opcode: int, payload: bytes) -> Iterator[bytes]:
        wire = self._wire
        for _ in range(wire.dice.randint(0, wire.temper.pings)):
            yield frame(PING, b"here")
        if not wire.temper.parts or not payload:
            yield frame(opcode, payload)
            return
        place = 0
        while place < len(payload):
            count = spread(wire.dice, max(1, len(payload) // 20), len(payload))
            part = payload[place : place + count]
            kind = opcode if place == 0 else 0
            place += count
            yield frame(kind, part, is_last=place >= len(payload))

    def _frame(self) -> Iterator[None]:
        yield from self._bytes(2)
        opcode, size = self._taken[0] & 15, self._taken[1] & 127
        if not (self._taken[0] & 0x80 and self._taken[1] & 0x80):
            self._wire.tally.faults.append("a frame that is no whole message, or not masked")
        if size > 125:
            yield from self._bytes(2 if size == 126 else 8)
            size = int.from_bytes(self._taken, "big")
        yield from self._bytes(4)
        mask = self._taken
        yield from self._bytes(size)
        masks = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        self._got = opcode, (int.from_bytes(self._taken, "big") ^ masks).to_bytes(size, "big")

    def _bytes(self, count: int) -> Iterator[None]:
        while len(self._came) < count:
            yield
        self._taken = bytes(self._came[:count])
        del self._came[:count]


def frame(opcode: int, payload: bytes, *, is_last: bool = True) -> bytes:
    size = len(payload)
    head = bytes([opcode | (0x80 if is_last else 0)])
    if size < 126:
        return head + bytes([size]) + payload
    if size < 1 << 16:
        return head + bytes([126]) + size.to_bytes(2, "big") + payload
    return head + bytes([127]) + size.to_bytes(8, "big") + payload
