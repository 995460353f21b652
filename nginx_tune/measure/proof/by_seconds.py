"""Seconds inside runs and windows: their series, trends in them, the cross-check of a verdict.

A server that is still filling its caches gets faster (or, filling its disks' queues, slower)
second by second, and the run's figures depend on when it was cut. Looked at are each class's
median and the share of its requests that came in each second: of each the rank correlation with
time, exact for few seconds, and how far the last third lies from the first.

A verdict sees one number of each run. Where a single second made that number, it cannot know;
the seconds can. So for every metric that came out as something, pairs are drawn again, and inside
each half runs of neighbouring seconds, and the interval of the ratio is set beside the outcome.
Where the two do not go together the report says so. The outcome stays: seconds resemble their
neighbours, so an interval from them is no proof of its own. A class's quantile is here the mean of
its seconds' quantiles, a near relation of the run's own.

Sources: Mann 1945 and Kendall's tau for trends (the count of arrangements is Knuth's recurrence of
inversions); Künsch 1989 and Politis and Romano 1992 (blocks of neighbours); Davison and Hinkley
1997, 3.8 (two levels); Hesterberg 2015, "What teachers should know about the bootstrap"
(percentiles widened for few pairs).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, combinations, islice
from statistics import NormalDist, median
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.measured_server import HARMS, ServerMeasurement, ServerSecond, Weight
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.observation import UNNAMED, Observation
from nginx_tune.documents.verdict import BetterWhen, MetricVerdict, Outcome, SecondsCheck, Unit
from nginx_tune.measure.proof.comparison import Criterion
from nginx_tune.measure.proof.runs import PairedRuns
from nginx_tune.measure.proof.statistics import Series, percentile_interval, resample

TRAFFIC = "server.requests_per_second"


class ComparedWindow(NamedTuple):
    """One document, as a comparison reads it."""

    series: dict[str, Series]
    totals: dict[str, float]
    """Harm that was counted over the whole window, by metric: too little for a series."""
    seconds: float
    requests: int | None
    causes: dict[str, str]
    """The causes that an observation names: its sentence by its id."""
    flags: list[str]
    is_loaded: bool
    """A load of ours made the traffic."""
    bounded: frozenset[str] = frozenset()
    """Metrics whose seconds are lower bounds: requests were cut off."""


class SecondsOf(NamedTuple):
    """The reading of a metric from a second of the server."""

    unit: Unit
    better_when: BetterWhen
    numerator: Callable[[ServerSecond], float | None]
    denominator: Callable[[ServerSecond], float | None] = lambda second: second.seconds


def _turn_p99(second: ServerSecond) -> float | None:
    return second.loop_turn_p99_seconds


SERVER: dict[str, SecondsOf] = {
    TRAFFIC: SecondsOf("per_second", "higher", lambda s: s.requests),
    "server.loop_turn_seconds.blocked_seconds": SecondsOf(
        "seconds_per_second", "lower", lambda s: s.loop_blocked_seconds
    ),
    "server.block_io_delay_seconds": SecondsOf(
        "seconds_per_second", "lower", lambda s: s.block_io_delay_seconds
    ),
    "server.state_d_ratio": SecondsOf(
        "ratio", "lower", lambda s: None if s.state_d_ratio is None else s.state_d_ratio * s.seconds
    ),
    "server.loop_turn_seconds.p99": SecondsOf(
        "seconds", "lower", _turn_p99, lambda s: None if _turn_p99(s) is None else 1.0
    ),
    "server.cpu_seconds": SecondsOf("seconds_per_second", "lower", lambda s: s.cpu_seconds),
    "server.cpu_seconds_per_request": SecondsOf(
        "seconds", "lower", lambda s: s.cpu_seconds, lambda s: s.requests
    ),
    "server.disk_read_bytes": SecondsOf("bytes_per_second", "lower", lambda s: s.disk_read_bytes),
    "server.refaults": SecondsOf("per_second", "lower", lambda s: s.refaults),
    "server.listen_drops": SecondsOf("per_second", "lower", lambda s: s.listen_drops),
}
"""Everything counted is per second; ``p99`` is the mean of the seconds' p99."""

