"""Exact statistics of a few paired blocks.

Latencies inside a run are correlated, so a run (block) is one observation and a pair of blocks
is one difference: the log ratio of candidate to baseline. With six to thirty pairs nothing has
to be approximated: every question below is answered by counting all sign patterns.

The estimate is the median of all pairwise means (Hodges-Lehmann); the interval is cut from the
same means at the ranks that the signed-rank distribution gives, so its coverage is known and is
reported as it is: 96.9 % at six pairs, since nothing nearer to 95 % exists.

Sources: Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods,
chapter 3; Holm 1979; Fisher's randomisation test, Good, Permutation Tests, chapter 3.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import NormalDist, median, stdev

ALPHA = 0.05
"""The share of true "no difference" cases that may be called a difference."""

_EXACT_FLIPS = 32
"""Up to here every sign pattern is counted: two halves of at most 2^16 sums each."""
_SAMPLED_FLIPS = 20_000
_ROUNDING = 1e-9
"""Sums of one set of numbers in two orders agree to this relative difference."""
_SIGNED_RANK_EFFICIENCY = 3 / math.pi
"""Of the signed-rank interval against the mean's on normal data."""
_POWER = 0.8
_MOST_PAIRS = 1000
"""A plan that needs more pairs than this is not worth naming."""


@dataclass(frozen=True)
class Interval:
    """Bounds and the probability that bounds made this way hold the true value."""

    low: float
    high: float
    level: float


def walsh_averages(values: Sequence[float]) -> list[float]:
    """The means of all pairs of values, each value also with itself, ascending."""
    return sorted(
        (a + b) / 2 for index, a in enumerate(values) for b in values[index:]
    )  # n(n+1)/2 of them


def hodges_lehmann(values: Sequence[float]) -> float:
    """The middle of a sample: the median of its Walsh averages.

    Errors: StatisticsError for no values.
    """
    return median(walsh_averages(values))


@cache
def signed_rank_cumulative(size: int) -> tuple[int, ...]:
    """The number of sign patterns, of ``2 ** size``, with a rank sum of at most 0, 1, 2, ...."""
    ways = [1]
    for rank in range(1, size + 1):
        longer = ways + [0] * rank
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    return tuple(accumulate(ways))


def signed_rank_interval(values: Sequence[float], alpha: float = ALPHA) -> Interval | None:
    """The narrowest exact interval whose coverage is at least ``1 - alpha``.

    Where no interval reaches that (under six values at 0.05) the widest one there is, with the
    level that it has. None for fewer than two values.
    """
    size = len(values)
    if size <= 1:
        return None
    averages = walsh_averages(values)
    patterns = 1 << size
    cumulative = signed_rank_cumulative(size)
    # The k-th average from either end bounds the centre unless the rank sum is below k.
    cut = bisect.bisect_right(cumulative, patterns * alpha / 2)
    cut = max(cut, 1)
    return Interval(averages[cut - 1], averages[-cut], 1 - 2 * cumulative[cut - 1] / patterns)


def sign_flip_p(values: Sequence[float], *, seed: int = 1) -> float:
    """The two-sided p of "the signs are coin tosses": patterns with a sum as far from zero.

    Exact up to 32 values; beyond, from 20 000 patterns drawn from ``seed``. 1 for no values.
    """
    if not values:
        return 1.0
    far = abs(math.fsum(values)) - _ROUNDING * math.fsum(map(abs, values))
    if len(values) <= _EXACT_FLIPS:
        return _count_far_sums(values, far) / (1 << len(values))
    hits = sum(
        abs(math.fsum(v if bits >> i & 1 else -v for i, v in enumerate(values))) >= far
        for bits in _sign_patterns(len(values), seed)
    )
    return (hits + 1) / (_SAMPLED_FLIPS + 1)


def _count_far_sums(values: Sequence[float], far: float) -> int:
    """The number of sign patterns whose sum is at least ``far`` away from zero."""
    if far <= 0:
        return 1 << len(values)
    half = len(values) // 2
    left, right = _flipped_sums(values[:half]), sorted(_flipped_sums(values[half:]))
    return sum(
        len(right) - bisect.bisect_left(right, far - total)
        + bisect.bisect_right(right, -far - total)
        for total in left
    )  # fmt: skip


def _flipped_sums(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums = [total + signed for total in sums for signed in (value, -value)]
    return sums


def _sign_patterns(size: int, seed: int) -> list[int]:
    width = (size + 7) // 8
    stream = hashlib.shake_128(f"sign flips {seed}".encode()).digest(width * _SAMPLED_FLIPS)
    return [
        int.from_bytes(stream[start : start + width], "big")
        for start in range(0, len(stream), width)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values of tests made together, adjusted step-down.

    ``p <= alpha`` then keeps the chance of any false claim among all of them at ``alpha``.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    by_size = sorted(range(len(p_values)), key=p_values.__getitem__)
    for done, index in enumerate(by_size):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - done)))
        adjusted[index] = largest
    return adjusted


def fewest_pairs(tests: int = 1, alpha: float = ALPHA) -> int:
    """The number of pairs below which no result can be significant: 6 for one test at 0.05.

    With n pairs no two-sided p is smaller than 2 of the 2^n patterns.
    """
    return 1 + math.ceil(math.log2(max(tests, 1) / alpha))


def pairs_needed(
    log_ratios: Sequence[float], *, worth: float, tests: int = 1, alpha: float = ALPHA
) -> int | None:
    """About how many pairs would settle it, if further ones spread as these do.

    ``worth`` is the log of the smallest ratio worth having. An estimate beyond it is settled
    when the interval leaves zero; one within it when the interval fits inside. With a chance of
    80 %. None when more than 1000 pairs would be needed.
    """
    fewest = fewest_pairs(tests, alpha)
    if len(log_ratios) <= 1:
        return fewest
    estimate = abs(hodges_lehmann(log_ratios))
    spread = stdev(log_ratios)
    if spread == 0:
        return fewest
    normal = NormalDist()
    certain = normal.inv_cdf(1 - alpha / max(tests, 1) / 2)
    if estimate > worth:
        distance, reach = estimate, certain + normal.inv_cdf(_POWER)
    else:
        # Both ends have to stay inside, so either may miss half as often.
        distance, reach = worth - estimate, certain + normal.inv_cdf((1 + _POWER) / 2)
    if distance <= 0 or reach * spread / distance > math.sqrt(_MOST_PAIRS):
        return None
    # Half the square more, because the spread itself is only estimated (Guenther 1981).
    pairs = (reach * spread / distance) ** 2 + certain**2 / 2
    return max(fewest, math.ceil(pairs / _SIGNED_RANK_EFFICIENCY))
