"""Statistics of a latency, of one block or of several together, as far as they were measured.

A quantile is measured when at least ten samples lie beyond it. Requests that were cut off
(censored: unfinished at the end of the run, or failed because their time was up) stand in the
histogram at their age and may in truth lie anywhere above it, so a quantile is known only below
the age of the youngest of them: from there on it is at least so much. Where that age is not
recorded, ten samples besides them must lie beyond it. Quantiles of several blocks
come from the added histograms, never from an average of quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import (
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
    """A number, or why there is none."""

    value: float | None
    reason: str = ""
    at_least: float | None = None
    """What it is no less than, where it is known as a lower bound alone. ``value`` is then null,
    or, of a mean and a maximum, what they are among the requests as far as these were seen."""
    at_most: float | None = None
    """What it is no more than, where it is known as an upper bound alone: a ratio to such."""

    @property
    def seen(self) -> float | None:
        """The number, or its bound."""
        return self.at_least if self.value is None else self.value

    @property
    def is_bound(self) -> bool:
        """Whether it is known as a bound alone."""
        return self.at_least is not None or self.at_most is not None


@dataclass(frozen=True)
class LatencySample:
    """The latency of one class in one block, with the number of requests cut off."""

    latency: Latency
    censored: int = 0
    censored_from_seconds: float | None = None
    """Age of the youngest request cut off."""


def own_sample(latency: Latency) -> LatencySample:
    """A latency with the lower bounds that it tells itself."""
    return LatencySample(latency, latency.censored, latency.censored_from_seconds)


def sample_of(part: ClassMeasurement, field: str) -> LatencySample:
    """The latency of a class in ``field``, with its own unfinished requests.

    Measurements of before latencies told these themselves have them by class alone.
    """
    latency: Latency = getattr(part, field)
    if part.response_seconds.censored >= part.censored:
        return own_sample(latency)
    return LatencySample(latency, part.censored, part.censored_from_seconds)


def merge_latencies(latencies: Sequence[Latency]) -> Latency:
    """The latency of all samples together, exactly: histograms add.

    Errors: UsageError for a malformed histogram or histograms of different precision.
    """
    filled = [latency for latency in latencies if latency.count]
    if len(filled) < 2:  # noqa: PLR2004  # nothing to add
        return filled[0] if filled else Latency()
    if not all(latency.histogram for latency in filled):
        raise UsageError("a latency without its histogram cannot be added")
    merged = merge_histograms(decode_histogram(latency.histogram) for latency in filled)
    assert merged is not None  # noqa: S101  # there are two at least
    count = merged.total
    highest = _max(filled, count)
    values = {name: _told(merged.value_at(share), highest) for name, share in QUANTILES.items()}
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


def _told(value: int | None, highest: float | None) -> float | None:
    """A quantile as the probe tells it: the end of its counter, but no more than the maximum."""
    if value is None or highest is None:
        return None
    return min(value / _NANOSECONDS, highest)


def read_own(found: tuple[Sequence[object], str], field: str, statistic: str) -> Reading:
    """A statistic of what parts tell in ``field``; ``found`` has them, or why there are none."""
    parts, reason = found
    if reason:
        return Reading(None, reason)
    return read_statistic([own_sample(getattr(part, field)) for part in parts], statistic)


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
        return Reading(None, f"{name} not measured: a block has no histogram")
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
"""What can only grow when a request that was cut off turns out to take longer."""

_MOMENTS = {"mean": _mean, "max": _max, "stdev": _stdev}
