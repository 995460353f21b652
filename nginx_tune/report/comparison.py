"""``comparison`` for people: one sentence, a table, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Mapping

from nginx_tune.documents.comparison import ComparedMetric, Comparison
from nginx_tune.measure.proof.windows import TRAFFIC
from nginx_tune.report.quantities import metric_words, one_line, ratio_text, unit_text
from nginx_tune.report.screen import Line, Screen, Table
from nginx_tune.report.text import percent_text


def comparison_screen(comparison: Comparison) -> Screen:
    """The sentence, the table with its reasons below it, what cannot be told."""
    header = ("metric", "before", "after", "ratio", "outcome")
    notes: dict[str, int] = {}
    rows = [
        (
            one_line(one.name) + (" (primary)" if one.name == comparison.primary_metric else ""),
            unit_text(one.unit, one.before),
            unit_text(one.unit, one.after),
            _ratio(one),
            one.outcome.replace("_", " ") + _mark(one_line(one.reason), notes),
        )
        # What it all stands on comes first.
        for one in sorted(comparison.metrics, key=lambda one: one.name != TRAFFIC)
    ]
    return [
        [Line(comparison_sentence(comparison), "answer")],
        [Table([header, *rows], right=(1, 2)), *_numbered(notes)],
        [Line(f"warning: {one_line(warning)}", "warning") for warning in comparison.warnings],
    ]


def _mark(reason: str, notes: dict[str, int]) -> str:
    """Where the reason of an outcome stands: once, whatever rows have it."""
    return f" [{notes.setdefault(reason, len(notes) + 1)}]" if reason else ""


def _numbered(notes: Mapping[str, int]) -> list[Table]:
    rows = [(f"[{number}]", reason) for reason, number in notes.items()]
    return [Table(rows, indent=2, has_head=False)] if rows else []


def comparison_sentence(comparison: Comparison) -> str:
    """One sentence that can be quoted."""
    found = [one for one in comparison.metrics if one.name == comparison.primary_metric]
    words = metric_words(comparison.primary_metric)
    if comparison.outcome == "invalid" or not found:
        return f"No verdict: {one_line(comparison.reason)}."
    primary = found[0]
    basis = "against the control" if comparison.controlled else "without a control"
    if primary.level is not None:
        basis += (
            f", {percent_text(primary.level)} interval from blocks of {primary.seconds} seconds"
        )
    said = f"{words} is {_ratio(primary)} what it was ({basis})"
    if primary.ratio is None:
        said = f"{words} {_without_ratio(primary)} ({basis})"
    if comparison.outcome == "inconclusive":
        return f"Not settled: {said}: {one_line(comparison.reason)}."
    if comparison.outcome == "no_difference":
        if primary.before is None or primary.after is None:
            return f"No verdict: {said}."
        return f"No difference: {said}."
    if primary.outcome != comparison.outcome:
        return f"Worse: {one_line(comparison.reason)}; {said}."
    return f"{comparison.outcome.capitalize()}: {said}."


def _without_ratio(metric: ComparedMetric) -> str:
    """What is said where one of the two is zero or not known."""
    if metric.before is None or metric.after is None:
        return "cannot be set against what it was"
    if metric.before == metric.after == 0:
        return "was none before and is none now"
    old, new = unit_text(metric.unit, metric.before), unit_text(metric.unit, metric.after)
    return f"is {new} after {old}"


def _ratio(metric: ComparedMetric) -> str:
    if metric.low is None or metric.high is None:
        return ratio_text(metric.ratio)
    return f"{ratio_text(metric.ratio)} [{metric.low:.3g}–{metric.high:.3g}]"
