"""Ratios in rows on one logarithmic axis, and the shares of workers as bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Search
from nginx_tune.documents.scenario import PredictionResult
from nginx_tune.documents.units import plural
from nginx_tune.documents.verdict import MetricVerdict, Verdict
from nginx_tune.measure.proof.comparison import MetricPairs
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.runs import PairedRuns
from nginx_tune.report.page.plot.curves import LogAxis, Tick, log_axis, place_of_variant
from nginx_tune.report.quantities import interval_text, metric_words, predicted_text, ratio_text
from nginx_tune.report.search import regret_text
from nginx_tune.report.text import one_line, percent_text

Tone = Literal["good", "bad", "plain"]
_TONES: dict[str, Tone] = {"better": "good", "worse": "bad"}
_LEAST_SPAN = (0.8, 1.25)
"""Minimum range of the axis. It keeps a difference of a tenth of a percent from looking large."""


@dataclass(frozen=True)
class Mark:
    """A value with its interval, and the expected range; all are ratios above 0."""

    label: str
    said: str
    """The value in words, shown beside the bar."""
    value: float
    low: float | None = None
    high: float | None = None
    band: tuple[float, float] | None = None
    tone: Tone = "plain"
    is_sum: bool = False
    """True for the row that summarises the rows above."""


@dataclass(frozen=True)
class RatioRow:
    """A mark in percent of the axis."""

    mark: Mark
    at: float
    low: float | None
    high: float | None
    band: tuple[float, float] | None


@dataclass(frozen=True)
class RatioPlot:
    """Rows on a common axis; ``one`` is the position of 1×, in percent."""

    title: str
    caption: str
    rows: Sequence[RatioRow]
    ticks: Sequence[Tick]
    one: float
    kind: str = "ratios"


def metrics_plot(verdict: Verdict) -> RatioPlot | None:
    """The ratios of judged metrics; None if no metric has a ratio."""
    marks = [
        Mark(
            metric_words(metric.name)
            + (" · primary" if metric.name == verdict.primary_metric else ""),
            f"{interval_text(metric)} "
            f"{metric.outcome.replace('_', ' ') if metric.judged else ''}".strip(),
            metric.ratio,
            metric.low,
            metric.high,
            tone=_TONES.get(metric.outcome, "plain") if metric.judged else "plain",
        )
        for metric in sorted(
            verdict.metrics, key=lambda metric: metric.name != verdict.primary_metric
        )
        if metric.ratio is not None and metric.ratio > 0
    ]
    return _plot(
        "Candidate against baseline",
        "Ratio candidate ÷ baseline with its interval; left of 1× is less, right is more.",
        marks,
    )


def regret_plot(search: Search) -> RatioPlot | None:
    """The best result of a search divided by each candidate's; None without candidates."""
    marks = [
        Mark(
            one_line(candidate.name) + (" · measured anew" if candidate.confirmed else ""),
            f"{regret_text(candidate)}, {plural(candidate.rounds, 'short run')}",
            candidate.regret_ratio,
            tone="good" if candidate.name == search.name else "plain",
        )
        for candidate in search.candidates
        if candidate.regret_ratio is not None and candidate.regret_ratio > 0
    ]
    metric = metric_words(search.primary_metric)
    return _plot(
        f"Regret of the candidates: {metric}",
        "The best of the short runs ÷ each candidate; 1× is the best, further right is worse. So "
        "few runs give a ranking, not a proof.",
        marks,
    )


def pairs_plot(verdict: Verdict, runs: PairedRuns) -> RatioPlot | None:
    """The primary metric's ratio in each pair of runs, and over all pairs."""
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if primary is None or primary.ratio is None or primary.ratio <= 0:
        return None
    compared = MetricPairs(find_metric(primary.name), runs)
    indexes = [pair.index for pair in compared.runs.pairs]
    marks = [
        Mark(f"pair {index + 1}", ratio_text(after / before), after / before)
        for index, (before, after) in zip(indexes, compared.pairs, strict=False)
        if before > 0 and after > 0
    ]
    if not marks:
        return None
    together = _together(primary)
    return _plot(
        f"Pair by pair: {metric_words(primary.name)}",
        "The two runs of a pair followed each other directly; the last row combines all pairs.",
        [*marks, together],
    )


def _together(primary: MetricVerdict) -> Mark:
    return Mark(
        "together",
        interval_text(primary),
        primary.ratio or 1.0,
        primary.low,
        primary.high,
        tone=_TONES.get(primary.outcome, "plain"),
        is_sum=True,
    )


