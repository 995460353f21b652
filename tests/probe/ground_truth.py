"""A web server whose behaviour is known in closed form: the truth that the probe is held to.

    python ground_truth.py [--body N] [--stall S --every S] [--never N] [--workers PID=WEIGHT,…]
                           [--backlog N --accept-after S] [--delay SHAPE:NUMBERS]
                           [--hold PATH --hold-from S --hold-for S] [--log]
                           [--cpu N] [--realtime]

One thread on epoll, in a process of its own, so that it can be pinned and stopped (SIGSTOP).
Prints the port that it listens on; on SIGTERM one JSON line of what it did: ``requests``,
``connections``, ``by_connection`` (requests of each, in the order in which they were opened),
``by_worker``, ``unanswered``, and ``own_seconds`` (p50, p99: from the event that
told of a request to its whole answer being with the kernel, delays included). With ``--log``
these, and the delays, count from the request's arrival in the kernel, and there are also
``each_own_seconds`` (of every answer), ``arrived_nanoseconds`` (of every request, by the wall
clock) and ``unstamped`` (requests whose arrival the kernel did not tell). Standard library alone.

Used by the tests beside it and by ``benchmarks/conformance.py``.
"""

import argparse
import heapq
import itertools
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

_END = b"\r\n\r\n"
_SO_TIMESTAMPNS = 35
"""Of Linux; Python's ``socket`` does not name it. The message that comes has the same number."""
_TIMESPEC = struct.Struct("qq")
_SPIN_SECONDS = 0.0015
"""epoll waits whole milliseconds: the rest of a delay is spun away."""

