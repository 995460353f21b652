"""HTTP/1.1 of a server in fits and starts."""

from __future__ import annotations

from collections.abc import Iterator

from fitful_wire import Wire, spread, take_text, text


class Http1:
    """One connection: requests one after another."""

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
