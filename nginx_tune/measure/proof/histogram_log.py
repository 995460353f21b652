"""Histogram logs (``.hlog``) of several load hosts as one: counts added, tags kept.

A log holds one line per tag and interval: when it began, how long it was, its greatest value and
its histogram. Here the intervals of different logs that lie beside each other in time become one
line; each count stays in it, so what any reader adds up is exact.

Source: HistogramLogReader.java and HistogramLogWriter.java of HdrHistogram, version 1.3 of the
format.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import (
    Histogram,
    decode_histogram,
    encode_histogram,
    merge_histograms,
)

_YEAR_SECONDS = 365 * 86_400
_GREATEST = 1e18
_STAMP = re.compile(r"#\[(StartTime|BaseTime): *([^ ]*) ")
_LEGEND_START = '"StartTimestamp"'
_LEGEND = f'{_LEGEND_START},"Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
_TAG = "Tag="
_CELLS = 4


@dataclass(frozen=True)
class LogFile:
    """A log as it was read."""

    name: str
    text: str


@dataclass(frozen=True)
class LogInterval:
    """What one tag recorded in one interval; ``start_seconds`` since 1970 where the log says."""

    place: str
    """File and line."""
    tag: str
    start_seconds: float
    length_seconds: float
    greatest: float
    """In the unit of the log's own column."""
    text: str
    """Its histogram, decoded only when it is added: a long log has many."""

    @property
    def end_seconds(self) -> float:
        """When it ended, on the clock of its begin."""
        return self.start_seconds + self.length_seconds

    def histogram(self) -> Histogram:
        """The values.

        Errors: UsageError.
        """
        try:
            return decode_histogram(self.text)
        except UsageError as error:
            raise _malformed(self.place, error.message) from None


@dataclass(frozen=True)
class MergedLog:
    """The sum of several logs."""

    text: str
    totals: dict[str, Histogram]
    """All intervals of a tag together."""


@dataclass
class _Group:
    """Intervals of one tag, of different logs and beside each other in time."""

    parts: list[LogInterval] = field(default_factory=list)
    logs: set[int] = field(default_factory=set)

    def takes(self, log: int, interval: LogInterval) -> bool:
        first = self.parts[0]
        middle = first.start_seconds + first.length_seconds / 2
        return log not in self.logs and interval.start_seconds < middle

    def sum(self, histogram: Histogram) -> LogInterval:
        """All of it as one interval, whose histogram this is."""
        first = self.parts[0]
        end = max(part.end_seconds for part in self.parts)
        return replace(
            first,
            length_seconds=end - first.start_seconds,
            greatest=max(part.greatest for part in self.parts),
            text=encode_histogram(histogram),
        )


def is_histogram_log(data: bytes) -> bool:
    """Whether this begins as a histogram log does."""
    return data.startswith((b"#", b"Tag=", _LEGEND_START.encode()))


def merge_histogram_logs(logs: Sequence[LogFile]) -> MergedLog:
    """One log of all, its intervals in order of time.

    Errors: UsageError for a log that cannot be read (with its line), for histograms of different
    precision, and for a log that is given twice.
    """
    _refuse_the_same_twice(logs)
    ordered = [sorted(read_intervals(log), key=lambda item: item.start_seconds) for log in logs]
    numbered = [[(number, item) for item in items] for number, items in enumerate(ordered)]
    groups: dict[str, list[_Group]] = {}
    for number, interval in heapq.merge(*numbered, key=lambda item: item[1].start_seconds):
        of_tag = groups.setdefault(interval.tag, [])
        if not of_tag or not of_tag[-1].takes(number, interval):
            of_tag.append(_Group())
        of_tag[-1].parts.append(interval)
        of_tag[-1].logs.add(number)
    intervals: list[LogInterval] = []
    totals = {}
    for tag, of_tag in sorted(groups.items()):
        total = merge_histograms(_add_up(of_tag, intervals))
        assert total is not None  # noqa: S101  # a tag is there since an interval has it
        totals[tag] = total
    intervals.sort(key=lambda item: item.start_seconds)
    return MergedLog(_render(intervals, len(logs)), totals)


def _add_up(groups: Sequence[_Group], intervals: list[LogInterval]) -> Iterator[Histogram]:
    """The histogram of each group; its interval is added to ``intervals``."""
    for group in groups:
        histogram = merge_histograms(part.histogram() for part in group.parts)
        assert histogram is not None  # noqa: S101  # a group begins with an interval
        intervals.append(group.sum(histogram))
        yield histogram


def _refuse_the_same_twice(logs: Sequence[LogFile]) -> None:
    names: dict[str, str] = {}
    for log in logs:
        if log.text in names:
            other = names[log.text]
            raise UsageError(f"{other} and {log.name} are the same log: it counts once")
        names[log.text] = log.name


def read_intervals(log: LogFile) -> Iterator[LogInterval]:
    """The intervals of a log.

    Errors: UsageError for one that cannot be read.
    """
    stamps: dict[str, float] = {}
    found = False
    for number, line in enumerate(log.text.splitlines(), 1):
        place = f"{log.name}:{number}"
        if line.startswith("#"):
            if stamp := _STAMP.match(line):
                stamps[stamp[1]] = _number(stamp[2], place)
        elif line.strip() and not line.startswith(_LEGEND_START):
            found = True
            yield _interval(line, stamps, place)
    if not found:
        raise UsageError(f"{log.name}: no histogram log: not one interval")


def _interval(line: str, stamps: dict[str, float], place: str) -> LogInterval:
    tag = ""
    if line.startswith(_TAG):
        tag, _, line = line[len(_TAG) :].partition(",")
    cells = line.strip().split(",")
    if len(cells) != _CELLS:
        raise _malformed(place, "an interval is its begin, length, maximum and histogram")
    begin, length, greatest = (_number(cell, place) for cell in cells[:-1])
    started = stamps.get("StartTime", 0.0)
    # Without a base the begin counts from the start where it is no moment of our time by itself.
    base = stamps.get("BaseTime", started if begin < started - _YEAR_SECONDS else 0.0)
    return LogInterval(place, tag, base + begin, length, greatest, cells[-1])


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _GREATEST:
        raise _malformed(place, "a time or a maximum is no number")
    return value


def _malformed(place: str, why: str) -> UsageError:
    return UsageError(f"{place}: no histogram log: {why}")


def _render(intervals: Sequence[LogInterval], logs: int) -> str:
    start = intervals[0].start_seconds
    lines = [
        f"#[nginx-tune: {logs} logs added]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start:.3f} (seconds since epoch)]",
        f"#[BaseTime: {start:.3f} (seconds since epoch)]",
        _LEGEND,
    ]
    for item in intervals:
        tag = f"{_TAG}{item.tag}," if item.tag else ""
        times = f"{item.start_seconds - start:.3f},{item.length_seconds:.3f},{item.greatest:.3f}"
        lines.append(f"{tag}{times},{item.text}")
    return "\n".join(lines) + "\n"
