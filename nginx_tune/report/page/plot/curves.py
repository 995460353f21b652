"""Curves over two axes, each with its name at its end: latency by quantile or rate, disks by depth.

Places are in percent of the plot's width or height, because a page is read at any width: text in it
keeps its size, and curves stretch. Latency plots widen the tail: their horizontal axis is the
number of nines of the quantile.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nginx_tune.documents.facts import Storage
from nginx_tune.documents.facts_storage import CurvePoint, Sweep
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.sizing import Sizing
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import Histogram, decode_histogram, merge_histograms
from nginx_tune.measure.proof.runs import counts_for
from nginx_tune.report.facts import named_curves
from nginx_tune.report.text import bytes_text, number_text, one_line, percent_text, seconds_text

_MOST_DECADES_OF_STEPS = 2.0
"""Maximum number of decades of a logarithmic axis that also has ticks at 2 and 5."""
_LINEAR_DECADES = 0.6
"""Maximum number of decades of a logarithmic axis whose ticks are evenly spaced values."""
_FEWEST_LINEAR = 3
_MOST_TICKS = 7


@dataclass(frozen=True)
class Tick:
    """A mark of an axis."""

    percent: float
    text: str


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis from ``low`` to ``high``, both above 0."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        """The position of a value, from 0 (``low``) to 100; values outside are at the ends."""
        if value <= self.low:
            return 0.0
        whole = math.log(self.high) - math.log(self.low)
        return round(min(100.0, 100 * (math.log(value) - math.log(self.low)) / whole), 3)

    def ticks(self, text: Callable[[float], str]) -> list[Tick]:
        """Ticks at powers of ten; on a short axis also at 2 and 5; on a very short one evenly."""
        if math.log10(self.high / self.low) <= _LINEAR_DECADES:
            return [Tick(self.percent(value), text(value)) for value in self._even()]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = math.log10(self.high) - math.log10(self.low)
        steps = (1, 2, 5) if decades <= _MOST_DECADES_OF_STEPS else (1,)
        stride = max(1, math.ceil(decades / _MOST_TICKS))
        powers = [power for power in range(first, last + 1) if power % stride == 0]
        values = [step * 10.0**power for power in powers for step in steps]
        inside = [value for value in values if self.low <= value <= self.high]
        return [Tick(self.percent(value), text(value)) for value in inside]

    def _even(self) -> list[float]:
        """At least three evenly spaced ticks, at multiples of 1, 2 or 5 times a power of ten."""
        step = 10.0 ** math.ceil(math.log10(self.high - self.low))
        while True:
            for part in (1.0, 0.5, 0.2):
                width = step * part
                first, last = math.ceil(self.low / width), math.floor(self.high / width)
                if last - first + 1 >= _FEWEST_LINEAR:
                    return [float(f"{count * width:.6g}") for count in range(first, last + 1)]
            step /= 10


def log_axis(values: Iterable[float], *, margin: float = 1.15) -> LogAxis | None:
    """An axis for these values with a margin (a factor); None without a value above 0."""
    shown = [value for value in values if 1e-300 < value < 1e300]  # noqa: PLR2004  # no overflow
    if not shown:
        return None
    return LogAxis(min(shown) / margin, max(shown) * margin)


_LEAST_HEIGHT_REM = 16.0
_LABEL_HEIGHT_REM = 1.4


@dataclass(frozen=True)
class CurveLine:
    """A line, as points of polylines in percent of the plot."""

    name: str
    segments: Sequence[str]
    """The parts of the line, several if it has gaps."""
    end: tuple[float, float]
    """The end of the line, in percent from the left and from the top."""
    label_top: float
    """The position of the label, in percent from the top, apart from the other labels."""
    number: int
    """The number of its colour."""
    is_faint: bool = False


@dataclass(frozen=True)
class CurvePlot:
    """Curves, and marks on the lower edge."""

    title: str
    caption: str
    curves: Sequence[CurveLine]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    height_rem: float = _LEAST_HEIGHT_REM
    marks: Sequence[float] = ()
    """Positions of failures, in percent from the left."""
    grey: Sequence[tuple[float, float]] = ()
    """Positions and widths, in percent, of time that does not count and has no curve."""
    kind: str = "lines"


def place_of_variant(variant: str) -> tuple[int, str]:
    """The sort key of variants: baseline, candidate, then others, so that colours are stable."""
    return ({"baseline": 0, "candidate": 1}.get(variant, 2), variant)


def points_text(places: Sequence[tuple[float, float]]) -> str:
    """Points of a polyline; a single point is drawn as a dot."""
    shown = [*places, *places] if len(places) == 1 else places
    return " ".join(f"{x:g},{y:g}" for x, y in shown)


def height_for(curves: Sequence[CurveLine]) -> float:
    """The height, in rem, at which all labels can be read."""
    return max(_LEAST_HEIGHT_REM, _LABEL_HEIGHT_REM * (len(curves) + 1))


def spread(curves: Sequence[CurveLine], height_rem: float) -> list[CurveLine]:
    """The curves, the topmost first, with their labels far enough apart to be read."""
    gap = 100 * _LABEL_HEIGHT_REM / height_rem
    ordered = sorted(curves, key=lambda line: line.end[1])
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


_NANOSECONDS = 1e9
_STEPS_PER_NINE = 24
_FEWEST_BEYOND = 10
"""Minimum number of samples beyond a point of a curve. With fewer samples, the place of the point
is mostly chance."""
_NAMES = {1.0: "p90", 2.0: "p99", 3.0: "p99.9", 4.0: "p99.99", 5.0: "p99.999"}
_FIRST_NINES = -math.log10(0.9)
"""The start of the axis, the tenth percentile. Below this, a few fast requests would stretch the
axis."""
_MEDIAN_NINES = -math.log10(0.5)


def quantile_plots(measurements: Sequence[Measurement]) -> list[CurvePlot]:
    """One plot for each request class that has samples; runs that do not count are left out.

    A histogram that cannot be read leaves its class without a plot.
    """
    classes = dict.fromkeys(name for measurement in measurements for name in measurement.classes)
    plots = [_of_class(name, measurements) for name in classes]
    return [plot for plot in plots if plot is not None]


def turns_plot(histogram: str) -> CurvePlot | None:
    """The plot of loop turns from their histogram; None if it is empty or cannot be read."""
    try:
        decoded = decode_histogram(histogram) if histogram else None
    except UsageError:
        return None
    if not decoded or not decoded.total:
        return None
    return _quantile_plot("Loop turns", {"loops": decoded}, "counted")


def _of_class(name: str, measurements: Sequence[Measurement]) -> CurvePlot | None:
    variants = sorted({measurement.variant for measurement in measurements}, key=place_of_variant)
    try:
        found = {variant: _merged(name, variant, measurements) for variant in variants}
    except UsageError:
        return None
    histograms = {
        variant: histogram
        for variant, histogram in found.items()
        if histogram is not None and histogram.total
    }
    if not histograms:
        return None
    return _quantile_plot(f"Latency of {one_line(name)}", histograms, "requests")


def _merged(name: str, variant: str, measurements: Sequence[Measurement]) -> Histogram | None:
    texts = [
        measurement.classes[name].response_seconds.histogram
        for measurement in measurements
        if measurement.variant == variant
        and name in measurement.classes
        and counts_for(measurement, name)
    ]
    return merge_histograms([decode_histogram(text) for text in texts if text])


def _quantile_plot(
    title: str, histograms: Mapping[str, Histogram], counted: str
) -> CurvePlot | None:
    lines = {variant: _line(histogram) for variant, histogram in histograms.items()}
    axis = log_axis([seconds for line in lines.values() for _, seconds in line])
    if axis is None:
        return None
    most = max(max(nines for nines, _ in line) for line in lines.values())
    curves = [
        _curve(one_line(variant), line, axis, most, number + (len(lines) == 1))
        for number, (variant, line) in enumerate(lines.items())
    ]
    height_rem = height_for(curves)
    counts = ", ".join(
        f"{one_line(variant)} {number_text(histogram.total)}".strip()
        for variant, histogram in histograms.items()
    )
    return CurvePlot(
        title,
        f"By quantile; each further nine has the same width. {counted}: {counts}. A curve ends "
        f"where fewer than {_FEWEST_BEYOND} lie beyond.",
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
    """The horizontal position of a number of nines, in percent of the plot's width."""
    return round(100 * (nines - _FIRST_NINES) / (most - _FIRST_NINES), 2)