_CLASS: dict[str, tuple[Unit, BetterWhen, Callable[[ClassSecond], float | None]]] = {
    "requests_per_second": ("per_second", "higher", lambda s: s.requests),
    "bytes_per_second": ("bytes_per_second", "higher", lambda s: s.bytes),
    "errors_per_second": ("per_second", "lower", lambda s: s.errors),
    "p50": ("seconds", "lower", lambda s: s.p50),
    "p99": ("seconds", "lower", lambda s: s.p99),
}


_SERVER, _ERRORS = "server.", ".errors"
_WEIGHTS = {f"{_SERVER}{harm.name}": harm.weight for harm in HARMS}


def read_window(document: Observation | Measurement) -> ComparedWindow:
    """The series of a document; a metric that is null in any second but the odd one is left out."""
    server = document.server
    series = dict(_server_series(server))
    if isinstance(document, Measurement):
        series |= _class_series(document)
    totals = {
        f"{_SERVER}{harm.name}": float(value)
        for harm in HARMS
        if (value := harm.counted(server)) is not None
    }
    causes: dict[str, str] = {}
    if isinstance(document, Measurement):
        parts = document.classes.items()
        totals |= {f"{name}{_ERRORS}": float(sum(part.errors.values())) for name, part in parts}
    else:
        causes |= {one.id: one.summary for one in document.causes if one.id not in UNNAMED}
    return ComparedWindow(
        series=series,
        totals=totals,
        seconds=document.duration_seconds,
        requests=server.stub_status.requests if server.stub_status else None,
        causes=causes,
        flags=list(document.flags),
        is_loaded=isinstance(document, Measurement),
        bounded=frozenset(_bounded(document)) if isinstance(document, Measurement) else frozenset(),
    )


def _bounded(measurement: Measurement) -> Iterable[str]:
    """Quantiles among requests that were cut off, in the whole window or in a second of it.

    Those that were unfinished at the end stand in no second.
    """
    for name, part in measurement.classes.items():
        latency = part.response_seconds
        least = latency.censored_from_seconds
        if latency.censored and least is not None:
            seconds = [point.classes.get(name, ClassSecond()) for point in measurement.series]
            for tail in ("p50", "p99"):
                values = (getattr(second, tail) for second in seconds)
                if tail in latency.at_least or any(v is not None and v >= least for v in values):
                    yield f"{name}.{tail}"


def weight_of(name: str) -> Weight:
    """The unit by which more of a total counts."""
    return _WEIGHTS.get(name, "seldom")


def unit_and_side(name: str) -> tuple[Unit, BetterWhen]:
    """In what a series of this name is, and which way it should go."""
    if name in SERVER:
        return SERVER[name].unit, SERVER[name].better_when
    unit, better_when, _ = _CLASS[name.rpartition(".")[2]]
    return unit, better_when


def _server_series(server: ServerMeasurement) -> Iterable[tuple[str, Series]]:
    for name, quantity in SERVER.items():
        found = [(quantity.numerator(s), quantity.denominator(s)) for s in server.series]
        series = _whole(found)
        if series is not None:
            yield name, series


def _class_series(measurement: Measurement) -> dict[str, Series]:
    found = {}
    for name in measurement.classes:
        seconds = [point.classes.get(name, ClassSecond()) for point in measurement.series]
        for tail, (_, _, read) in _CLASS.items():
            values = [read(second) for second in seconds]
            series = _whole([(v, None if v is None else 1.0) for v in values])
            if series is not None:
                found[f"{name}.{tail}"] = series
    return found


def _whole(pairs: list[tuple[float | None, float | None]]) -> Series | None:
    """The series of the seconds that have both; none when more than a tenth lack one."""
    known = [(float(top), float(below)) for top, below in pairs if None not in (top, below)
             and top is not None and below is not None]  # fmt: skip
    if not known or len(known) < 0.9 * len(pairs):  # a tenth
        return None
    return Series(tuple(top for top, _ in known), tuple(below for _, below in known))


