"""Loop turns by tracefs alone: our own instance, its events as text, read and counted here.

Every event costs a line to read, so there is a limit: past so many events in a second tracing
stops until the next one. The turns seen are then a sample of whole stretches of time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping

from nginx_tune.observe.calls import threads_in_turns
from nginx_tune.observe.parse_trace_pipe import TurnReader
from nginx_tune.observe.tracefs import TraceFs, TraceInstance
from nginx_tune.observe.turn_counts import TurnCounts

EVENTS_PER_SECOND = 20_000
"""About 5 % of a CPU to read; a server this busy shows its turns in a tenth of a second."""
_POLL_SECONDS = 0.02
_BUFFER_KIB = 1024
"""For each CPU: a poll's worth of the busiest server."""
_CALLS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")


class TracefsTurns:
    """Traces the turns of some threads; ids are those of the initial process namespace."""

    method = "tracefs"
    pid = None
    """There is no other process: the cost is this one's."""

    def __init__(self, threads: Mapping[int, int], tracefs: TraceFs) -> None:
        """``threads`` are the kernel's own ids by those that we see.

        Errors: OSError when it cannot be traced this way.
        """
        self._threads = dict(threads)
        self._instance = TraceInstance(tracefs)
        self._spans: list[TurnCounts] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._rest = b""
        try:
            ids = list(threads.values())
            self._instance.watch_calls(tracefs, ids, _CALLS, buffer_kib=_BUFFER_KIB)
            self._instance.write("events/sched/sched_switch/enable", "1")
            self._instance.write("events/sched/sched_wakeup/enable", "1")
            self._reader = TurnReader(began_nanoseconds=time.monotonic_ns())
            self._instance.write("tracing_on", "1")
        except OSError:
            self._instance.remove()
            raise
        self._on = True
        self._second_ends = self._started = self._on_since = time.monotonic()
        self._traced = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="trace-pipe")
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            with self._lock:
                self._read()
                self._hold_back()

    def _read(self) -> None:
        lines = (self._rest + self._instance.read()).split(b"\n")
        self._rest = lines.pop()
        self._reader.read([line.decode("ascii", "replace") for line in lines])

    def _hold_back(self) -> None:
        """Stop tracing when this second's events are used up; go on when the next begins."""
        now = time.monotonic()
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._reader.events = 0
            if not self._on:
                self._reader.forget()
                self._switch(on=True)
        elif self._on and self._reader.events > EVENTS_PER_SECOND:
            self._switch(on=False)
            self._read()
            self._reader.forget()
            self._reader.events = EVENTS_PER_SECOND + 1

    def _switch(self, *, on: bool) -> None:
        with contextlib.suppress(OSError):
            self._instance.write("tracing_on", "1" if on else "0")
        now = time.monotonic()
        if self._on:
            self._traced += now - self._on_since
        self._on, self._on_since = on, now

    def mark(self) -> None:
        """End a stretch of time."""
        with self._lock:
            self._read()
            self._end_span()

    def _end_span(self) -> None:
        now = time.monotonic()
        if self._on:
            self._traced += now - self._on_since
            self._on_since = now
        span = self._reader.take()
        span.traced_seconds, self._traced = self._traced, 0.0
        self._spans.append(span)

    def finish(self) -> list[TurnCounts]:
        """What happened between each two marks; turns open at the last one stand at their age.

        The end is taken for the last mark, so a caller marks and finishes in one go.
        """
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._instance.write("tracing_on", "0")
        self._read()
        self._reader.finish(time.monotonic_ns(), threads_in_turns(self._threads))
        # What came before the first mark was not asked for; what came after the last is its.
        *_, last = spans = [*self._spans[1:]] or [TurnCounts()]
        last.add(self._reader.take())
        self._instance.remove()
        return spans

    def kill(self) -> None:
        """End it at once; nothing was seen."""
        self._ended.set()
        self._thread.join()
        self._instance.remove()