def _line(histogram: Histogram) -> list[tuple[float, float]]:
    """Points (nines, seconds) from the tenth percentile on, as far as ten samples lie beyond."""
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


_LEAST_SPAN = 8.0
"""Minimum ratio between the ends of an axis; a rate that varies by a tenth then looks level."""

_Values = dict[str, Sequence[tuple[int, float]]]
"""Points (depth, value) by the name of their curve."""


def disk_plots(storage: Storage) -> list[CurvePlot]:
    """Two plots for each measured disk and read size: throughput and latency by queue depth."""
    plots = []
    for name, curve in named_curves(storage):
        for sweep in (curve, curve.small_reads):
            plots += _of_sweep(name, sweep) if sweep is not None else []
    return plots


def _of_sweep(name: str, sweep: Sweep) -> list[CurvePlot]:
    what = f"random reads of {bytes_text(sweep.read_bytes)}"
    knee = f" The knee is at depth {sweep.knee_depth}." if sweep.knee_depth is not None else ""
    rates: _Values = {"": _depth_points(sweep, lambda point: point.reads_per_second)}
    times: _Values = {
        "p50": _depth_points(sweep, lambda point: point.p50_seconds),
        "p99": _depth_points(sweep, lambda point: point.p99_seconds),
    }
    plots = [
        _depth_plot(
            f"{name}: reads a second",
            f"{what}, by the number in progress at once; both axes are logarithmic.{knee}",
            rates,
            lambda value: f"{number_text(value)}/s",
        ),
        _depth_plot(
            f"{name}: how long a read takes",
            f"{what}, by the number in progress at once. A curve has no point where fewer than ten "
            "reads lie beyond.",
            times,
            seconds_text,
        ),
    ]
    return [plot for plot in plots if plot is not None]


