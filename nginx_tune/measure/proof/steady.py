"""Whether a block was in a steady state: no trend in what its seconds show.

A server that is still filling its caches gets faster (or, filling its disks' queues, slower)
second by second, and the block's figures depend on when it was cut. Looked at are each class's
median and the share of its requests that came in each second: of each the rank correlation with
time, exact for few seconds, and how far the last third lies from the first.

Source: Mann 1945 and Kendall's tau for trends; the count of arrangements is Knuth's recurrence of
inversions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, combinations
from statistics import NormalDist, median

from msgspec.structs import replace

from nginx_tune.documents.measurement import Measurement, SeriesPoint

FEWEST_SECONDS = 7
"""With fewer no order of seconds is unlikely enough where several classes are looked at."""
_ALPHA = 0.01
_WORTH = 1.10
"""A trend that moves less than this between the first and the last third does no harm."""
_MOST_EXACT = 60
FLAG = "not_steady"


def trend_p(values: Sequence[float]) -> float:
    """The two-sided p of "these came in any order"; ties count for no trend. 1 for fewer than 2."""
    size = len(values)
    if size <= 1:
        return 1.0
    score = abs(sum((b > a) - (b < a) for a, b in combinations(values, 2)))
    most = size * (size - 1) // 2
    if size > _MOST_EXACT:
        deviation = math.sqrt(size * (size - 1) * (2 * size + 5) / 18)
        return 2 * (1 - NormalDist().cdf(max(score - 1, 0) / deviation))
    # A score of s has (most - s) / 2 inversions or fewer.
    cumulative = list(accumulate(_inversions(size)))
    return min(1.0, 2 * cumulative[(most - score) // 2] / cumulative[-1])


def _inversions(size: int) -> list[int]:
    """The number of orders of ``size`` things with 0, 1, 2, … inversions."""
    counts = [1]
    for length in range(2, size + 1):
        longer = [0] * (len(counts) + length - 1)
        for place, count in enumerate(counts):
            for more in range(length):
                longer[place + more] += count
        counts = longer
    return counts


def warmup_seconds(block: Measurement) -> int | None:
    """The fewest seconds at the start to cut so that no class has a trend in the rest.

    None when no part that is long enough (the last half, seven seconds at least) is without one.
    """
    series = whole_seconds(block)
    longest = min(len(series) // 2, len(series) - FEWEST_SECONDS)
    for cut in range(max(longest, 0) + 1):
        if not find_trends(series[cut:]):
            return cut
    return None


def find_trends(series: Sequence[SeriesPoint]) -> dict[str, float]:
    """Last third / first third of the medians, or of the rates, of the classes with a trend."""
    found: dict[str, float] = {}
    names = dict.fromkeys(name for point in series for name in point.classes)
    for name in names:
        seconds = [point.classes[name] for point in series if name in point.classes]
        medians = [second.p50 for second in seconds if second.p50 is not None]
        rates = [float(second.requests) for second in seconds]
        for values in (medians, rates):
            change = _change(values)
            # Two looks at each class, and all classes at once.
            if change is not None and trend_p(values) <= _ALPHA / (2 * len(names)):
                found.setdefault(name, change)
    return found


def whole_seconds(block: Measurement) -> list[SeriesPoint]:
    """The seconds of a block, without what came in while the last requests were waited for."""
    return [point for point in block.series if point.second + 1 <= block.duration_seconds]


def _change(values: Sequence[float]) -> float | None:
    """By how much the last third differs from the first; None when that is no matter."""
    if len(values) < FEWEST_SECONDS:
        return None
    third = max(len(values) // 3, 1)
    first, last = median(values[:third]), median(values[-third:])
    if first <= 0 or last <= 0:
        return None
    change = last / first
    return change if max(change, 1 / change) > _WORTH else None


def with_steadiness(block: Measurement) -> Measurement:
    """The block, flagged where it was not in a steady state."""
    flags = [
        f"{FLAG}: {name}: went to {change:.2f}× from its first to its last third: a longer warm-up "
        "is needed"
        for name, change in find_trends(whole_seconds(block)).items()
    ]
    return replace(block, flags=[*block.flags, *flags]) if flags else block
