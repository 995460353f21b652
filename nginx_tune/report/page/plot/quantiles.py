"""Latency by quantile, the tail stretched by its number of nines: a curve for each arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.blocks import counts_for
from nginx_tune.measure.proof.histogram import Histogram, decode_histogram, merge_histograms
from nginx_tune.report.page.plot.axis import LogAxis, Tick, log_axis
from nginx_tune.report.page.plot.curves import (
    CurveLine,
    CurvePlot,
    height_for,
    place_of_arm,
    spread,
)
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import number_text, seconds_text

_NANOSECONDS = 1e9
_STEPS_PER_NINE = 24
_FEWEST_BEYOND = 10
"""A curve ends where fewer samples than this lie beyond: past it chance draws it."""
_NAMES = {1.0: "p90", 2.0: "p99", 3.0: "p99.9", 4.0: "p99.99", 5.0: "p99.999"}
_FIRST_NINES = -math.log10(0.9)
"""Below the tenth percentile single lucky requests would stretch the axis."""
_MEDIAN_NINES = -math.log10(0.5)


def quantile_plots(measurements: Sequence[Measurement]) -> list[CurvePlot]:
    """One for each request class that has samples; blocks that do not count are left out.

    A histogram that cannot be read leaves its class without a plot.
    """
    classes = dict.fromkeys(name for one in measurements for name in one.classes)
    plots = [_of_class(name, measurements) for name in classes]
    return [plot for plot in plots if plot is not None]


def histogram_plot(title: str, name: str, histogram: str) -> CurvePlot | None:
    """One for a histogram by itself; None when it is empty or cannot be read."""
    try:
        decoded = decode_histogram(histogram) if histogram else None
    except UsageError:
        return None
    return _plot(title, {name: decoded}, "counted") if decoded and decoded.total else None


def _of_class(name: str, measurements: Sequence[Measurement]) -> CurvePlot | None:
    arms = sorted({one.arm for one in measurements}, key=place_of_arm)
    try:
        found = {arm: _merged(name, arm, measurements) for arm in arms}
    except UsageError:
        return None
    histograms = {arm: one for arm, one in found.items() if one is not None and one.total}
    if not histograms:
        return None
    return _plot(f"Latency of {one_line(name)}", histograms, "requests")


def _merged(name: str, arm: str, measurements: Sequence[Measurement]) -> Histogram | None:
    texts = [
        one.classes[name].response_seconds.histogram
        for one in measurements
        if one.arm == arm and name in one.classes and counts_for(one, name)
    ]
    return merge_histograms([decode_histogram(text) for text in texts if text])


def _plot(title: str, histograms: Mapping[str, Histogram], counted: str) -> CurvePlot | None:
    lines = {arm: _line(histogram) for arm, histogram in histograms.items()}
    axis = log_axis([seconds for line in lines.values() for _, seconds in line])
    if axis is None:
        return None
    most = max(max(nines for nines, _ in line) for line in lines.values())
    curves = [
        _curve(one_line(arm), line, axis, most, number + (len(lines) == 1))
        for number, (arm, line) in enumerate(lines.items())
    ]
    height_rem = height_for(curves)
    counts = ", ".join(
        f"{one_line(arm)} {number_text(histogram.total)}".strip()
        for arm, histogram in histograms.items()
    )
    return CurvePlot(
        title,
        f"By quantile, each nine as wide as the one before; {counted}: {counts}. "
        f"A curve ends where fewer than {_FEWEST_BEYOND} lie beyond.",
        spread(curves, height_rem),
        [
            Tick(_across(nines, most), text)
            for nines, text in {_MEDIAN_NINES: "median", **_NAMES}.items()
            if nines <= most
        ],
        [Tick(round(100 - tick.percent, 3), tick.text) for tick in axis.ticks(seconds_text)],
        height_rem,
    )


def _across(nines: float, most: float) -> float:
    """In percent of the plot's width."""
    return round(100 * (nines - _FIRST_NINES) / (most - _FIRST_NINES), 2)


def _line(histogram: Histogram) -> list[tuple[float, float]]:
    """Points (nines, seconds), from the tenth percentile to where ten samples lie beyond."""
    beyond = max(histogram.total / _FEWEST_BEYOND, 2.0)
    most = math.log10(beyond)
    steps = max(2, math.ceil(most * _STEPS_PER_NINE))
    points = []
    for step in range(steps + 1):
        nines = _FIRST_NINES + (most - _FIRST_NINES) * step / steps
        value = histogram.value_at(1 - 10.0**-nines)
        if value is not None:
            points.append((nines, max(value, 1) / _NANOSECONDS))
    return points


def _curve(
    name: str, line: Sequence[tuple[float, float]], axis: LogAxis, most: float, number: int
) -> CurveLine:
    places = [
        (_across(nines, most), round(100 - axis.percent(seconds), 2)) for nines, seconds in line
    ]
    points = " ".join(f"{x:g},{y:g}" for x, y in places)
    return CurveLine(
        f"{name} {seconds_text(line[-1][1])}".strip(), [points], places[-1], places[-1][1], number
    )
