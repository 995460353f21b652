"""Counts of exact values as a latency: its statistics and its histogram."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from nginx_tune.documents.measured_class import Latency
from nginx_tune.measure.proof.histogram import Histogram, Layout, encode_histogram, rank_of
from nginx_tune.measure.proof.latency import QUANTILES

_LAYOUT = Layout(unit_bits=0, half_bits=7)
"""Two digits: 128 counters per doubling."""


def latency_of(values: Mapping[int, int]) -> Latency:
    """The latency of values in nanoseconds with how often each was seen."""
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
    wanted = rank_of(quantile, sum(values.values()))
    seen = 0
    for value in ascending:
        seen += values[value]
        if seen >= wanted:
            return value
    return ascending[-1]
