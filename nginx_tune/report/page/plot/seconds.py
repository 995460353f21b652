"""Latency by second, run after run, with failed requests.

A run that does not count keeps its space on the time axis but has no curve: curves are drawn only
for runs that enter the figures.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from nginx_tune.documents.measured_server import ServerSecond
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import plural
from nginx_tune.report.page.plot.curves import (
    CurveLine,
    CurvePlot,
    LogAxis,
    Tick,
    height_for,
    log_axis,
    place_of_variant,
    points_text,
    spread,
)
from nginx_tune.report.text import number_text, one_line, seconds_text

_MOST_POINTS = 300
"""Maximum number of points across a plot; in a longer run, a point is several seconds."""
_FEWEST_SECONDS = 3
_MOST_VARIANTS_WITH_MEDIAN = 3
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
_MOST_TICKS = 7
_MINUTE = 60


@dataclass
class _Line:
    """A curve being built: stretches of points (second, latency in seconds)."""

    name: str
    number: int
    is_faint: bool
    stretches: list[list[tuple[float, float]]] = field(default_factory=list)


def seconds_plots(
    measurements: Sequence[Measurement], counting: Sequence[Measurement] | None = None
) -> list[CurvePlot]:
    """One plot for each request class with values by second; runs follow in their order.

    ``counting``: the runs that count, with the classes that count in each; None for all.
    """
    runs = sorted(
        (measurement for measurement in measurements if measurement.series),
        key=lambda measurement: measurement.number,
    )
    lengths = [max(point.second for point in run.series) + 1 for run in runs]
    if not 0 <= sum(lengths) < 1 << 31 or sum(lengths) < _FEWEST_SECONDS:
        return []
    starts = list(accumulate(lengths, initial=0))
    of = measurements if counting is None else counting
    counted = {(run.number, name) for run in of for name in run.classes}
    classes = dict.fromkeys(name for run in runs for name in run.classes)
    plots = [
        _of_class(name, runs, starts, [(run.number, name) in counted for run in runs])
        for name in classes
    ]
    return [plot for plot in plots if plot is not None]


def loop_plot(series: Sequence[ServerSecond]) -> CurvePlot | None:
    """The duration of loop turns by second: the 99th percentile and the longest."""
    whole = max((run.second for run in series), default=0) + 1
    if len(series) < _FEWEST_SECONDS or min(run.second for run in series) < 0:
        return None
    width = math.ceil(whole / _MOST_POINTS)
    longest = [(run.second, run.loop_turn_max_seconds) for run in series]
    p99 = [(run.second, run.loop_turn_p99_seconds) for run in series]
    lines = [
        _Line("longest", 0, True, _stretches(longest, 0, width, max)),
        _Line("p99", 1, False, _stretches(p99, 0, width, max)),
    ]
    caption = f"The longest turn and the 99th percentile of each {_each(width)}."
    return _plot("Loop turns by second", caption, lines, whole, [])


def _of_class(
    name: str, runs: Sequence[Measurement], starts: Sequence[int], counts: Sequence[bool]
) -> CurvePlot | None:
    """The plot of a class. ``starts``: the first second of each run, and the end of the last."""
    whole = starts[-1]
    width = math.ceil(whole / _MOST_POINTS)
    variants = sorted({run.variant for run in runs}, key=place_of_variant)
    lines = {}
    for number, variant in enumerate(variants):
        colour = number + (len(variants) == 1)
        shown = one_line(variant)
        lines[variant] = (
            _Line(f"{shown} p99".strip(), colour, False),
            _Line(f"{shown} p50".strip(), colour, True),
        )
    failed: dict[int, int] = {}
    grey = []
    for run, (start, end), is_counted in zip(runs, pairwise(starts), counts, strict=True):
        if not is_counted:
            grey.append((start, end))
            continue
        seconds = [
            (series.second, series.classes[name]) for series in run.series if name in series.classes
        ]
        p99, p50 = lines[run.variant]
        p99.stretches += _stretches([(n, second.p99) for n, second in seconds], start, width, max)
        p50.stretches += _stretches(
            [(n, second.p50) for n, second in seconds], start, width, statistics.median
        )
        failed |= {start + second: glance.errors for second, glance in seconds if glance.errors > 0}
    caption = (
        f"Of each {_each(width)}, runs one after another as they ran: p99 strong, p50 thin"
        + (
            "; for several seconds together, the highest p99 and the median p50. "
            if width > 1
            else ". "
        )
        + _failures(failed)
        + _left_out(grey)
    )
    drawn = [
        line
        for number, pair in enumerate(lines.values())
        for line in pair[: _drawn(number, len(variants))]
    ]
    plot = _plot(f"By second: {one_line(name)}", caption, drawn, whole, sorted(failed))
    return plot and replace(plot, grey=[_across(*span, whole) for span in _joined(grey)])


def _drawn(number: int, variants: int) -> int:
    """The number of curves of a variant; if there are many variants, only two have a median."""
    return 2 if variants <= _MOST_VARIANTS_WITH_MEDIAN or number < 2 else 1  # noqa: PLR2004


def _failures(failed: dict[int, int]) -> str:
    if not failed:
        return "No request failed."
    requests = number_text(sum(failed.values()))
    return f"{requests} failed, in {plural(len(failed), 'second')}: marked on the lower edge."


def _left_out(grey: Sequence[tuple[int, int]]) -> str:
    if not grey:
        return ""
    runs = plural(len(grey), "run")
    return (
        f" Grey without a curve: {runs} of pairs that do not count; the figures leave them out too."
    )


def _each(width: int) -> str:
    return "second" if width == 1 else f"{width} seconds"


def _stretches(
    values: Sequence[tuple[int, float | None]],
    start: int,
    width: int,
    together: Callable[[list[float]], float],
) -> list[list[tuple[float, float]]]:
    """The points of one run, ``width`` seconds each; a new stretch after a gap."""
    found: dict[int, list[float]] = {}
    for second, value in values:
        if value is not None and value > 0:
            found.setdefault(second // width, []).append(value)
    stretches: list[list[tuple[float, float]]] = []
    before = None
    for bucket in sorted(found):
        if before is None or bucket != before + 1:
            stretches.append([])
        stretches[-1].append((start + (bucket + 0.5) * width, together(found[bucket])))
        before = bucket
    return stretches


def _plot(
    title: str, caption: str, lines: Sequence[_Line], whole: int, failed: Sequence[int]
) -> CurvePlot | None:
    drawn = [line for line in lines if line.stretches]
    up = log_axis([value for line in drawn for part in line.stretches for _, value in part])
    if up is None:
        return None
    curves = [_curve(line, up, whole) for line in drawn]
    height_rem = height_for(curves)
    marks = dict.fromkeys(round(100 * (second + 0.5) / whole, 1) for second in failed)
    return CurvePlot(
        title,
        caption,
        spread(curves, height_rem),
        _ticks(whole),
        [Tick(round(100 - tick.percent, 3), tick.text) for tick in up.ticks(seconds_text)],
        height_rem,
        list(marks),
    )


def _across(start: int, end: int, whole: int) -> tuple[float, float]:
    """The start and the width of a span, in percent."""
    return round(100 * start / whole, 2), round(100 * (end - start) / whole, 2)


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans, with adjoining spans merged."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]  # noqa: PLW2901
        joined.append((start, end))
    return joined


def _curve(line: _Line, up: LogAxis, whole: int) -> CurveLine:
    parts = [
        [
            (min(100.0, round(100 * second / whole, 2)), round(100 - up.percent(value), 1))
            for second, value in part
        ]
        for part in line.stretches
    ]
    end = parts[-1][-1]
    segments = [points_text(part) for part in parts]
    return CurveLine(line.name, segments, end, end[1], line.number, line.is_faint)


def _ticks(whole: int) -> list[Tick]:
    step = next((step for step in _STEPS if whole / step <= _MOST_TICKS), whole)
    return [
        Tick(
            round(100 * second / whole, 2),
            f"{second // _MINUTE} min" if step % _MINUTE == 0 and second else f"{second} s",
        )
        for second in range(0, whole + 1, step)
    ]
