"""A load run in three parts: before a change, while it goes on, and after it; pure."""

from __future__ import annotations

from collections.abc import Iterable

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import Phase, PhaseName
from nginx_tune.measure.proof.histogram import Histogram, merge_histograms
from nginx_tune.measure.proof.histogram_log import LogFile, read_intervals

_LEAST_BEYOND = 10
"""Samples beyond a quantile, or it counts as not measured."""
_NANO = 1e-9
_NAMES: tuple[PhaseName, ...] = ("before", "during", "after")


def split_phases(
    measurement: Measurement, log: LogFile, *, changed_unix: float, ended_unix: float
) -> list[Phase]:
    """The phases of a run, from its histograms of each second.

    Shape: a second that the change, or its end, falls into is ``during``.
    Errors: UsageError for a log that cannot be read.
    """
    latencies: dict[PhaseName, list[Histogram]] = {name: [] for name in _NAMES}
    for interval in read_intervals(log):
        name = _phase_of(interval.start_seconds, interval.end_seconds, changed_unix, ended_unix)
        latencies[name].append(interval.histogram())
    began = measurement.started_unix_seconds or 0.0
    seconds: dict[PhaseName, list[int]] = {name: [] for name in _NAMES}
    for index, point in enumerate(measurement.series):
        start = began + point.second
        seconds[_phase_of(start, start + 1.0, changed_unix, ended_unix)].append(index)
    return [_phase(name, measurement, seconds[name], latencies[name]) for name in _NAMES]


def _phase_of(start: float, end: float, changed: float, ended: float) -> PhaseName:
    if end <= changed:
        return "before"
    return "after" if start >= ended else "during"


def _phase(
    name: PhaseName, measurement: Measurement, seconds: list[int], found: Iterable[Histogram]
) -> Phase:
    points = [one for index in seconds for one in measurement.series[index].classes.values()]
    merged = merge_histograms(found)
    return Phase(
        name=name,
        seconds=len(seconds),
        requests=sum(one.requests for one in points),
        failed=sum(one.errors for one in points),
        p50_seconds=_quantile(merged, 0.5),
        p99_seconds=_quantile(merged, 0.99),
        max_seconds=None if merged is None else _seconds(merged.value_at(1.0)),
    )


def _quantile(found: Histogram | None, quantile: float) -> float | None:
    if found is None or found.total * (1.0 - quantile) < _LEAST_BEYOND:
        return None
    return _seconds(found.value_at(quantile))


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * _NANO
