"""The shape of a distribution in one line of text."""

from __future__ import annotations

import math

from nginx_tune.documents.measured_class import Latency
from nginx_tune.prove.histogram import decode_histogram
from nginx_tune.report.text import seconds_text

_BARS = "▁▂▃▄▅▆▇█"
_BINS = 32
_NANOSECONDS = 1e9


def shape_of(latency: Latency) -> str:
    """From the least to the largest value in bins of equal ratio, each as high as its share.

    A bin with any sample shows: its height goes by the root of its share. Empty when all values
    are alike, or none is there.
    """
    if not latency.histogram or latency.count < 2:  # noqa: PLR2004  # no shape
        return ""
    histogram = decode_histogram(latency.histogram)
    values = [(histogram.layout.middle_value(i) or 1, n) for i, n in histogram.counts.items()]
    least, most = values[0][0], values[-1][0]
    if most <= least:
        return ""
    bins = [0] * _BINS
    span = math.log(most / least)
    for value, count in values:
        bins[min(int(math.log(value / least) / span * _BINS), _BINS - 1)] += count
    top = math.sqrt(max(bins))
    bars = "".join(
        _BARS[min(int(math.sqrt(n) / top * len(_BARS)), len(_BARS) - 1)] if n else " " for n in bins
    )
    return f"{seconds_text(least / _NANOSECONDS)} {bars} {seconds_text(most / _NANOSECONDS)}"
