"""Exact statistics of two samples that are not paired: the pairs of two runs.

The estimate is the median of all differences (Hodges-Lehmann), the interval is cut from the same
differences at the ranks that the distribution of the rank sum gives, and p is that of the
rank-sum test, ties counted by halves: all without an assumption about the shape.

Source: Mann and Whitney 1947; Lehmann, Nonparametrics, chapter 2.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import median

from nginx_tune.prove.statistics import ALPHA, Interval


def shift_of(first: Sequence[float], second: Sequence[float]) -> float:
    """How far the second sample lies above the first: the median of all differences.

    Errors: StatisticsError when either is empty.
    """
    return median(_differences(first, second))


def rank_sum_cumulative(first: int, second: int) -> list[int]:
    """The number of arrangements of two samples with at most 0, 1, 2, … inversions."""
    ways = [1] + [0] * (first * second)
    # The Gaussian binomial coefficient: a product of (1 - q^(second + i)) / (1 - q^i).
    for step in range(1, first + 1):
        for place in range(len(ways) - 1, second + step - 1, -1):
            ways[place] -= ways[place - second - step]
        for place in range(step, len(ways)):
            ways[place] += ways[place - step]
    return list(accumulate(ways))


def shift_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """The narrowest exact interval of the shift whose coverage is at least ``1 - ALPHA``.

    Where none reaches that, the widest one there is with the level it has; None for an empty
    sample.
    """
    if not first or not second:
        return None
    differences = sorted(_differences(first, second))
    cumulative = rank_sum_cumulative(len(first), len(second))
    cut = max(bisect.bisect_right(cumulative, cumulative[-1] * ALPHA / 2), 1)
    level = 1 - 2 * cumulative[cut - 1] / cumulative[-1]
    return Interval(differences[cut - 1], differences[-cut], level)


def rank_sum_p(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of "both samples are of one population"; 1 for an empty one.

    A tie is half an inversion, and half of one counts towards the middle: with ties p is too
    large rather than too small.
    """
    if not first or not second:
        return 1.0
    below = sum((a < b) + (a == b) / 2 for a in first for b in second)
    cumulative = rank_sum_cumulative(len(first), len(second))
    least = math.ceil(min(below, len(first) * len(second) - below))
    return min(1.0, 2 * cumulative[least] / cumulative[-1])


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [b - a for a in first for b in second]
