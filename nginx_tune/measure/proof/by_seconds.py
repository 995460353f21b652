"""The cross-check of a verdict: the same ratio from the seconds inside the blocks, resampled.

A verdict sees one number of each block. Where a single second made that number, it cannot know;
the seconds can. So for every metric that came out as something, pairs are drawn again, and inside
each half runs of neighbouring seconds, and the interval of the ratio is set beside the outcome.
Where the two do not go together the report says so. The outcome stays: seconds resemble their
neighbours, so an interval from them is no proof of its own.

A class's quantile is here the mean of its seconds' quantiles, a near relation of the block's own.

Sources: Künsch 1989 and Politis and Romano 1992 (blocks of neighbours); Davison and Hinkley 1997,
3.8 (two levels); Hesterberg 2015, "What teachers should know about the bootstrap" (percentiles
widened for few pairs).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from itertools import islice
from statistics import NormalDist

from msgspec.structs import replace

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import MetricVerdict, Outcome, SecondsCheck
from nginx_tune.measure.proof.blocks import Blocks
from nginx_tune.measure.proof.bootstrap import Series, percentile_interval, resample
from nginx_tune.measure.proof.comparison import Criterion
from nginx_tune.measure.proof.steady import whole_seconds
from nginx_tune.measure.proof.windows import read_window

_SETTLED = ("better", "worse", "no_difference")
_FEWEST_PAIRS = 6
_FEWEST_SECONDS = 5
_WITHIN = 200
"""Windows drawn of each half."""
_EXPERIMENTS = 4000

SeriesPair = tuple[Series, Series]
SeriesOf = dict[int, dict[str, Series]]
"""By block, then by metric."""


def with_seconds_checks(
    metrics: Sequence[MetricVerdict], blocks: Blocks, bar: Criterion, *, seed: int
) -> list[MetricVerdict]:
    """The metrics, those with an outcome and a ratio beside what their seconds say."""
    settled = [metric.name for metric in metrics if metric.outcome in _SETTLED and metric.low]
    if not settled or len(blocks.pairs) < _FEWEST_PAIRS:
        return list(metrics)
    series = {block.block: _series(block) for block in blocks.baseline + blocks.candidate}
    return [
        replace(metric, by_seconds=_check(metric, _pairs(metric.name, blocks, series), bar, seed))
        if metric.name in settled
        else metric
        for metric in metrics
    ]


def ratio_by_seconds(
    pairs: Sequence[SeriesPair], *, alpha: float, seed: str
) -> tuple[float, float] | None:
    """The interval of candidate / baseline over pairs of series of seconds.

    None where a resampled window is zero, so that it has no ratio.
    """
    drawn = []
    for number, (baseline, candidate) in enumerate(pairs):
        below = resample(baseline, f"{seed} {number} baseline", windows=_WITHIN)
        above = resample(candidate, f"{seed} {number} candidate", windows=_WITHIN)
        if not all(value > 0 for value in (*below, *above)):  # nan is not above 0 either
            return None
        drawn.append([math.log(a / b) for a, b in zip(above, below, strict=True)])
    size = len(drawn)
    stream = hashlib.shake_128(f"{seed} pairs".encode()).digest(4 * size * _EXPERIMENTS)
    # 65,536 numbers choose one of some dozens, and one of 200: near enough to even.
    chosen = (
        drawn[pair * size >> 16][window * _WITHIN >> 16]
        for pair, window in struct.iter_unpack(">HH", stream)
    )
    means = [math.fsum(islice(chosen, size)) / size for _ in range(_EXPERIMENTS)]
    interval = percentile_interval(means, _widened(alpha, size))
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def _check(
    metric: MetricVerdict, pairs: Sequence[SeriesPair], bar: Criterion, seed: int
) -> SecondsCheck | None:
    if len(pairs) < _FEWEST_PAIRS:
        return None
    interval = ratio_by_seconds(pairs, alpha=bar.alpha, seed=f"seconds {seed} {metric.name}")
    if interval is None:
        return None
    low, high = interval
    agrees = _agrees(metric.outcome, metric.ratio or 1.0, low, high, 1 + bar.margin)
    return SecondsCheck(low=low, high=high, level=1 - bar.alpha, agrees=agrees)


def _agrees(outcome: Outcome, ratio: float, low: float, high: float, edge: float) -> bool:
    """Whether the interval may stand beside the outcome."""
    if outcome == "no_difference":
        return low <= edge and high >= 1 / edge
    return low > 1 if ratio > 1 else high < 1


def _pairs(name: str, blocks: Blocks, series: SeriesOf) -> list[SeriesPair]:
    """The seconds of all pairs that count for a metric; none when any lacks them."""
    found = []
    for pair in blocks.counting_for(name).pairs:
        baseline = series[pair.baseline.block].get(name)
        candidate = series[pair.candidate.block].get(name)
        if baseline is None or candidate is None:
            return []
        if min(len(baseline), len(candidate)) < _FEWEST_SECONDS:
            return []
        found.append((baseline, candidate))
    return found


def _series(block: Measurement) -> dict[str, Series]:
    return read_window(replace(block, series=whole_seconds(block))).series


def _widened(alpha: float, size: int) -> float:
    """The share to leave outside, so that an interval from few pairs holds what it promises.

    Units drawn from n vary by (n - 1) / n too little, and their own spread is not known for sure:
    Student's quantile (Abramowitz and Stegun 26.7.5) in the place of the normal one.
    """
    z, free = -NormalDist().inv_cdf(alpha / 2), size - 1
    student = (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )
    return 2 * NormalDist().cdf(-math.sqrt(size / free) * student)
