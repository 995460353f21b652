"""Lines of a tracefs pipe turned into loop turns; pure, text in, counters out.

Source: Documentation/trace/events.rst; the lines of trace_seq_print_sym and the syscall events.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.observe.turn_counts import TurnCounts

_SYSCALL = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +(\d+)\.(\d{6}): sys_epoll_(?:wait|pwait2?)(\(| -> )"
)
_SWITCH = re.compile(
    r" (\d+)\.(\d{6}): sched_switch: .*prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+)"
    r" ==> .*next_pid=(\d+) next_prio="
)
_LOST = re.compile(r"\[LOST \d+ EVENTS\]")


class _Event(NamedTuple):
    nanoseconds: int
    thread: int


class TurnReader:
    """Follows the threads through their events, in the order of the pipe."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        self._asleep: dict[int, int] = {}
        self.counts = TurnCounts()
        self.events = 0
        """Since ``forget``: what the reader's cost goes by."""
        self.lost = False

    def read(self, lines: list[str]) -> None:
        """Count what the lines say; those of another form are passed over."""
        for line in lines:
            self.events += 1
            if call := _SYSCALL.search(line):
                self._call(_Event(_nanoseconds(call[2], call[3]), int(call[1])), call[4] == "(")
            elif switch := _SWITCH.search(line):
                now = _nanoseconds(switch[1], switch[2])
                self._switch(now, int(switch[3]), switch[4], int(switch[5]))
            elif _LOST.search(line):
                self.lost = True
                self.forget()

    def _call(self, event: _Event, entering: bool) -> None:
        if not entering:
            self._left[event.thread] = event.nanoseconds
            return
        since = self._left.pop(event.thread, None)
        if since is not None:
            self._count(event.thread, event.nanoseconds - since)

    def _count(self, thread: int, nanoseconds: int) -> None:
        counts = self.counts
        counts.values[nanoseconds] += 1
        counts.turns[thread] += 1
        counts.busy[thread] += nanoseconds

    def _switch(self, now: int, off: int, state: str, on: int) -> None:
        if state.startswith("D") and off in self._left:
            self._asleep[off] = now
        since = self._asleep.pop(on, None)
        if since is not None:
            self.counts.blocked[on] += now - since

    def forget(self) -> None:
        """Drop what is under way: events were missed."""
        self._left.clear()
        self._asleep.clear()
        self.events = 0

    def finish(self, now_nanoseconds: int) -> None:
        """Count turns still under way, at their age."""
        for thread, since in self._left.items():
            if now_nanoseconds > since:
                self._count(thread, now_nanoseconds - since)
        for thread, since in self._asleep.items():
            self.counts.blocked[thread] += max(0, now_nanoseconds - since)
        self.forget()

    def take(self) -> TurnCounts:
        """What was counted since the last time."""
        taken, self.counts = self.counts, TurnCounts()
        return taken


def _nanoseconds(seconds: str, microseconds: str) -> int:
    return int(seconds) * 1_000_000_000 + int(microseconds) * 1000
