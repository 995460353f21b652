"""Exact statistics of a few pairs of runs, bootstrap of seconds, and the knee of a curve.

Latencies within a run are correlated, so a run is one observation, and a pair of runs one
difference: the log ratio of candidate to baseline. With six to thirty pairs all sign patterns can
be counted, so nothing is approximated.

The estimate is the Hodges-Lehmann estimate. The interval is cut from the same Walsh averages at
ranks of the signed-rank distribution, so its coverage is exact: 96.9 % at six pairs, the value
nearest to 95 %.

Several metrics of the same pairs are tested together. Under "no difference", swapping the variants
of a pair flips the signs of all its metrics at once, so the maximum over the metrics is counted
over these swaps. Correlated metrics (a mean and a rate) then cost no more than one. Six pairs can
show a difference in any number of metrics, where Bonferroni or Holm would need more pairs.

Neighbouring seconds are correlated, so the bootstrap draws circular stretches of about the square
root of their number. It draws numerators with their denominators, so that a quotient (CPU time per
request) is resampled as a whole.

Sources: Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods,
chapter 3; Holm 1979; Fisher's randomisation test, Good, Permutation Tests, chapter 3; Westfall and
Young 1993, Resampling-Based Multiple Testing, algorithm 4.1 (step-down maxT); Ge, Dudoit and Speed
2003, box 2; Politis and Romano 1992, circular block bootstrap; percentile intervals.
"""

import bisect
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import NormalDist, median, stdev
from typing import NamedTuple

from nginx_tune.documents.facts_storage import CurvePoint
from nginx_tune.documents.units import number_text, seconds_text

ALPHA = 0.05
"""The significance level, which is the share of wrong differences."""

_EXACT_FLIPS = 32
"""Maximum number of values for which all sign patterns are counted, as two halves of at most 2^16
sums."""
_SAMPLED_FLIPS = 20_000
_ROUNDING = 1e-9
"""The relative rounding error of a sum in another order."""
_SIGNED_RANK_EFFICIENCY = 3 / math.pi
"""The efficiency of the signed-rank interval relative to the mean's interval, for normal data."""
_POWER = 0.8
_MOST_PAIRS = 1000
"""Bound on the number of pairs that is worth suggesting."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval with its exact level."""

    low: float
    high: float
    level: float


def walsh_averages(values: Sequence[float]) -> list[float]:
    """The n(n+1)/2 means of all pairs of values, each value also with itself, ascending."""
    return sorted((a + b) / 2 for index, a in enumerate(values) for b in values[index:])


def hodges_lehmann(values: Sequence[float]) -> float:
    """The location of a sample: the median of its Walsh averages.

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
    """The narrowest exact interval with a coverage of at least ``1 - alpha``.

    If none reaches it (fewer than six values at 0.05), the widest with its level. None for fewer
    than two values.
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
    """Two-sided p-value of the sign-flip test of the sum.

    Exact up to 32 values; beyond, from 20,000 random patterns of ``seed``. 1 for no values.
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
    """The number of sign patterns whose sum is at least ``far`` from zero."""
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
    """The p-values adjusted by Holm's step-down method for the family-wise error rate."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    by_size = sorted(range(len(p_values)), key=p_values.__getitem__)
    for done, index in enumerate(by_size):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - done)))
        adjusted[index] = largest
    return adjusted


def fewest_pairs(tests: int = 1, alpha: float = ALPHA) -> int:
    """Minimum number of pairs with which a result can be significant: 6 for one test at 0.05.

    With n pairs, the smallest two-sided p-value is 2 / 2^n.
    """
    return 1 + math.ceil(math.log2(max(tests, 1) / alpha))


