"""Rows of ratios on one logarithmic axis: metrics, pairs of blocks, measured against predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nginx_tune.documents.scenario import PredictionResult
from nginx_tune.documents.verdict import MetricVerdict, Verdict
from nginx_tune.measure.proof.blocks import Blocks
from nginx_tune.measure.proof.comparison import MetricPairs
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.report.page.plot.axis import LogAxis, Tick, log_axis
from nginx_tune.report.quantities import (
    interval_text,
    metric_words,
    one_line,
    predicted_text,
    ratio_text,
)

Tone = Literal["good", "bad", "plain"]
_TONES: dict[str, Tone] = {"better": "good", "worse": "bad"}
_LEAST_SPAN = (0.8, 1.25)
"""Shown at least, so that a tenth of a percent does not look like much."""


@dataclass(frozen=True)
class Mark:
    """A value with its interval, and the band it was expected in; all ratios above 0."""

    label: str
    said: str
    """The value in words, beside it."""
    value: float
    low: float | None = None
    high: float | None = None
    band: tuple[float, float] | None = None
    tone: Tone = "plain"
    is_sum: bool = False
    """Whether it is what the rows above come to."""


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
    """Rows over one axis; ``one`` is where 1× lies, in percent."""

    title: str
    caption: str
    rows: Sequence[RatioRow]
    ticks: Sequence[Tick]
    one: float
    kind: str = "ratios"


def metrics_plot(verdict: Verdict) -> RatioPlot | None:
    """The ratio of each judged metric that has one; None without any."""
    marks = [
        Mark(
            metric_words(one.name) + (" · primary" if one.name == verdict.primary_metric else ""),
            f"{interval_text(one)} {one.outcome.replace('_', ' ') if one.judged else ''}".strip(),
            one.ratio,
            one.low,
            one.high,
            tone=_TONES.get(one.outcome, "plain") if one.judged else "plain",
        )
        for one in sorted(verdict.metrics, key=lambda one: one.name != verdict.primary_metric)
        if one.ratio is not None and one.ratio > 0
    ]
    return _plot(
        "Candidate against baseline",
        "Ratio candidate ÷ baseline with its interval; left of 1× is less, right is more.",
        marks,
    )


def pairs_plot(verdict: Verdict, blocks: Blocks) -> RatioPlot | None:
    """The primary metric's ratio in each pair of blocks, and what they come to together."""
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if primary is None or primary.ratio is None or primary.ratio <= 0:
        return None
    compared = MetricPairs(find_metric(primary.name), blocks)
    indexes = [pair.index for pair in compared.blocks.pairs]
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
        "Both halves of a pair ran next to each other in time; the last row is all of them.",
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
    """What was measured by what was predicted before the run, with the stated range."""
    marks = []
    for one in predictions:
        if one.measured is None or one.measured <= 0 or one.expected <= 0 or one.low <= 0:
            continue
        text = partial(predicted_text, one.metric)
        bounds = [
            None if bound is None or bound <= 0 else bound / one.expected
            for bound in (one.measured_low, one.measured_high)
        ]
        source = f", source {one_line(one.source_figure)}" if one.source_figure else ""
        marks.append(
            Mark(
                ("" if one.arm == "candidate" else f"{one_line(one.arm)}: ") + one_line(one.metric),
                f"measured {text(one.measured)}, predicted {text(one.expected)}{source}",
                one.measured / one.expected,
                bounds[0],
                bounds[1],
                band=(one.low / one.expected, one.high / one.expected),
                tone="good" if one.inside else "bad" if one.inside is False else "plain",
            )
        )
    return _plot(
        "Predicted before the run, then measured",
        "Measured ÷ predicted; the band is the range that was stated before the first block.",
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
