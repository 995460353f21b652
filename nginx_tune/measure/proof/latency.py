"""Statistics of a latency, of one run or of several together.

A quantile counts as measured if at least ten samples lie beyond it. Censored requests (unfinished
at the end of the run, or timed out) are in the histogram at their age and may truly lie anywhere
above it. So a quantile above the youngest of these ages is a lower bound. If the age is not
recorded, ten further samples must lie beyond the quantile. Quantiles of several runs come from
added histograms, never from averaged quantiles.

Coordinated omission: in a stall, each user of a closed loop waits with only one request, although
many would have arrived, so the stall hardly shows in quantiles. Adding the missing requests at
the user's usual pace estimates what a schedule of the same rate would have seen. The estimate is
only a note. Source: Tene, HdrHistogram, ``recordValueWithExpectedInterval``.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import (
    Histogram,
    Layout,
    decode_histogram,
    encode_histogram,
    merge_histograms,
    rank_of,
)

QUANTILES: dict[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
STATISTICS: tuple[str, ...] = (*QUANTILES, "mean", "max", "stdev")

FEWEST_BEYOND = 10
"""Samples that must lie beyond a quantile for it to count as measured."""

_NANOSECONDS = 1e9


@dataclass(frozen=True)
class Reading:
    """A number, a bound on it, or the reason why there is none."""

    value: float | None
    reason: str = ""
    at_least: float | None = None
    """A lower bound, if nothing more is known. ``value`` is then None; for mean and maximum, the
    bound is computed from the requests as far as they were seen."""
    at_most: float | None = None
    """An upper bound, if nothing more is known: a ratio to a lower bound."""

    @property
    def seen(self) -> float | None:
        """The number, or its bound."""
        return self.at_least if self.value is None else self.value

    @property
    def is_bound(self) -> bool:
        """True if only a bound is known."""
        return self.at_least is not None or self.at_most is not None


@dataclass(frozen=True)
class LatencySample:
    """The latency of one class in one run, with the number of requests cut off."""

    latency: Latency
    censored: int = 0
    censored_from_seconds: float | None = None
    """Age of the youngest request cut off."""


def own_sample(latency: Latency) -> LatencySample:
    """A latency with its own count of censored requests."""
    return LatencySample(latency, latency.censored, latency.censored_from_seconds)


def sample_of(part: ClassMeasurement, field: str) -> LatencySample:
    """The latency of a class in ``field``, with its censored requests.

    Older measurements count them only by class.
    """
    latency: Latency = getattr(part, field)
    if part.response_seconds.censored >= part.censored:
        return own_sample(latency)
    return LatencySample(latency, part.censored, part.censored_from_seconds)


def merge_latencies(latencies: Sequence[Latency]) -> Latency:
    """The latency of all samples together, from added histograms.

    Errors: UsageError for a malformed histogram or histograms of different precision.
    """
    filled = [latency for latency in latencies if latency.count]
    if len(filled) < 2:  # noqa: PLR2004  # nothing to add
        return filled[0] if filled else Latency()
    if not all(latency.histogram for latency in filled):
        raise UsageError("a latency without its histogram cannot be added")
    merged = merge_histograms(decode_histogram(latency.histogram) for latency in filled)
    assert merged is not None  # noqa: S101  # there are at least two
    count = merged.total
    highest = _max(filled, count)
    values = {name: _bounded(merged.value_at(share), highest) for name, share in QUANTILES.items()}
    ages = [age for latency in filled if (age := latency.censored_from_seconds) is not None]
    bounds = {**values, "max": highest}
    return Latency(
        count=count,
        mean=_mean(filled, count),
        stdev=_stdev(filled, count),
        max=highest,
        histogram=encode_histogram(merged),
        censored=sum(latency.censored for latency in filled),
        censored_from_seconds=min(ages, default=None),
        at_least=[n for n, v in bounds.items() if ages and v is not None and v >= min(ages)],
        **values,
    )


def _bounded(value: int | None, highest: float | None) -> float | None:
    """A quantile in seconds: the upper end of its histogram bucket, but at most the maximum."""
    if value is None or highest is None:
        return None
    return min(value / _NANOSECONDS, highest)


def read_statistic(samples: Sequence[LatencySample], statistic: str) -> Reading:
    """A statistic of all samples together, in seconds.

    Errors: UsageError for a malformed histogram; KeyError for an unknown statistic.
    """
    count = sum(sample.latency.count for sample in samples)
    if not count:
        return Reading(None, "no samples")
    filled = [sample.latency for sample in samples if sample.latency.count]
    if statistic in QUANTILES:
        return _checked_quantile(samples, filled, statistic, count)
    value = _MOMENTS[statistic](filled, count)
    if value is None:
        return Reading(None, f"the measurement has no {statistic}")
    censored = sum(sample.censored for sample in samples)
    if censored and statistic in _GROWING:
        return Reading(value, f"at least {value:.3g} s, {censored:,} unfinished", at_least=value)
    return Reading(value)


def _checked_quantile(
    samples: Sequence[LatencySample], filled: list[Latency], name: str, count: int
) -> Reading:
    beyond = count - rank_of(QUANTILES[name], count)
    cut_off = [sample for sample in samples if sample.censored]
    ages = [age for sample in cut_off if (age := sample.censored_from_seconds) is not None]
    censored = sum(sample.censored for sample in cut_off)
    dated = len(ages) == len(cut_off)
    if beyond - (0 if dated else censored) < FEWEST_BEYOND:
        short = f"{beyond} of {count:,} samples lie beyond it, {FEWEST_BEYOND} are needed"
        besides = f" besides {censored} unfinished requests" if not dated else ""
        return Reading(None, f"{name} not measured: {short}{besides}")
    reading = _quantile(filled, name)
    if reading.value is not None and dated and ages and reading.value > min(ages):
        return Reading(
            None,
            f"{name} not measured: at least {reading.value:.3g} s, {censored:,} unfinished",
            at_least=reading.value,
        )
    return reading


def _quantile(latencies: list[Latency], name: str) -> Reading:
    if len(latencies) == 1 and (recorded := getattr(latencies[0], name)) is not None:
        return Reading(recorded)
    if not all(latency.histogram for latency in latencies):
        return Reading(None, f"{name} not measured: a run has no histogram")
    merged = merge_histograms(decode_histogram(latency.histogram) for latency in latencies)
    value = None if merged is None else merged.value_at(QUANTILES[name])
    if value is None:
        return Reading(None, f"{name} not measured: the histogram is empty")
    return Reading(value / _NANOSECONDS)


def _mean(latencies: list[Latency], count: int) -> float | None:
    parts = [latency.mean * latency.count for latency in latencies if latency.mean is not None]
    return math.fsum(parts) / count if len(parts) == len(latencies) else None


def _max(latencies: list[Latency], _count: int) -> float | None:
    return max((latency.max for latency in latencies if latency.max is not None), default=None)


def _stdev(latencies: list[Latency], count: int) -> float | None:
    mean = _mean(latencies, count)
    squares = [
        latency.count * (latency.stdev**2 + latency.mean**2)
        for latency in latencies
        if latency.stdev is not None and latency.mean is not None
    ]
    if mean is None or len(squares) != len(latencies):
        return None
    return math.sqrt(max(math.fsum(squares) / count - mean**2, 0.0))


_GROWING = ("mean", "max")
"""Statistics that can only grow if a censored request takes longer."""

_MOMENTS = {"mean": _mean, "max": _max, "stdev": _stdev}


_LAYOUT = Layout(unit_bits=0, half_bits=7)
"""Layout of the histogram, exact to two digits: 128 counters per doubling."""


def latency_of(values: Mapping[int, int]) -> Latency:
    """The latency of values in nanoseconds, each with its count."""
    total = sum(values.values())
    if not total:
        return Latency()
    mean = math.fsum(value * count for value, count in values.items()) / total
    squares = math.fsum(count * (value - mean) ** 2 for value, count in values.items())
    ascending = sorted(values)
    counters: Counter[int] = Counter()
    for value in ascending:
        counters[_LAYOUT.index_of(value)] += values[value]
    quantiles = {
        name: _value_at(quantile, ascending, values) for name, quantile in QUANTILES.items()
    }
    return Latency(
        count=total,
        mean=mean / 1e9,
        stdev=math.sqrt(squares / total) / 1e9,
        p50=quantiles["p50"] / 1e9,
        p90=quantiles["p90"] / 1e9,
        p99=quantiles["p99"] / 1e9,
        p999=quantiles["p999"] / 1e9,
        max=ascending[-1] / 1e9,
        histogram=encode_histogram(Histogram(_LAYOUT, dict(counters))),
    )


def _value_at(quantile: float, ascending: list[int], values: Mapping[int, int]) -> int:
    rank = rank_of(quantile, sum(values.values()))
    seen = 0
    for value in ascending:
        seen += values[value]
        if seen >= rank:
            return value
    return ascending[-1]


_LEAST_RATIO = 2.0
_LEAST_SECONDS = 0.001
"""The ratio and the difference that a stall must reach to be reported."""

_HALVINGS = 60


@dataclass(frozen=True)
class HiddenStall:
    """The p99 as measured, and as estimated for a schedule."""

    p99_seconds: float
    scheduled_p99_seconds: float
    max_seconds: float


def hidden_stall(part: ClassMeasurement, duration_seconds: float) -> HiddenStall | None:
    """The stall that the quantiles of a closed loop hide; None for open loops and small stalls."""
    latency = part.response_seconds
    if not part.users or not latency.histogram or not latency.count or duration_seconds <= 0:
        return None
    pace = part.users * duration_seconds / latency.count * _NANOSECONDS
    histogram = decode_histogram(latency.histogram)
    seen = (histogram.value_at(0.99) or 0) / _NANOSECONDS
    scheduled = scheduled_quantile(histogram, 0.99, pace) / _NANOSECONDS
    if scheduled < _LEAST_RATIO * seen or scheduled - seen < _LEAST_SECONDS:
        return None
    return HiddenStall(seen, scheduled, latency.max or 0.0)


def scheduled_quantile(histogram: Histogram, share: float, pace: float) -> float:
    """The quantile with the omitted requests added, one for every ``pace`` of a longer wait.

    A request of latency v also represents those due meanwhile: v - pace, v - 2 pace, ….
    """
    middle = histogram.layout.middle_value
    values = [(float(middle(index)), count) for index, count in histogram.counts.items()]
    total = sum(count * max(value // pace, 1.0) for value, count in values)
    most_above = total * (1 - share)
    low, high = 0.0, max((value for value, _ in values), default=0.0)
    for _ in range(_HALVINGS):
        at = (low + high) / 2
        above = sum(
            count * min(max(value // pace, 1.0), 1 + (value - at) // pace)
            for value, count in values
            if value > at
        )
        low, high = (at, high) if above > most_above else (low, at)
    return high