def predictions_plot(predictions: Sequence[PredictionResult]) -> RatioPlot | None:
    """Measured values divided by the predicted ones, with the stated ranges."""
    marks = []
    for prediction in predictions:
        if (
            prediction.measured is None
            or prediction.measured <= 0
            or prediction.expected <= 0
            or prediction.low <= 0
        ):
            continue
        text = partial(predicted_text, prediction.metric)
        bounds = [
            None if bound is None or bound <= 0 else bound / prediction.expected
            for bound in (prediction.measured_low, prediction.measured_high)
        ]
        source = (
            f", source {one_line(prediction.source_figure)}" if prediction.source_figure else ""
        )
        marks.append(
            Mark(
                ("" if prediction.variant == "candidate" else f"{one_line(prediction.variant)}: ")
                + one_line(prediction.metric),
                f"measured {text(prediction.measured)}, "
                f"predicted {text(prediction.expected)}{source}",
                prediction.measured / prediction.expected,
                bounds[0],
                bounds[1],
                band=(prediction.low / prediction.expected, prediction.high / prediction.expected),
                tone="good"
                if prediction.inside
                else "bad"
                if prediction.inside is False
                else "plain",
            )
        )
    return _plot(
        "Predicted before the run, then measured",
        "Measured ÷ predicted; the band is the range stated before the first run.",
        marks,
    )


def _plot(title: str, caption: str, marks: Sequence[Mark]) -> RatioPlot | None:
    values = [
        value
        for mark in marks
        for value in (mark.value, mark.low, mark.high, *(mark.band or ()))
        if value is not None
    ]
    axis = log_axis([*values, *_LEAST_SPAN])
    if not marks or axis is None:
        return None
    rows = [_row(mark, axis) for mark in marks]
    ticks = axis.ticks(lambda value: f"{value:g}×")
    return RatioPlot(title, caption, rows, ticks, axis.percent(1.0))


def _row(mark: Mark, axis: LogAxis) -> RatioRow:
    band = None
    if mark.band is not None:
        band = (axis.percent(mark.band[0]), axis.percent(mark.band[1]))
    return RatioRow(
        mark,
        axis.percent(mark.value),
        None if mark.low is None else axis.percent(mark.low),
        None if mark.high is None else axis.percent(mark.high),
        band,
    )


_MOST_SHOWN = 16
"""Maximum number of workers with a piece of their own in a bar; the others share one piece."""


@dataclass(frozen=True)
class Piece:
    """A worker's part of a bar, in percent of the bar."""

    left: float
    width: float


@dataclass(frozen=True)
class Bar:
    """The bar of a variant: its workers, the busiest first."""

    label: str
    said: str
    pieces: Sequence[Piece]
    shares: Sequence[float]


@dataclass(frozen=True)
class SharesPlot:
    """Bars whose shares add up to 100 % each."""

    title: str
    caption: str
    bars: Sequence[Bar]
    kind: str = "shares"


def workers_plots(measurements: Sequence[Measurement]) -> list[SharesPlot]:
    """One plot for each class whose responses name their worker."""
    classes = dict.fromkeys(name for measurement in measurements for name in measurement.classes)
    plots = []
    for name in classes:
        by_variant: dict[str, list[list[float]]] = {}
        for measurement in measurements:
            shares = _ranked(measurement.classes[name]) if name in measurement.classes else []
            if len(shares) > 1:
                by_variant.setdefault(measurement.variant, []).append(shares)
        if by_variant:
            variants = sorted(by_variant, key=place_of_variant)
            plots.append(
                SharesPlot(
                    f"Requests of {one_line(name)} by worker",
                    "The busiest worker of each run first, then the second, and so on; mean "
                    "over the runs.",
                    [
                        _bar(one_line(variant) or one_line(name), by_variant[variant])
                        for variant in variants
                    ],
                )
            )
    return plots


def _ranked(part: ClassMeasurement) -> list[float]:
    """Each worker's share of the requests, the busiest first; idle workers have 0."""
    counts = sorted((count for count in part.workers.values() if count > 0), reverse=True)
    total = sum(counts)
    there = part.worker_requests.workers if part.worker_requests is not None else 0
    idle = min(max(0, there - len(counts)), _MOST_SHOWN)
    return [count / total for count in counts] + [0.0] * idle if counts else []


def _bar(label: str, runs: Sequence[Sequence[float]]) -> Bar:
    most = max(map(len, runs))
    means = [
        sum(shares[rank] for shares in runs if rank < len(shares)) / len(runs)
        for rank in range(most)
    ]
    shown = [*means[:_MOST_SHOWN], *([sum(means[_MOST_SHOWN:])] if most > _MOST_SHOWN else [])]
    pieces = [
        Piece(round(100 * sum(shown[:rank]), 2), round(100 * share, 2))
        for rank, share in enumerate(shown)
    ]
    said = ", ".join(percent_text(share, 2) for share in means[:_MOST_SHOWN])
    more = f" and {most - _MOST_SHOWN} more" if most > _MOST_SHOWN else ""
    return Bar(label, said + more, pieces, means)