def _depth_points(
    sweep: Sweep, value: Callable[[CurvePoint], float | None]
) -> Sequence[tuple[int, float]]:
    found = [(point.depth, value(point)) for point in sweep.points if point.depth > 0]
    return [(depth, value) for depth, value in found if value is not None and value > 0]


def _depth_plot(
    title: str, caption: str, values: _Values, text: Callable[[float], str]
) -> CurvePlot | None:
    depths = sorted({depth for points in values.values() for depth, _ in points})
    ticks = {float(depth): str(depth) for depth in depths}
    return line_plot(title, caption, values, text, across_ticks=ticks)


def line_plot(
    title: str,
    caption: str,
    values: Mapping[str, Sequence[tuple[float, float]]],
    text: Callable[[float], str],
    *,
    across_text: Callable[[float], str] = number_text,
    across_ticks: Mapping[float, str] | None = None,
    mark: float | None = None,
) -> CurvePlot | None:
    """Lines of points, by name, over two logarithmic axes; None for fewer than two points.

    ``text`` labels the vertical axis; ``mark`` is a position on the horizontal one.
    """
    shown = {name: points for name, points in values.items() if points}
    places = sorted({x for points in shown.values() for x, _ in points})
    across = log_axis(places, margin=1.0)
    values_shown = [value for points in shown.values() for _, value in points]
    up = log_axis([*values_shown, max(values_shown, default=0.0) / _LEAST_SPAN])
    if across is None or up is None or len(places) == 1:
        return None
    curves = []
    for number, (name, points) in enumerate(shown.items()):
        drawn = [(across.percent(x), round(100 - up.percent(value), 2)) for x, value in points]
        label = f"{name} {text(points[-1][1])}".strip()
        colour = 1 if len(shown) == 1 else number
        curves.append(CurveLine(label, [points_text(drawn)], drawn[-1], drawn[-1][1], colour))
    height_rem = height_for(curves)
    ticks = across_ticks and [Tick(across.percent(x), said) for x, said in across_ticks.items()]
    return CurvePlot(
        title,
        caption,
        spread(curves, height_rem),
        ticks or across.ticks(across_text),
        [Tick(round(100 - tick.percent, 3), tick.text) for tick in up.ticks(text)],
        height_rem,
        marks=() if mark is None else (across.percent(mark),),
    )


_LEAST_MISS_RATIO = 1e-3
"""Minimum miss ratio of a plot. A smaller ratio is drawn here, since a logarithmic axis has no
0."""


def sizing_plots(sizing: Sizing) -> list[CurvePlot]:
    """Two plots: the miss ratio by memory, and the objective's latency by rate, with the knee."""
    misses = [(float(miss.memory_bytes), miss.miss_ratio) for miss in sizing.misses]
    times = [(latency.per_second, latency.seconds) for latency in sizing.latencies]
    this = next((host for host in sizing.hosts if host.is_this), None)
    knee = None if this is None or not this.is_prediction else this.carried_per_second
    within = f" within {one_line(sizing.objective)}" if sizing.objective else ""
    marked = "" if knee is None else f" The mark shows the rate that this host carries{within}."
    plots = [
        line_plot(
            "Misses of the page cache by memory",
            "Share of the requests that this host would read from its disks with other sizes of "
            f"memory. Both axes are logarithmic; shares below {percent_text(_LEAST_MISS_RATIO)} "
            "are drawn at that value. The mark is this host.",
            {"": [(memory, max(_LEAST_MISS_RATIO, miss)) for memory, miss in misses]},
            percent_text,
            across_text=bytes_text,
            mark=None if this is None else float(this.memory_bytes),
        ),
        line_plot(
            "Latency by rate",
            f"The time of {one_line(sizing.objective) or 'p99'} on this host by requests for files "
            f"a second; both axes are logarithmic.{marked}",
            {"": times},
            seconds_text,
            across_text=lambda value: f"{number_text(value)}/s",
            mark=None if knee is None or knee.expected <= 0 else knee.expected,
        ),
    ]
    return [plot for plot in plots if plot is not None]