def pairs_needed(
    log_ratios: Sequence[float], *, worth: float, tests: int = 1, alpha: float = ALPHA
) -> int | None:
    """The approximate number of pairs that settles the outcome with a power of 80 %.

    ``worth``: log of the smallest ratio worth having. An estimate beyond it is settled once the
    interval excludes zero; a smaller one is settled once the interval fits inside. None for more
    than 1000.
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
        # Both ends must stay inside, so each may miss only half as often.
        distance, reach = worth - estimate, certain + normal.inv_cdf((1 + _POWER) / 2)
    if distance <= 0 or reach * spread / distance > math.sqrt(_MOST_PAIRS):
        return None
    # The second term corrects for the estimated spread (Guenther 1981).
    pairs = (reach * spread / distance) ** 2 + certain**2 / 2
    return max(fewest, math.ceil(pairs / _SIGNED_RANK_EFFICIENCY))


_EXACT_PAIRS = 13
"""Maximum number of pairs for which all 2^12 swaps are counted; the other half mirrors them."""
_SAMPLED_TOSSES = 4_096


def step_down(metrics: Sequence[Mapping[int, float]]) -> list[float]:
    """Two-sided p-values of metrics, adjusted step-down for the family-wise error rate.

    A metric is its log ratio or difference by pair number; not every metric counts in every pair.
    The level holds under any correlation. Exact up to 13 pairs; beyond, from 4,096 random swaps. 1
    for a metric that is zero everywhere.
    """
    pairs = sorted({pair for values in metrics for pair in values})
    by_toss = [_strengths(_scaled(values, pairs)) for values in metrics]
    order = sorted(range(len(metrics)), key=lambda index: by_toss[index][0], reverse=True)
    adjusted = [1.0] * len(metrics)
    strongest = [0.0] * (len(by_toss[0]) if by_toss else 0)
    for index in reversed(order):
        # The maximum is over this metric and all weaker ones.
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
    """The values by pair, scaled to length 1, so that their sum is equivalent to Student's t."""
    length = math.sqrt(math.fsum(value * value for value in values.values()))
    return [values.get(pair, 0.0) / length if length else 0.0 for pair in pairs]


def _strengths(values: Sequence[float]) -> list[float]:
    """The absolute sum for each swap, the observed one first."""
    if not values:
        return [0.0]
    if len(values) <= _EXACT_PAIRS:
        sums = [values[0]]
        for value in values[1:]:
            sums = [*(total + value for total in sums), *(total - value for total in sums)]
        return [abs(total) for total in sums]
    width = (len(values) + 7) // 8
    stream = hashlib.shake_128(b"tosses 1").digest(width * _SAMPLED_TOSSES)
    starts = range(0, len(stream), width)
    tosses = [0, *(int.from_bytes(stream[at : at + width], "big") for at in starts)]
    return [
        abs(math.fsum(-v if bits >> i & 1 else v for i, v in enumerate(values))) for bits in tosses
    ]


FEWEST_SECONDS = 20
"""Minimum number of seconds of a series. With fewer seconds there are too few stretches to
resample."""
_MOST_POINTS = 600
"""Maximum number of points of a series; a longer one is shortened by summing equal stretches."""
_RESAMPLES = 4000
_SHORTEST_STRETCH = 5


@dataclass(frozen=True)
class Series:
    """A quantity by second, as numerators and denominators."""

    numerators: tuple[float, ...]
    denominators: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def value(self) -> float | None:
        """The quantity over the whole window."""
        below = math.fsum(self.denominators)
        return math.fsum(self.numerators) / below if below > 0 else None


def resample(series: Series, seed: str, *, windows: int = _RESAMPLES) -> list[float]:
    """The quantity in resampled windows."""
    series = _shortened(series)
    size = len(series)
    length = max(_SHORTEST_STRETCH, math.ceil(math.sqrt(size)))
    stretches = math.ceil(size / length)
    tops = _stretch_sums(series.numerators, length)
    bottoms = _stretch_sums(series.denominators, length)
    stream = hashlib.shake_128(seed.encode()).digest(4 * stretches * windows)
    draws = [int.from_bytes(stream[at : at + 4], "big") % size for at in range(0, len(stream), 4)]
    values = []
    for start in range(0, len(draws), stretches):
        chosen = draws[start : start + stretches]
        below = sum(bottoms[place] for place in chosen)
        values.append(sum(tops[place] for place in chosen) / below if below > 0 else math.nan)
    return values


def percentile_interval(values: Sequence[float], alpha: float) -> tuple[float, float] | None:
    """The percentile interval that excludes half of ``alpha`` on either side; None for NaN."""
    if not values or any(math.isnan(value) for value in values):
        return None
    ascending = sorted(values)
    cut = max(0, math.floor(alpha / 2 * len(ascending)) - 1)
    return ascending[cut], ascending[-1 - cut]


def _shortened(series: Series) -> Series:
    size = len(series)
    if size <= _MOST_POINTS:
        return series
    step = math.ceil(size / _MOST_POINTS)
    starts = range(0, size, step)
    return Series(
        tuple(math.fsum(series.numerators[at : at + step]) for at in starts),
        tuple(math.fsum(series.denominators[at : at + step]) for at in starts),
    )