_FEWEST_OF_A_TREND = 7
"""With fewer no order of seconds is unlikely enough where several classes are looked at."""
_ALPHA = 0.01
_WORTH = 1.10
"""A trend that moves less than this between the first and the last third does no harm."""
_MOST_EXACT = 60
FLAG = "not_steady"


def trend_p(values: Sequence[float]) -> float:
    """The two-sided p of "these came in any order"; ties count for no trend. 1 for fewer than 2."""
    size = len(values)
    if size <= 1:
        return 1.0
    score = abs(sum((b > a) - (b < a) for a, b in combinations(values, 2)))
    most = size * (size - 1) // 2
    if size > _MOST_EXACT:
        deviation = math.sqrt(size * (size - 1) * (2 * size + 5) / 18)
        return 2 * (1 - NormalDist().cdf(max(score - 1, 0) / deviation))
    # A score of s has (most - s) / 2 inversions or fewer.
    cumulative = list(accumulate(_inversions(size)))
    return min(1.0, 2 * cumulative[(most - score) // 2] / cumulative[-1])


def _inversions(size: int) -> list[int]:
    """The number of orders of ``size`` things with 0, 1, 2, … inversions."""
    counts = [1]
    for length in range(2, size + 1):
        longer = [0] * (len(counts) + length - 1)
        for place, count in enumerate(counts):
            for more in range(length):
                longer[place + more] += count
        counts = longer
    return counts


def warmup_seconds(run: Measurement) -> int | None:
    """The fewest seconds at the start to cut so that no class has a trend in the rest.

    None when no part that is long enough (the last half, seven seconds at least) is without one.
    """
    series = whole_seconds(run)
    longest = min(len(series) // 2, len(series) - _FEWEST_OF_A_TREND)
    for cut in range(max(longest, 0) + 1):
        if not find_trends(series[cut:]):
            return cut
    return None


def find_trends(series: Sequence[SeriesPoint]) -> dict[str, float]:
    """Last third / first third of the medians, or of the rates, of the classes with a trend."""
    found: dict[str, float] = {}
    names = dict.fromkeys(name for point in series for name in point.classes)
    for name in names:
        seconds = [point.classes[name] for point in series if name in point.classes]
        medians = [second.p50 for second in seconds if second.p50 is not None]
        rates = [float(second.requests) for second in seconds]
        for values in (medians, rates):
            change = _change(values)
            # Two looks at each class, and all classes at once.
            if change is not None and trend_p(values) <= _ALPHA / (2 * len(names)):
                found.setdefault(name, change)
    return found


def whole_seconds(run: Measurement) -> list[SeriesPoint]:
    """The seconds of a run, without what came in while the last requests were waited for."""
    return [point for point in run.series if point.second + 1 <= run.duration_seconds]


def _change(values: Sequence[float]) -> float | None:
    """By how much the last third differs from the first; None when that is no matter."""
    if len(values) < _FEWEST_OF_A_TREND:
        return None
    third = max(len(values) // 3, 1)
    first, last = median(values[:third]), median(values[-third:])
    if first <= 0 or last <= 0:
        return None
    change = last / first
    return change if max(change, 1 / change) > _WORTH else None


def with_steadiness(run: Measurement) -> Measurement:
    """The run, flagged where it was not in a steady state."""
    flags = [
        f"{FLAG}: {name}: went to {change:.2f}× from its first to its last third: a longer warm-up "
        "is needed"
        for name, change in find_trends(whole_seconds(run)).items()
    ]
    return replace(run, flags=[*run.flags, *flags]) if flags else run


_SETTLED = ("better", "worse", "no_difference")
_FEWEST_PAIRS = 6
_FEWEST_OF_A_HALF = 5
_WITHIN = 200
"""Windows drawn of each half."""
_EXPERIMENTS = 4000

SeriesPair = tuple[Series, Series]
SeriesOf = dict[int, dict[str, Series]]
"""By run, then by metric."""


def with_seconds_checks(
    metrics: Sequence[MetricVerdict], runs: PairedRuns, bar: Criterion, *, seed: int
) -> list[MetricVerdict]:
    """The metrics, those with an outcome and a ratio beside what their seconds say."""
    settled = [metric.name for metric in metrics if metric.outcome in _SETTLED and metric.low]
    if not settled or len(runs.pairs) < _FEWEST_PAIRS:
        return list(metrics)
    series = {run.number: _series(run) for run in runs.baseline + runs.candidate}
    return [
        replace(metric, by_seconds=_check(metric, _pairs(metric.name, runs, series), bar, seed))
        if metric.name in settled
        else metric
        for metric in metrics
    ]


def ratio_by_seconds(
    pairs: Sequence[SeriesPair], *, alpha: float, seed: str
) -> tuple[float, float] | None:
    """The interval of candidate / baseline over pairs of series of seconds.

    None where a resampled window is zero, so that it has no ratio.
    """
    drawn = []
    for number, (baseline, candidate) in enumerate(pairs):
        below = resample(baseline, f"{seed} {number} baseline", windows=_WITHIN)
        above = resample(candidate, f"{seed} {number} candidate", windows=_WITHIN)
        if not all(value > 0 for value in (*below, *above)):  # nan is not above 0 either
            return None
        drawn.append([math.log(a / b) for a, b in zip(above, below, strict=True)])
    size = len(drawn)
    stream = hashlib.shake_128(f"{seed} pairs".encode()).digest(4 * size * _EXPERIMENTS)
    # 65,536 numbers choose one of some dozens, and one of 200: near enough to even.
    chosen = (
        drawn[pair * size >> 16][window * _WITHIN >> 16]
        for pair, window in struct.iter_unpack(">HH", stream)
    )
    means = [math.fsum(islice(chosen, size)) / size for _ in range(_EXPERIMENTS)]
    interval = percentile_interval(means, _widened(alpha, size))
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def _check(
    metric: MetricVerdict, pairs: Sequence[SeriesPair], bar: Criterion, seed: int
) -> SecondsCheck | None:
    if len(pairs) < _FEWEST_PAIRS:
        return None
    interval = ratio_by_seconds(pairs, alpha=bar.alpha, seed=f"seconds {seed} {metric.name}")
    if interval is None:
        return None
    low, high = interval
    agrees = _agrees(metric.outcome, metric.ratio or 1.0, low, high, 1 + bar.margin)
    return SecondsCheck(low=low, high=high, level=1 - bar.alpha, agrees=agrees)


def _agrees(outcome: Outcome, ratio: float, low: float, high: float, edge: float) -> bool:
    """True if the interval may stand beside the outcome."""
    if outcome == "no_difference":
        return low <= edge and high >= 1 / edge
    return low > 1 if ratio > 1 else high < 1


def _pairs(name: str, runs: PairedRuns, series: SeriesOf) -> list[SeriesPair]:
    """The seconds of all pairs that count for a metric; none when any lacks them."""
    found = []
    for pair in runs.counting_for(name).pairs:
        baseline = series[pair.baseline.number].get(name)
        candidate = series[pair.candidate.number].get(name)
        if baseline is None or candidate is None:
            return []
        if min(len(baseline), len(candidate)) < _FEWEST_OF_A_HALF:
            return []
        found.append((baseline, candidate))
    return found


def _series(run: Measurement) -> dict[str, Series]:
    return read_window(replace(run, series=whole_seconds(run))).series


def _widened(alpha: float, size: int) -> float:
    """The share to leave outside, so that an interval from few pairs holds what it promises.

    Units drawn from n vary by (n - 1) / n too little, and their own spread is not known for sure:
    Student's quantile (Abramowitz and Stegun 26.7.5) in the place of the normal one.
    """
    z, free = -NormalDist().inv_cdf(alpha / 2), size - 1
    student = (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )
    return 2 * NormalDist().cdf(-math.sqrt(size / free) * student)
