"""Runs and windows by the second: series, trends, and the cross-check of a verdict.

Trends: a server that is still filling its caches gets faster every second (or slower, if it fills
its disks' queues), so a run's figures depend on when it was cut. Each class's median and request
rate are tested for rank correlation with time, exactly for few seconds. The size of a trend is the
ratio of the last third to the first.

Cross-check: a verdict has one number per run, which a single second may have determined. So for
each metric with an outcome, a two-level bootstrap draws pairs, and stretches of neighbouring
seconds within each run, and gives the interval of the ratio. If it contradicts the outcome, the
report says so. The outcome does not change, since neighbouring seconds are correlated. The quantile
of a class is here the mean of its seconds' quantiles, an approximation of the run's own.

Sources: Mann 1945 and Kendall's tau for trends (the count of arrangements is Knuth's recurrence of
inversions); Künsch 1989 and Politis and Romano 1992 (blocks of neighbours); Davison and Hinkley
1997, 3.8 (two levels); Hesterberg 2015, "What teachers should know about the bootstrap"
(percentiles widened for few pairs).
"""

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
    """One side of a comparison of windows."""

    series: dict[str, Series]
    totals: dict[str, float]
    """Counters of harm over the whole window, by metric. They count too rarely for a series."""
    seconds: float
    requests: int | None
    causes: dict[str, str]
    """Sentences of the causes that an observation names, by id."""
    flags: list[str]
    is_loaded: bool
    """True if the probe made the traffic."""
    bounded: frozenset[str] = frozenset()
    """Metrics whose seconds are lower bounds because requests were cut off."""


class SecondsOf(NamedTuple):
    """A metric's unit, its better side, and how to read its value in one second."""

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
"""Series of the server. Counters are per second; ``p99`` is the mean of the seconds' p99."""

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
    """The series and totals of a document; metrics missing in over a tenth of it are left out."""
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
        causes |= {cause.id: cause.summary for cause in document.causes if cause.id not in UNNAMED}
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
    """Names of the quantiles that are only lower bounds, because requests were cut off.

    A quantile is listed if it is a bound in the whole window or in one second. Requests that are
    unfinished at the end are in no second.
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
    """The weight of a rise in a total, as in ``HARMS``; ``seldom`` for any other total."""
    return _WEIGHTS.get(name, "seldom")


def unit_and_side(name: str) -> tuple[Unit, BetterWhen]:
    """The unit of a series and its better side."""
    if name in SERVER:
        return SERVER[name].unit, SERVER[name].better_when
    unit, better_when, _ = _CLASS[name.rpartition(".")[2]]
    return unit, better_when


def _server_series(server: ServerMeasurement) -> Iterable[tuple[str, Series]]:
    for name, quantity in SERVER.items():
        values = [(quantity.numerator(s), quantity.denominator(s)) for s in server.series]
        series = _complete(values)
        if series is not None:
            yield name, series


def _class_series(measurement: Measurement) -> dict[str, Series]:
    by_metric = {}
    for name in measurement.classes:
        seconds = [point.classes.get(name, ClassSecond()) for point in measurement.series]
        for tail, (_, _, read) in _CLASS.items():
            values = [read(second) for second in seconds]
            series = _complete([(v, None if v is None else 1.0) for v in values])
            if series is not None:
                by_metric[f"{name}.{tail}"] = series
    return by_metric


def _complete(pairs: list[tuple[float | None, float | None]]) -> Series | None:
    """The series of the seconds that have both values; None if more than a tenth lack one."""
    known = [(float(a), float(b)) for a, b in pairs if a is not None and b is not None]
    if not known or len(known) < 0.9 * len(pairs):
        return None
    return Series(tuple(top for top, _ in known), tuple(below for _, below in known))


_FEWEST_OF_A_TREND = 7
"""Minimum number of seconds in which a trend is sought. With fewer seconds and several classes,
chance alone gives any order too often."""
_ALPHA = 0.01
_WORTH = 1.10
"""The smallest trend that matters, as the ratio of the last third to the first."""
_MOST_EXACT = 60
FLAG = "not_steady"


def trend_p(values: Sequence[float]) -> float:
    """Two-sided p-value of Mann's trend test; ties count as no trend. 1 for fewer than 2 values."""
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
    """The number of permutations of ``size`` elements with 0, 1, 2, … inversions."""
    counts = [1]
    for length in range(2, size + 1):
        longer = [0] * (len(counts) + length - 1)
        for place, count in enumerate(counts):
            for more in range(length):
                longer[place + more] += count
        counts = longer
    return counts