def _stretch_sums(values: Sequence[float], length: int) -> list[float]:
    """The sums of the circular stretches that begin at each place."""
    around = [*values, *values[: length - 1]]
    return [math.fsum(around[at : at + length]) for at in range(len(values))]


LEAST_GAIN = 1.05
"""The smallest factor by which a step to the next depth must raise the reads per second."""

MOST_P99_GROWTH = 2.0
"""The largest factor by which a step may raise p99."""

NOISE_FACTOR = 2.0
"""The number of standard errors of the difference that a gain must exceed."""

_BURST_RATIO = 0.25
"""The ratio of median to mean read time at depth 1 below which reads come in bursts."""


class Knee(NamedTuple):
    """The depth of the knee, or None, with the reason."""

    depth: int | None
    reason: str


def find_knee(points: Sequence[CurvePoint]) -> Knee:
    """The first depth whose next step does not pay.

    A step pays if reads per second rise by at least 5 % and by more than the noise, and p99 does
    not double. A single bad step counts as noise if the next step makes up for it. The depth is
    None if not even the first step pays (a plateau: a throttled disk, or one that serves one read
    at a time), or if the last step still pays.
    """
    curve = sorted((p for p in points if p.reads_per_second > 0), key=lambda p: p.depth)
    if len(curve) < 3:  # noqa: PLR2004  # two steps: one that pays and one that does not
        return Knee(None, "fewer than three depths were measured")
    for index, point in enumerate(curve[:-1]):
        after = curve[index + 1]
        doubled = _p99_doubles(curve, index)
        if not doubled and _gains(curve, index):
            continue
        if index == 0 and not _gains(curve, 0):
            return Knee(None, _plateau_reason(curve))
        if doubled:
            grown = f"{seconds_text(point.p99_seconds)} to {seconds_text(after.p99_seconds)}"
            return Knee(point.depth, f"at depth {after.depth} p99 grows from {grown}")
        ratio = after.reads_per_second / point.reads_per_second
        noise = ", no more than the noise" if ratio >= LEAST_GAIN else ""
        change = f"reads per second change by {_percent(ratio)}{noise}"
        return Knee(point.depth, f"at depth {after.depth} {change}")
    last = _percent(curve[-1].reads_per_second / curve[-2].reads_per_second)
    return Knee(None, f"no knee up to depth {curve[-1].depth}: the last step still adds {last}")


def plateau_reads_per_second(points: Sequence[CurvePoint]) -> float | None:
    """The mean rate over the depths that no longer gain; None if the rate still grows.

    The best single point would be the luckiest one.
    """
    curve = sorted((p for p in points if p.reads_per_second > 0), key=lambda p: p.depth)
    for index in range(len(curve) - 1):
        if not _gains(curve, index):
            flat = [point.reads_per_second for point in curve[index:]]
            return sum(flat) / len(flat)
    return None


def _gains(curve: Sequence[CurvePoint], index: int) -> bool:
    """True if reads per second rise by enough with the next step or with the next two."""
    here = curve[index]
    return any(
        _is_more(here, deeper, LEAST_GAIN**steps)
        for steps, deeper in enumerate(curve[index + 1 : index + 3], start=1)
    )


def _is_more(here: CurvePoint, deeper: CurvePoint, factor: float) -> bool:
    gain = deeper.reads_per_second - here.reads_per_second
    noise = math.hypot(
        here.reads_per_second * (here.error_ratio or 0.0),
        deeper.reads_per_second * (deeper.error_ratio or 0.0),
    )
    enough = deeper.reads_per_second >= factor * here.reads_per_second
    return enough and gain > NOISE_FACTOR * noise


def _p99_doubles(curve: Sequence[CurvePoint], index: int) -> bool:
    """True if p99 doubles both with the next step and with the next two."""
    here = curve[index].p99_seconds
    deeper = [point.p99_seconds for point in curve[index + 1 : index + 3]]
    if here is None or deeper[0] is None:
        return False
    return all(p99 is None or p99 > MOST_P99_GROWTH * here for p99 in deeper)


def _plateau_reason(curve: Sequence[CurvePoint]) -> str:
    first = curve[0]
    rate = number_text(first.reads_per_second)
    mean_seconds = first.depth / first.reads_per_second
    if first.p50_seconds is not None and first.p50_seconds < _BURST_RATIO * mean_seconds:
        return f"no knee: {rate} reads/s in bursts from depth {first.depth} on: a throttled device"
    return (
        f"no knee: {rate} reads/s from depth {first.depth} on: a throttled or plateau device, "
        "or one that serves one read at a time"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"
