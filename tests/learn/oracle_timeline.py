"""Requests and time in flight over a log's time, in a window that slides along with it.

nginx logs a request when it ends, and workers that buffer their lines write them late, so a line
may be older than those before it. The window is a day and a half: lines within it find their
second; what leaves it is final.
The Rust reader (probes/src/learn/timeline.rs) has the same one.
"""

from __future__ import annotations

from collections.abc import Iterable

from nginx_tune.documents.learning import Timeline

WINDOW_SECONDS = 1 << 17
FEWEST_ELSEWHERE = 8
"""So many lines on end from another time begin a new stretch; fewer are strays."""
MOST_STRETCHES = 256
_LONGEST_PEAK_SECONDS = 60
_SHORT_STEP_SECONDS = 64
"""Up to here every second that leaves is looked up, past it those that hold something."""


class TimelineCounter:
    """Counts what happened in each second."""

    def __init__(self) -> None:
        self._seconds: dict[int, list[int]] = {}
        """By second: requests, milliseconds in flight of those that began or ended in it, and
        the change, at its start, of the milliseconds that go on through whole seconds."""
        self._stretches: list[tuple[int, int]] = []
        self._first = self._newest = 0
        self._is_open = False
        self._elsewhere = self._elsewhere_count = 0
        self._counted = self._timed = self._busy = 0
        self._backward = self._stray = 0
        self._peaks = _Peaks()

    @property
    def stretch(self) -> int:
        """Number of the stretch that is being read, from 0."""
        return len(self._stretches)

    def add(self, end_milliseconds: int, duration_milliseconds: int | None) -> bool:
        """Count a request; false when its time is far from its neighbours'."""
        second = end_milliseconds // 1000
        if not self._is_open:
            self._open(second)
        elif not -WINDOW_SECONDS < second - self._newest <= WINDOW_SECONDS:
            if not self._moves_to(second):
                self._stray += 1
                return False
        elif second > self._newest:
            self._advance(second)
        self._elsewhere_count = 0
        if second < self._newest:
            self._backward += 1
            self._first = min(self._first, second)
        self._counted += 1
        self._at(second)[0] += 1
        if duration_milliseconds is not None:
            self._timed += 1
            self._busy += duration_milliseconds
            self._fill(end_milliseconds, second, duration_milliseconds)
        return True

    def result(self) -> Timeline:
        """What was counted."""
        if self._is_open:
            self._close()
        return Timeline(
            stretches=self._stretches,
            requests=self._counted,
            peak_1s=self._peaks.of_1,
            peak_10s=self._peaks.of_10,
            peak_60s=self._peaks.of_60,
            busy_milliseconds=self._busy,
            busy_peak_milliseconds=self._peaks.busy,
            timed_requests=self._timed,
            backward_lines=self._backward,
            stray_lines=self._stray,
        )

    def _moves_to(self, second: int) -> bool:
        if self._elsewhere_count and abs(second - self._elsewhere) < WINDOW_SECONDS:
            self._elsewhere_count += 1
        else:
            self._elsewhere, self._elsewhere_count = second, 1
        if self._elsewhere_count < FEWEST_ELSEWHERE or len(self._stretches) + 1 >= MOST_STRETCHES:
            return False
        self._close()
        self._open(second)
        return True

    def _open(self, second: int) -> None:
        self._is_open = True
        self._first = self._newest = second

    def _close(self) -> None:
        self._stretches.append((self._first, self._newest))
        for second in sorted(self._seconds):
            self._peaks.take(second, self._seconds[second])
        self._seconds = {}
        self._peaks.begin_again()
        self._is_open = False

    def _advance(self, second: int) -> None:
        """Move the window on, and what leaves it to the peaks."""
        oldest = second + 1 - WINDOW_SECONDS
        leaving: Iterable[int]
        if second - self._newest <= _SHORT_STEP_SECONDS:
            leaving = range(self._newest + 1 - WINDOW_SECONDS, oldest)
        else:
            leaving = sorted(key for key in self._seconds if key < oldest)
        for left in leaving:
            counts = self._seconds.pop(left, None)
            if counts is not None:
                self._peaks.take(left, counts)
        self._newest = second

    def _at(self, second: int) -> list[int]:
        counts = self._seconds.get(second)
        if counts is None:
            counts = self._seconds[second] = [0, 0, 0]
        return counts

    def _fill(self, end: int, second: int, duration: int) -> None:
        """Spread the time in flight over the seconds that it touches."""
        oldest = (self._newest + 1 - WINDOW_SECONDS) * 1000
        start = max(end - duration, oldest)
        start_second = start // 1000
        if start_second == second:
            self._at(second)[1] += end - start
            return
        self._at(start_second)[1] += (start_second + 1) * 1000 - start
        self._at(second)[1] += end - second * 1000
        if start_second + 1 < second:
            self._at(start_second + 1)[2] += 1000
            self._at(second)[2] -= 1000


class _Peaks:
    """The busiest second, ten seconds, minute, from seconds in order."""

    def __init__(self) -> None:
        self.of_1 = self.of_10 = self.of_60 = self.busy = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget the last seconds, not the peaks."""
        self._ring = [0] * _LONGEST_PEAK_SECONDS
        self._in_10 = self._in_60 = self._through = 0
        self._last: int | None = None

    def take(self, second: int, counts: list[int]) -> None:
        """Take the next second that holds anything."""
        requests, partial, change = counts
        if self._last is not None:
            for _ in range(min(second - self._last - 1, _LONGEST_PEAK_SECONDS)):
                self._slide(0)
        self._last = second
        self._slide(requests)
        self.busy = max(self.busy, self._through)  # of the seconds between
        self._through += change
        self.busy = max(self.busy, partial + self._through)
        self.of_1 = max(self.of_1, requests)
        self.of_10 = max(self.of_10, self._in_10)
        self.of_60 = max(self.of_60, self._in_60)

    def _slide(self, requests: int) -> None:
        # The ring turns: its first entry is the oldest, 60 seconds back.
        ring = self._ring
        self._in_60 += requests - ring[0]
        self._in_10 += requests - ring[-10]
        del ring[0]
        ring.append(requests)
