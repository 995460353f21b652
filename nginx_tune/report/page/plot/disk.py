"""What a disk gives at growing depths: reads a second, and what one of them takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nginx_tune.documents.curve import CurvePoint, Sweep
from nginx_tune.documents.facts import Storage
from nginx_tune.report.curves import named_curves
from nginx_tune.report.page.plot.axis import Tick, log_axis
from nginx_tune.report.page.plot.curves import CurveLine, CurvePlot, height_for, points_text, spread
from nginx_tune.report.text import bytes_text, number_text, seconds_text

_LEAST_SPAN = 8.0
"""The axis is this long at least, so that a rate which wavers by a tenth looks level."""

_Values = dict[str, Sequence[tuple[int, float]]]
"""Points (depth, value) by the name of their curve."""


def disk_plots(storage: Storage) -> list[CurvePlot]:
    """Two for each size of reads of each measured disk: throughput and latency by depth."""
    plots = []
    for name, curve in named_curves(storage):
        for sweep in (curve, curve.small_reads):
            plots += _of_sweep(name, sweep) if sweep is not None else []
    return plots


def _of_sweep(name: str, sweep: Sweep) -> list[CurvePlot]:
    what = f"random reads of {bytes_text(sweep.read_bytes)}"
    knee = f" The knee is at depth {sweep.knee_depth}." if sweep.knee_depth is not None else ""
    rates: _Values = {"": _points(sweep, lambda point: point.reads_per_second)}
    times: _Values = {
        "p50": _points(sweep, lambda point: point.p50_seconds),
        "p99": _points(sweep, lambda point: point.p99_seconds),
    }
    plots = [
        _plot(
            f"{name}: reads a second",
            f"{what}, by how many are under way at once; both axes are logarithmic.{knee}",
            rates,
            lambda value: f"{number_text(value)}/s",
        ),
        _plot(
            f"{name}: how long a read takes",
            f"{what}, by how many are under way at once; a curve has no point where fewer than "
            "ten reads lie beyond.",
            times,
            seconds_text,
        ),
    ]
    return [plot for plot in plots if plot is not None]


def _points(
    sweep: Sweep, value: Callable[[CurvePoint], float | None]
) -> Sequence[tuple[int, float]]:
    found = [(point.depth, value(point)) for point in sweep.points if point.depth > 0]
    return [(depth, one) for depth, one in found if one is not None and one > 0]


def _plot(
    title: str, caption: str, values: _Values, text: Callable[[float], str]
) -> CurvePlot | None:
    shown = {name: points for name, points in values.items() if points}
    depths = sorted({depth for points in shown.values() for depth, _ in points})
    across = log_axis(depths, margin=1.0)
    values_shown = [value for points in shown.values() for _, value in points]
    up = log_axis([*values_shown, max(values_shown, default=0.0) / _LEAST_SPAN])
    if across is None or up is None or len(depths) == 1:
        return None
    curves = []
    for number, (name, points) in enumerate(shown.items()):
        places = [
            (across.percent(depth), round(100 - up.percent(value), 2)) for depth, value in points
        ]
        label = f"{name} {text(points[-1][1])}".strip()
        colour = 1 if len(shown) == 1 else number
        curves.append(CurveLine(label, [points_text(places)], places[-1], places[-1][1], colour))
    height_rem = height_for(curves)
    return CurvePlot(
        title,
        caption,
        spread(curves, height_rem),
        [Tick(across.percent(depth), str(depth)) for depth in depths],
        [Tick(round(100 - tick.percent, 3), tick.text) for tick in up.ticks(text)],
        height_rem,
    )