_SHAPES: dict[str, Callable[..., Callable[[random.Random], float]]] = {
    "constant": lambda seconds: lambda _: seconds,
    "bimodal": lambda short, long, share: lambda dice: long if dice.random() < share else short,
    "lognormal": lambda median, sigma: lambda dice: median * dice.lognormvariate(0.0, sigma),
    "pareto": lambda least, shape: lambda dice: least * dice.paretovariate(shape),
}
"""Delays in seconds by the numbers of each shape."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--body", type=int, default=1000, help="bytes of every answer")
    parser.add_argument("--stall", type=float, default=0.0, help="seconds that it stands still …")
    parser.add_argument("--every", type=float, default=0.0, help="… at the start of so many")
    parser.add_argument("--stall-from", type=float, default=None, help="from then on for good")
    parser.add_argument("--never", type=int, default=0, help="every so manieth gets no answer")
    parser.add_argument("--workers", default="", help="PID=WEIGHT,…: who says to have answered")
    parser.add_argument("--backlog", type=int, default=4096)
    parser.add_argument("--accept-after", type=float, default=0.0)
    parser.add_argument(
        "--delay", type=_read_shape, default=None,
        help="constant:S, bimodal:SHORT,LONG,SHARE, lognormal:MEDIAN,SIGMA or pareto:LEAST,SHAPE",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the delays")
    parser.add_argument("--hold", default="", help="path whose requests wait …")
    parser.add_argument("--hold-from", type=float, default=0.0, help="… if they come from then …")
    parser.add_argument("--hold-for", type=float, default=0.0, help="… until so much later")
    parser.add_argument("--log", action="store_true", help="tell of each request")
    parser.add_argument("--cpu", type=int, default=None)
    parser.add_argument("--realtime", action="store_true", help="ahead of ordinary processes")
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    Server(options).run()


class Server:
    """The server; times count from its first connection."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=options.backlog)
        self._listener.setblocking(False)
        self._poller = select.epoll()
        self._open: dict[int, tuple[socket.socket, bytearray]] = {}
        self._body = b"x" * options.body
        self._workers = _deal(options.workers)
        self._by_worker: Counter[str] = Counter()
        self._answers: dict[str, bytes] = {}
        self._own: list[float] = []
        self._requests = self._unanswered = 0
        self._numbers: dict[int, int] = {}
        self._by_connection: list[int] = []
        self._dice = random.Random(options.seed)
        self._hold = f" {options.hold} ".encode() if options.hold else b""
        self._order = itertools.count()
        self._held: list[tuple[float, int, float, socket.socket]] = []
        self._arrived: list[int] = []
        self._unstamped = 0
        if options.log:
            # The sockets that it accepts inherit it.
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._start: float | None = None
        self._ended = False

    def run(self) -> None:
        """Serve until SIGTERM, then say what was done."""
        signal.signal(signal.SIGTERM, self._end)
        _say(self._listener.getsockname()[1])
        if self._options.accept_after:
            select.select([self._listener], [], [])
            time.sleep(self._options.accept_after)
        self._poller.register(self._listener, select.EPOLLIN)
        while not self._ended:
            events = self._poller.poll(self._patience())
            self._stand_still()
            for descriptor, _ in events:
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._serve(descriptor)
            self._release()
        _say(json.dumps(self._told()))

    def _end(self, *_: object) -> None:
        self._ended = True

    def _stand_still(self) -> None:
        if self._start is None:
            return
        passed = time.monotonic() - self._start
        if self._options.stall_from is not None and passed >= self._options.stall_from:
            while not self._ended:
                time.sleep(0.05)
        if self._options.every:
            left = self._options.stall - passed % self._options.every
            if left > 0:
                time.sleep(left)

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except BlockingIOError:
                return
            if self._start is None:
                # The first stall is a whole period away.
                self._start = time.monotonic() - self._options.stall
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._numbers[stream.fileno()] = len(self._by_connection)
            self._by_connection.append(0)
            self._open[stream.fileno()] = (stream, bytearray())
            self._poller.register(stream, select.EPOLLIN)

    def _serve(self, descriptor: int) -> None:
        begun = time.perf_counter()
        stream, buffer = self._open[descriptor]
        try:
            data, age = self._receive(stream)
        except BlockingIOError:
            return
        except OSError:
            data, age = b"", 0.0
        if not data:
            self._poller.unregister(descriptor)
            del self._open[descriptor]
            stream.close()
            return
        begun -= age
        buffer += data
        while (end := buffer.find(_END)) >= 0:
            delay = self._delay(buffer)
            del buffer[: end + len(_END)]
            if delay is None:
                self._answer(stream)
                self._own.append(time.perf_counter() - begun)
            else:
                heapq.heappush(self._held, (begun + delay, next(self._order), begun, stream))

    def _receive(self, stream: socket.socket) -> tuple[bytes, float]:
        """What came, and for how many seconds the kernel had it (with ``--log``)."""
        if not self._options.log:
            return stream.recv(65536), 0.0
        now = time.time_ns()
        data, messages, _, _ = stream.recvmsg(65536, 64)
        for level, kind, value in messages:
            if data and (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, nanoseconds = _TIMESPEC.unpack(value)
                self._arrived.append(seconds * 1_000_000_000 + nanoseconds)
                return data, max(now - self._arrived[-1], 0) / 1e9
        self._unstamped += bool(data)
        return data, 0.0

    def _delay(self, request: bytearray) -> float | None:
        """How long to keep a request back; None to answer at once."""
        if self._hold and self._hold in request and self._start is not None:
            into = time.monotonic() - self._start - self._options.hold_from
            if 0 <= into < self._options.hold_for:
                return self._options.hold_for - into
        return None if self._options.delay is None else self._options.delay(self._dice)

    def _patience(self) -> float:
        """How long to wait for events."""
        if not self._held:
            return 0.2
        return min(max(self._held[0][0] - time.perf_counter() - _SPIN_SECONDS, 0.0), 0.2)

    def _release(self) -> None:
        """Answer those that were kept back long enough."""
        while self._held and self._held[0][0] <= time.perf_counter():
            _, _, begun, stream = heapq.heappop(self._held)
            if stream.fileno() >= 0:
                self._answer(stream)
                self._own.append(time.perf_counter() - begun)

    def _answer(self, stream: socket.socket) -> None:
        self._requests += 1
        self._by_connection[self._numbers[stream.fileno()]] += 1
        if self._options.never and self._requests % self._options.never == 0:
            self._unanswered += 1
            return
        worker = next(self._workers)
        self._by_worker[worker] += 1
        answer = self._answers.get(worker) or self._render(worker)
        sent = stream.send(answer)
        if sent < len(answer):
            stream.setblocking(True)
            stream.sendall(answer[sent:])
            stream.setblocking(False)

    def _render(self, worker: str) -> bytes:
        name = f"X-Probe-Worker: {worker}\r\n" if worker else ""
        head = f"HTTP/1.1 200 OK\r\n{name}Content-Length: {len(self._body)}\r\n\r\n"
        self._answers[worker] = head.encode() + self._body
        return self._answers[worker]

    def _told(self) -> dict[str, object]:
        own = sorted(self._own) or [0.0]
        log = {
            "arrived_nanoseconds": self._arrived,
            "unstamped": self._unstamped,
            "each_own_seconds": self._own,
        }
        return {
            **(log if self._options.log else {}),
            "requests": self._requests,
            "connections": len(self._by_connection),
            "by_connection": self._by_connection,
            "unanswered": self._unanswered,
            "by_worker": dict(self._by_worker),
            "own_seconds": {"p50": own[len(own) // 2], "p99": own[len(own) * 99 // 100]},
        }


def _read_shape(text: str) -> Callable[[random.Random], float]:
    name, _, numbers = text.partition(":")
    return _SHAPES[name](*map(float, numbers.split(",")))


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _deal(weights: str) -> Iterator[str]:
    """Who answers, in turn: of PID=WEIGHT,… each as often as its weight."""
    parts = [part.split("=") for part in weights.split(",") if part]
    turns = [pid for pid, weight in parts for _ in range(int(weight))]
    return itertools.cycle(turns or [""])


if __name__ == "__main__":
    main()
