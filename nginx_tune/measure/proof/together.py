"""Several metrics of the same pairs tested together, so that many do not claim more than one.

Who is baseline and who candidate is tossed for a pair as a whole. So under "no difference" the
signs of all metrics of a pair turn together, and what the strongest of them reaches by chance is
counted over those tosses. Metrics that move together (a mean and a rate) then cost no more than
one, and six pairs can show something of any number of metrics, where a correction by their number
alone (Bonferroni, Holm) can show nothing of more than one.

Source: Westfall and Young 1993, Resampling-Based Multiple Testing, algorithm 4.1 (step-down maxT);
Ge, Dudoit and Speed 2003, box 2.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

_EXACT_PAIRS = 13
"""Up to here every toss is counted: 2^12, the others mirror them."""
_SAMPLED_TOSSES = 4_096
_ROUNDING = 1e-9
"""Sums of one set of numbers in two orders agree to this relative difference."""


def step_down(metrics: Sequence[Mapping[int, float]], *, seed: int = 1) -> list[float]:
    """The p value of each metric, two-sided, adjusted for all of them.

    A metric is its log ratio or difference in each pair, by the pair's number; not every metric
    counts in every pair. ``p <= alpha`` keeps the chance of any false claim among all of them at
    ``alpha``, whatever they have in common. Exact up to 13 pairs; beyond, from 4,096 tosses.
    1 for a metric that is zero everywhere.
    """
    pairs = sorted({pair for values in metrics for pair in values})
    by_toss = [_strengths(_scaled(values, pairs), seed) for values in metrics]
    order = sorted(range(len(metrics)), key=lambda index: by_toss[index][0], reverse=True)
    adjusted = [1.0] * len(metrics)
    strongest = [0.0] * (len(by_toss[0]) if by_toss else 0)
    for index in reversed(order):
        # Those that are weaker than this one are in it already; the stronger ones do not count.
        strongest = list(map(max, strongest, by_toss[index]))
        seen = by_toss[index][0] * (1 - _ROUNDING)
        if seen > 0:
            adjusted[index] = sum(one >= seen for one in strongest) / len(strongest)
    largest = 0.0
    for index in order:
        largest = max(largest, adjusted[index])
        adjusted[index] = largest
    return adjusted


def _scaled(values: Mapping[int, float], pairs: Sequence[int]) -> list[float]:
    """The values by pair, of length 1 together: the sum then is as good as Student's t."""
    length = math.sqrt(math.fsum(value * value for value in values.values()))
    return [values.get(pair, 0.0) / length if length else 0.0 for pair in pairs]


def _strengths(values: Sequence[float], seed: int) -> list[float]:
    """The size of the sum at each toss; the first is what was seen."""
    if not values:
        return [0.0]
    if len(values) <= _EXACT_PAIRS:
        sums = [values[0]]
        for value in values[1:]:
            sums = [*(total + value for total in sums), *(total - value for total in sums)]
        return [abs(total) for total in sums]
    width = (len(values) + 7) // 8
    stream = hashlib.shake_128(f"tosses {seed}".encode()).digest(width * _SAMPLED_TOSSES)
    starts = range(0, len(stream), width)
    tosses = [0, *(int.from_bytes(stream[at : at + width], "big") for at in starts)]
    return [
        abs(math.fsum(-v if bits >> i & 1 else v for i, v in enumerate(values))) for bits in tosses
    ]
