"""Lines of a tracefs pipe turned into calls of open() and rename(); pure, text in, counters out.

Source: Documentation/trace/events.rst; the lines of the syscall events and of block_bio_queue,
which is told in the thread that asks the disk.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_CALL = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +(\d+)\.(\d{6}): sys_(open|rename)(?:at2?)?(\(| -> )"
)
_ASKED = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +\d+\.\d{6}: block_bio_queue: \d+,\d+ R(?!A)"
)
"""No read-ahead: nobody waits for that."""
_LOST = re.compile(r"\[LOST (\d+) EVENTS\]")


class NameCalls(NamedTuple):
    """Calls that look names up or change them; times in nanoseconds (whole microseconds)."""

    opens: Counter[int]
    """Calls of open() by their time."""
    renames: Counter[int]
    """Calls of rename() by their time."""
    open_reads: Counter[int] | None
    """Calls of open() by the reads that they asked of disks; None where that is not traced."""


class OpenReader:
    """Follows threads into open() and rename() and out of them, in the order of the pipe."""

    def __init__(self) -> None:
        self._inside: dict[int, tuple[str, int]] = {}
        self._asked: Counter[int] = Counter()
        self._values: dict[str, Counter[int]] = {"open": Counter(), "rename": Counter()}
        self._reads: Counter[int] = Counter()
        self.lost = 0
        """Events that nobody read in time."""

    def read(self, lines: list[str]) -> None:
        """Count what the lines say; those of another form are passed over."""
        for line in lines:
            if call := _CALL.search(line):
                now = int(call[2]) * 1_000_000_000 + int(call[3]) * 1000
                self._call(int(call[1]), call[4], now, entering=call[5] == "(")
            elif asked := _ASKED.search(line):
                self._asked[int(asked[1])] += 1
            elif lost := _LOST.search(line):
                self.lost += int(lost[1])

    def _call(self, thread: int, name: str, now: int, *, entering: bool) -> None:
        asked = self._asked.pop(thread, 0)
        if entering:
            self._inside[thread] = name, now
            return
        since = self._inside.pop(thread, None)
        if since is not None:  # else it began before anybody looked
            self._count(since, now, asked)

    def _count(self, since: tuple[str, int], now: int, asked: int) -> None:
        name, start = since
        self._values[name][max(0, now - start)] += 1
        if name == "open":
            self._reads[asked] += 1

    def finish(self, now_nanoseconds: int, *, has_reads: bool = True) -> NameCalls:
        """All calls, those still under way at their age."""
        for thread, since in self._inside.items():
            self._count(since, now_nanoseconds, self._asked.pop(thread, 0))
        self._inside.clear()
        return NameCalls(
            self._values["open"], self._values["rename"], self._reads if has_reads else None
        )
