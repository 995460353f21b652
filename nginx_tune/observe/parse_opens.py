"""Lines of a tracefs pipe turned into calls of open(); pure, text in, counters out.

Source: Documentation/trace/events.rst; the lines of the syscall events.
"""

from __future__ import annotations

import re
from collections import Counter

_CALL = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +(\d+)\.(\d{6}): sys_open(?:at2?)?(\(| -> )"
)
_LOST = re.compile(r"\[LOST (\d+) EVENTS\]")


class OpenReader:
    """Follows threads into open() and out of it, in the order of the pipe."""

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        self.values: Counter[int] = Counter()
        """Calls by the nanoseconds that they took (whole microseconds)."""
        self.lost = 0
        """Events that nobody read in time."""

    def read(self, lines: list[str]) -> None:
        """Count what the lines say; those of another form are passed over."""
        for line in lines:
            if call := _CALL.search(line):
                now = int(call[2]) * 1_000_000_000 + int(call[3]) * 1000
                self._call(int(call[1]), now, entering=call[4] == "(")
            elif lost := _LOST.search(line):
                self.lost += int(lost[1])

    def _call(self, thread: int, now: int, *, entering: bool) -> None:
        if entering:
            self._inside[thread] = now
            return
        since = self._inside.pop(thread, None)
        if since is not None:  # else it began before anybody looked
            self.values[now - since] += 1

    def finish(self, now_nanoseconds: int) -> None:
        """Count calls still under way, at their age."""
        for since in self._inside.values():
            self.values[max(0, now_nanoseconds - since)] += 1
        self._inside.clear()
