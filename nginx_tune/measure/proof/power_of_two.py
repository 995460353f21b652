"""Latency histograms in buckets of powers of two.

Powers of two (in nanoseconds) are boundaries between counters of an HdrHistogram, so each bucket is
an exact sum of whole counters.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measurement import Bucket, LatencyHistogram, Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import Histogram, decode_histogram
from nginx_tune.measure.proof.latency import (
    LatencySample,
    merge_latencies,
    read_statistic,
    sample_of,
)
from nginx_tune.measure.proof.metrics import SERVER_LATENCIES
from nginx_tune.measure.proof.runs import counts_for

EVERY = "all"
"""The name that selects every latency with samples."""

_OF_CLASS = {
    "": "response_seconds",
    ".ttfb": "ttfb_seconds",
    ".service": "service_seconds",
    ".arrival": "arrival_seconds",
    ".connect": "connect_seconds",
    ".tls": "tls_seconds",
    ".round_trip": "round_trip_seconds",
    ".failed": "failed_seconds",
}
_OF_SERVER = {f"server.{field}": field for field in SERVER_LATENCIES}
_LATENESS = "generator.lateness"
_NANOSECONDS = 1e9


def latency_names(classes: Iterable[str]) -> list[str]:
    """The names of all latencies of measurements with these classes."""
    of_classes = [f"{name}{tail}" for name in classes for tail in _OF_CLASS]
    return [*of_classes, *_OF_SERVER, _LATENESS]


def check_latencies(names: Sequence[str], classes: Sequence[str]) -> None:
    """Check that each name is a latency. Errors: UsageError with similar names."""
    known = latency_names(classes)
    for name in names:
        if name not in (*known, EVERY):
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
            raise UsageError(
                f"no latency '{name[:80]}'", hint=f"such as {', '.join(near)}, or {EVERY}"
            )


def histograms_of(
    measurements: Sequence[Measurement], names: Sequence[str] = (), *, discard: bool = False
) -> list[LatencyHistogram]:
    """The histograms of latencies, by variant; without names, of every class.

    ``discard``: true to leave out runs whose flags discard them from a verdict.
    Errors: UsageError for an unknown name, a malformed histogram, or histograms of different
            precision.
    """
    classes = list(
        dict.fromkeys(name for measurement in measurements for name in measurement.classes)
    )
    check_latencies(names, classes)
    every = EVERY in names
    chosen = latency_names(classes) if every else list(dict.fromkeys(names)) or classes
    variants = dict.fromkeys(run.variant for run in measurements)
    histograms = [
        _of_variant(
            name, variant, [run for run in measurements if run.variant == variant], discard=discard
        )
        for name in chosen
        for variant in variants
    ]
    return [histogram for histogram in histograms if histogram.count or not every]


def power_buckets(histogram: Histogram) -> list[Bucket]:
    """The counts by powers of two, from the first bucket that is not empty to the last.

    Values below the histogram's unit are in one bucket from 0.
    """
    layout = histogram.layout
    counts: Counter[int] = Counter()
    for index, count in histogram.counts.items():
        counts[layout.lowest_value(index).bit_length()] += count
    filled = [bits for bits, count in counts.items() if count]
    if not filled:
        return []
    # The counter with the lowest value 0 ends at the unit.
    unit = layout.unit_bits
    powers = [bits for bits in range(min(filled), max(filled) + 1) if not 0 < bits <= unit]
    return [
        Bucket(
            from_seconds=(1 << (bits - 1)) / _NANOSECONDS if bits else 0.0,
            below_seconds=(1 << (bits or unit)) / _NANOSECONDS,
            count=counts[bits],
        )
        for bits in powers
    ]


def _of_variant(
    name: str, variant: str, runs: Sequence[Measurement], *, discard: bool
) -> LatencyHistogram:
    counted = [measurement for measurement in runs if not discard or counts_for(measurement, name)]
    samples = [
        found for measurement in counted if (found := _sample(measurement, name)) is not None
    ]
    latency = merge_latencies([sample.latency for sample in samples])
    histogram = decode_histogram(latency.histogram) if latency.histogram else None
    first = min(histogram.counts, default=None) if histogram else None
    least = None if first is None or histogram is None else histogram.layout.lowest_value(first)
    return LatencyHistogram(
        latency=name,
        variant=variant,
        runs=len(samples),
        left_out=len(runs) - len(counted),
        count=latency.count,
        min_seconds=None if least is None else least / _NANOSECONDS,
        mean_seconds=latency.mean,
        median_seconds=latency.p50,
        max_seconds=latency.max,
        stdev_seconds=latency.stdev,
        censored=sum(sample.censored for sample in samples),
        at_least=_bounds(samples, latency),
        buckets=power_buckets(histogram) if histogram else [],
    )


def _bounds(samples: Sequence[LatencySample], latency: Latency) -> list[str]:
    """The statistics that are lower bounds because of unfinished requests."""
    if not latency.count:
        return []
    named = {"mean": "mean", "median": "p50", "max": "max"}
    return [
        word for word, statistic in named.items() if read_statistic(samples, statistic).is_bound
    ]


def _sample(run: Measurement, name: str) -> LatencySample | None:
    """A latency of a run; None if the run has no latency of that name."""
    if name == _LATENESS:
        return LatencySample(run.generator.lateness_seconds)
    if name in _OF_SERVER:
        found = getattr(run.server, _OF_SERVER[name])
        if found is None:
            return None
        return LatencySample(
            found, found.censored if found.at_least else 0, found.censored_from_seconds
        )
    for tail, field in _OF_CLASS.items():
        head = name.removesuffix(tail)
        if name.endswith(tail) and head in run.classes:
            part = run.classes[head]
            return (
                LatencySample(part.failed_seconds) if tail == ".failed" else sample_of(part, field)
            )
    return None