def warmup_seconds(run: Measurement) -> int | None:
    """Minimum number of seconds to cut at the start so that no class has a trend in the rest.

    None if even the last half has one; at least seven seconds must remain.
    """
    series = whole_seconds(run)
    longest = min(len(series) // 2, len(series) - _FEWEST_OF_A_TREND)
    for cut in range(max(longest, 0) + 1):
        if not find_trends(series[cut:]):
            return cut
    return None


def find_trends(series: Sequence[SeriesPoint]) -> dict[str, float]:
    """The size of the trend of each class that has one.

    The size is the ratio of the last third to the first, of medians if they have a trend, else of
    request rates.
    """
    trends: dict[str, float] = {}
    names = dict.fromkeys(name for point in series for name in point.classes)
    for name in names:
        seconds = [point.classes[name] for point in series if name in point.classes]
        medians = [second.p50 for second in seconds if second.p50 is not None]
        rates = [float(second.requests) for second in seconds]
        for values in (medians, rates):
            change = _change(values)
            # Bonferroni: two tests per class.
            if change is not None and trend_p(values) <= _ALPHA / (2 * len(names)):
                trends.setdefault(name, change)
    return trends


def whole_seconds(run: Measurement) -> list[SeriesPoint]:
    """The seconds of a run, without those spent waiting for the last answers."""
    return [point for point in run.series if point.second + 1 <= run.duration_seconds]


def _change(values: Sequence[float]) -> float | None:
    """The ratio of the last third to the first; None if too small to matter or unknown."""
    if len(values) < _FEWEST_OF_A_TREND:
        return None
    third = max(len(values) // 3, 1)
    first, last = median(values[:third]), median(values[-third:])
    if first <= 0 or last <= 0:
        return None
    change = last / first
    return change if max(change, 1 / change) > _WORTH else None


def with_steadiness(run: Measurement) -> Measurement:
    """The run, flagged for each class that was not in a steady state."""
    flags = [
        f"{FLAG}: {name}: changed to {change:.2f}× from its first to its last third; "
        "warm up longer (--warmup)"
        for name, change in find_trends(whole_seconds(run)).items()
    ]
    return replace(run, flags=[*run.flags, *flags]) if flags else run


_SETTLED = ("better", "worse", "no_difference")
_FEWEST_PAIRS = 6
_FEWEST_OF_A_HALF = 5
_WITHIN = 200
"""The number of windows to resample from each run."""
_EXPERIMENTS = 4000

SeriesPair = tuple[Series, Series]
SeriesOf = dict[int, dict[str, Series]]
"""Series by run, then by metric."""


def with_seconds_checks(
    metrics: Sequence[MetricVerdict], runs: PairedRuns, bar: Criterion, *, seed: int
) -> list[MetricVerdict]:
    """The metrics; those with an outcome and a ratio get the cross-check."""
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
    """The bootstrap interval of candidate / baseline; None if a resampled window has no ratio."""
    drawn = []
    for number, (baseline, candidate) in enumerate(pairs):
        below = resample(baseline, f"{seed} {number} baseline", windows=_WITHIN)
        above = resample(candidate, f"{seed} {number} candidate", windows=_WITHIN)
        if not all(value > 0 for value in (*below, *above)):  # nan is not above 0 either
            return None
        drawn.append([math.log(a / b) for a, b in zip(above, below, strict=True)])
    size = len(drawn)
    stream = hashlib.shake_128(f"{seed} pairs".encode()).digest(4 * size * _EXPERIMENTS)
    # 16 bits choose among some dozens, and among 200: nearly uniform.
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
    """True if the interval does not contradict the outcome."""
    if outcome == "no_difference":
        return low <= edge and high >= 1 / edge
    return low > 1 if ratio > 1 else high < 1


def _pairs(name: str, runs: PairedRuns, series: SeriesOf) -> list[SeriesPair]:
    """The series of all pairs that count for a metric; empty if any run lacks it."""
    series_pairs = []
    for pair in runs.counting_for(name).pairs:
        baseline = series[pair.baseline.number].get(name)
        candidate = series[pair.candidate.number].get(name)
        if baseline is None or candidate is None:
            return []
        if min(len(baseline), len(candidate)) < _FEWEST_OF_A_HALF:
            return []
        series_pairs.append((baseline, candidate))
    return series_pairs


def _series(run: Measurement) -> dict[str, Series]:
    return read_window(replace(run, series=whole_seconds(run))).series


def _widened(alpha: float, size: int) -> float:
    """The nominal alpha with which an interval from few pairs reaches its coverage.

    The bootstrap variance is (n - 1) / n of the true one, and itself estimated: Student's quantile
    (Abramowitz and Stegun 26.7.5) replaces the normal one.
    """
    z, free = -NormalDist().inv_cdf(alpha / 2), size - 1
    student = (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )
    return 2 * NormalDist().cdf(-math.sqrt(size / free) * student)
