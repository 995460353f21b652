"""Latency by quantile, the tail stretched by its number of nines: a curve for each arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.prove.blocks import counts_for
from nginx_tune.prove.histogram import Histogram, decode_histogram, merge_histograms
from nginx_tune.report.plot_axis import LogAxis, Tick, log_axis
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import number_text, seconds_text

_NANOSECONDS = 1e9
_STEPS_PER_NINE = 24
_FEWEST_BEYOND = 10
"""A curve ends where fewer samples than this lie beyond: past it chance draws it."""
_LEAST_HEIGHT_REM = 16.0
_LABEL_HEIGHT_REM = 1.4
_NAMES = {1.0: "p90", 2.0: "p99", 3.0: "p99.9", 4.0: "p99.99", 5.0: "p99.999"}
_FIRST_NINES = -math.log10(0.9)
"""Below the tenth percentile single lucky requests would stretch the axis."""
_MEDIAN_NINES = -math.log10(0.5)


@dataclass(frozen=True)
class Curve:
    """One arm, as the points of a polyline in percent."""

    name: str
    points: str
    end: tuple[float, float]
    """In percent from the left and from the top."""
    label_top: float
    """Where its label stands, in percent from the top, clear of the others."""
    number: int
    """Which colour."""


@dataclass(frozen=True)
class QuantilePlot:
    """Curves over nines and seconds."""

    title: str
    caption: str
    curves: Sequence[Curve]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    height_rem: float = _LEAST_HEIGHT_REM
    kind: str = "quantiles"


def quantile_plots(measurements: Sequence[Measurement]) -> list[QuantilePlot]:
    """One for each request class that has samples; blocks that do not count are left out.

    A histogram that cannot be read leaves its class without a plot.
    """
    classes = dict.fromkeys(name for one in measurements for name in one.classes)
    plots = [_of_class(name, measurements) for name in classes]
    return [plot for plot in plots if plot is not None]


def _of_class(name: str, measurements: Sequence[Measurement]) -> QuantilePlot | None:
    arms = sorted({one.arm for one in measurements}, key=_place)
    try:
        found = {arm: _merged(name, arm, measurements) for arm in arms}
    except UsageError:
        return None
    histograms = {arm: one for arm, one in found.items() if one is not None and one.total}
    if not histograms:
        return None
    return _plot(name, histograms)


def _place(arm: str) -> tuple[int, str]:
    """The baseline first, the candidate next: an arm has its colour on every page."""
    return ({"baseline": 0, "candidate": 1}.get(arm, 2), arm)


def _merged(name: str, arm: str, measurements: Sequence[Measurement]) -> Histogram | None:
    texts = [
        one.classes[name].response_seconds.histogram
        for one in measurements
        if one.arm == arm and name in one.classes and counts_for(one, name)
    ]
    return merge_histograms([decode_histogram(text) for text in texts if text])


def _plot(name: str, histograms: Mapping[str, Histogram]) -> QuantilePlot | None:
    lines = {arm: _line(histogram) for arm, histogram in histograms.items()}
    axis = log_axis([seconds for line in lines.values() for _, seconds in line])
    if axis is None:
        return None
    most = max(max(nines for nines, _ in line) for line in lines.values())
    curves = [
        _curve(one_line(arm) or one_line(name), line, axis, most, number + (len(lines) == 1))
        for number, (arm, line) in enumerate(lines.items())
    ]
    height_rem = max(_LEAST_HEIGHT_REM, _LABEL_HEIGHT_REM * (len(curves) + 1))
    counts = ", ".join(
        f"{one_line(arm)} {number_text(histogram.total)}".strip()
        for arm, histogram in histograms.items()
    )
    return QuantilePlot(
        f"Latency of {one_line(name)}",
        f"By quantile, each nine as wide as the one before; requests: {counts}. "
        f"A curve ends where fewer than {_FEWEST_BEYOND} lie beyond.",
        _spread(curves, height_rem),
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
) -> Curve:
    places = [
        (_across(nines, most), round(100 - axis.percent(seconds), 2)) for nines, seconds in line
    ]
    points = " ".join(f"{x:g},{y:g}" for x, y in places)
    return Curve(f"{name} {seconds_text(line[-1][1])}", points, places[-1], places[-1][1], number)


def _spread(curves: Sequence[Curve], height_rem: float) -> list[Curve]:
    """The curves with their labels far enough from each other to be read, the topmost first."""
    gap = 100 * _LABEL_HEIGHT_REM / height_rem
    ordered = sorted(curves, key=lambda one: one.end[1])
    tops: list[float] = []
    for curve in ordered:
        tops.append(max(curve.end[1], tops[-1] + gap if tops else 0.0))
    bottom = 100.0
    for number in reversed(range(len(tops))):
        tops[number] = min(tops[number], bottom)
        bottom = tops[number] - gap
    return [
        replace(curve, label_top=round(top, 2)) for curve, top in zip(ordered, tops, strict=True)
    ]
