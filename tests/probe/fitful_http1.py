"""HTTP/1.1 of a server in fits and starts."""

from __future__ import annotations

from collections.abc import Iterator

from fitful_wire import Wire, spread, text


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

    def _talk(self) -> Iterator[None]:
        wire, temper, dice = self._wire, self._wire.temper, self._wire.dice
        while True:
            yield from self._until(b"\r\n\r\n")
            head = self._taken
            path = head.split(b" ")[1]
            lines = head.lower().split(b"\r\n")[1:-2]
            fields = dict(line.split(b": ", 1) for line in lines)
            is_last = dice.random() < temper.closes or fields.get(b"connection") == b"close"
            if dice.random() < temper.drops:
                wire.tally.given["drop"] += 1
                wire.reset()
                return
            yield from self._rest(temper.delays)
            wire.tally.whole += 1
            self._pieces.extend(self._pieces_of(int(path[1:]), is_last))
            if is_last:
                self.make_all()
                wire.is_over = True
                return

    def make_all(self) -> None:
        self._wire.out += b"".join(self._pieces)
        self._pieces.clear()

    def _pieces_of(self, size: int, is_last: bool) -> Iterator[bytes]:
        """An answer: its head, then its body."""
        wire = self._wire
        fields = [f"Content-Length: {size}"]
        if wire.temper.parts:
            fields = ["Transfer-Encoding: chunked"]
        if is_last:
            fields.append("Connection: close")
        head = "HTTP/1.1 200 OK\r\n" + "".join(f"{line}\r\n" for line in fields)
        yield head.encode() + b"\r\n"
        if not wire.temper.parts:
            yield text(0, size)
            return
        place = 0
        while place < size:
            count = min(size - place, spread(wire.dice, max(1, size // 200), 40_000))
            yield f"{count:x}\r\n".encode() + text(place, count) + b"\r\n"
            place += count
        yield b"0\r\n\r\n"
