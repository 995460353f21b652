"""Gates, claims and predictions, judged by measurements.

A quantity that was not measured never passes, whatever the operator.

A claim is judged by all runs together. Single rounds may disagree, so the result counts those that
hold: "held, in 3 of 4 rounds".

A prediction is judged by its stated range alone: whether a claim holds plays no part.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean
from typing import NamedTuple

import msgspec

from nginx_tune.documents.decisions import DecisionId, Decisions, Predicted
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, ClaimResult, PredictionResult
from nginx_tune.documents.verdict import GateResult, Unit
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.comparison import MetricPairs, outcome_of, p_value_of
from nginx_tune.measure.proof.expression import (
    COMPARE,
    Dimension,
    Expression,
    parse_expression,
    units_of,
)
from nginx_tune.measure.proof.latency import Reading
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.runs import PairedRuns, degraded_by, pair_runs, select_pairs
from nginx_tune.measure.proof.statistics import Interval, fewest_pairs, signed_rank_interval
from nginx_tune.measure.proof.workers import measure_blocked

_DIMENSIONS: dict[Unit, tuple[Dimension, ...]] = {
    "seconds": ("time",),
    "bytes": ("bytes", "count"),
    "bytes_per_second": ("bytes", "count"),
    "per_second": ("count",),
    "count": ("count",),
    "ratio": ("ratio",),
}

_MEANINGS: dict[Unit, tuple[str, str, str]] = {
    "seconds": ("a time", "ms", "s"),
    "bytes": ("a size", "MB", "B"),
    "bytes_per_second": ("a rate of bytes", "MB/s", "B/s"),
}
"""Quantities that need a unit, each with the two units that a bare number most likely has."""


@dataclass(frozen=True)
class Evaluated:
    """The result of an expression."""

    measured: float | None
    passed: bool
    reason: str = ""


def check_expressions(expressions: Iterable[str], classes: Iterable[str] | None) -> None:
    """Check that expressions can be read and name metrics of these classes (None: of any class).

    This is called before any load, so that a misspelt gate does not cost an hour.

    Errors: UsageError.
    """
    known_classes = None if classes is None else list(classes)
    for text in expressions:
        _check(parse_expression(text), known_classes)


def judge_gates(
    requires: Sequence[str],
    runs: PairedRuns,
    decisions: Decisions | None = None,
    classes: Sequence[str] | None = None,
) -> list[GateResult]:
    """The result of each gate.

    Errors: UsageError for an expression that cannot be read or names an unknown metric.
    """
    results = []
    degraded = ", ".join(degraded_by(runs))
    for text in requires:
        answer = answer_expression(parse_expression(text), runs, decisions, classes)
        results.append(
            GateResult(
                expression=text.strip(),
                measured=answer.measured,
                passed=answer.passed,
                reason="; ".join(
                    part for part in (answer.reason, degraded and f"degraded by {degraded}") if part
                ),
            )
        )
    return results


def judge_claims(
    claims: Sequence[Claim],
    measurements: Sequence[Measurement],
    decisions: Decisions | None = None,
    *,
    left_out: Mapping[str, str] | None = None,
) -> list[ClaimResult]:
    """The result of each claim of a scenario.

    ``left_out``: the variants that did not run, with the reason. Claims on them are left out.

    Errors: UsageError for an expression that cannot be read or names an unknown metric.
    """
    variants = list(dict.fromkeys(run.variant for run in measurements))
    classes = list(dict.fromkeys(name for run in measurements for name in run.classes))
    reasons = left_out or {}
    results = []
    for claim in claims:
        reason = reasons.get(claim.variant) or reasons.get(claim.against)
        if reason:
            results.append(_claim_result(claim, _unknown(reason), left_out=True))
            continue
        pairs = select_pairs(
            measurements, len(variants), against=claim.against, variant=claim.variant
        )
        expression = parse_expression(claim.expression)
        answer = answer_expression(expression, pair_runs(pairs), decisions, classes)
        results.append(_claim_result(claim, answer))
    return [_with_less_than(result, results) for result in results]


def _with_less_than(result: ClaimResult, results: Sequence[ClaimResult]) -> ClaimResult:
    """The result of a claim that must also stay below the number of another claim."""
    if not result.less_than or result.left_out:
        return result
    other = next((other for other in results if other.name == result.less_than), None)
    if other is None or other.measured is None or result.measured is None:
        reason = result.reason or f"the claim '{result.less_than}' was not measured"
        return msgspec.structs.replace(result, held=False, reason=reason)
    less = result.measured < other.measured
    return msgspec.structs.replace(
        result, held=result.held and less, reason=f"against {other.measured:.4g}"
    )


def _claim_result(claim: Claim, answer: Evaluated, *, left_out: bool = False) -> ClaimResult:
    """The result of a claim; one that expects failure holds if the measured value fails."""
    failed = answer.measured is not None and not answer.passed
    return ClaimResult(
        name=claim.name,
        source_row=claim.source_row,
        expected=claim.expression,
        source_figure=claim.source_figure,
        measured=answer.measured,
        held=answer.passed if claim.expect == "holds" else failed,
        reason=answer.reason,
        expect=claim.expect,
        less_than=claim.less_than,
        variant=claim.variant,
        against=claim.against,
        left_out=left_out,
    )


def _unknown(reason: str) -> Evaluated:
    return Evaluated(None, passed=False, reason=reason)


def answer_expression(
    expression: Expression,
    runs: PairedRuns,
    decisions: Decisions | None = None,
    classes: Sequence[str] | None = None,
) -> Evaluated:
    """The result of an expression, from the runs and the decisions made before them."""
    if expression.source == "decision":
        return _answer_decision(expression, decisions)
    _check(expression, classes or None)
    if expression.source == "outcome":
        return _answer_outcome(expression, runs)
    if expression.source == "predicted":
        reading = _predicted(expression, decisions)
    else:
        reading = _read(expression, MetricPairs(find_metric(expression.name), runs))
    if reading.is_bound:
        return _answer_bound(expression, reading)
    if reading.value is None or not math.isfinite(reading.value):
        return _unknown(reading.reason or "not a number")
    return Evaluated(
        reading.value,
        passed=COMPARE[expression.operator](reading.value, expression.limit),
        reason=reading.reason,
    )


def _answer_bound(expression: Expression, reading: Reading) -> Evaluated:
    """The result, if a bound alone decides it: a lower bound above the limit proves ``>``."""
    bound = reading.at_most if reading.at_least is None else reading.at_least
    if bound is None or expression.operator in ("==", "!="):
        return _unknown(reading.reason)
    holds = COMPARE[expression.operator](bound, expression.limit)
    above = expression.operator in (">", ">=")
    decides = holds is above if reading.at_most is None else holds is not above
    if not decides:
        return _unknown(reading.reason)
    return Evaluated(bound, passed=holds, reason=reading.reason)


def _check(expression: Expression, classes: Sequence[str] | None) -> None:
    """Check that the metric is known and that the limit fits it.

    Errors: UsageError.
    """
    if expression.word:
        if expression.metric is not None:
            find_metric(expression.metric, classes)
        return
    unit = _unit_of(expression, classes)
    if unit is None:
        return
    allowed = _DIMENSIONS[unit]
    if expression.dimension is not None and expression.dimension not in allowed:
        what = (
            "a ratio has no unit but % and x"
            if unit == "ratio"
            else f"{expression.name} is in {unit.replace('_', ' ')}"
        )
        raise UsageError(f"'{expression.text}': the unit does not fit: {what}")
    if expression.dimension is None and expression.limit and unit in _MEANINGS:
        kind, near, base = _MEANINGS[unit]
        text = expression.text
        raise UsageError(
            f"'{text}': {kind} needs its unit: {expression.limit:g} {near} or {base}?",
            hint=f"write '{text}{near}' or '{text}{base}'; units: {_spellings(unit)}",
        )
    if unit == "count" and not expression.limit.is_integer():
        raise UsageError(
            f"'{expression.text}': {expression.name} is a count, "
            f"and {expression.limit:g} is not a whole number",
            hint=f"for none at all write '{expression.name} == 0'",
        )


def _spellings(unit: Unit) -> str:
    """The units that are allowed for a limit on a quantity with this unit."""
    per_second = "/s" if unit == "bytes_per_second" else ""
    return ", ".join(f"{one}{per_second}" for one in units_of(_DIMENSIONS[unit][0]))


def _unit_of(expression: Expression, classes: Sequence[str] | None) -> Unit | None:
    """The unit of the expression's quantity; None if a prediction is not about a metric.

    Errors: UsageError for an unknown metric.
    """
    if expression.source == "ratio" or expression.name.startswith("ratio("):
        if expression.metric is not None:
            find_metric(expression.metric, classes)
        return "ratio"
    if expression.metric is not None:
        return find_metric(expression.metric, classes).unit
    try:
        return find_metric(expression.name).unit
    except UsageError:
        return None


def _read(expression: Expression, comparison: MetricPairs) -> Reading:
    if expression.source == "ratio":
        return comparison.ratio
    return comparison.baseline if expression.source == "baseline" else comparison.candidate


def _answer_decision(expression: Expression, decisions: Decisions | None) -> Evaluated:
    if decisions is None:
        return _unknown(_NO_DECISIONS)
    verdict = next((d.verdict for d in decisions.decisions if d.id == expression.name), None)
    if verdict is None:
        return _unknown(f"no decision '{expression.name}' was made")
    passed = (verdict == expression.word) is (expression.operator == "==")
    return Evaluated(None, passed=passed, reason=f"it was {verdict}")


def _answer_outcome(expression: Expression, runs: PairedRuns) -> Evaluated:
    """The result of an outcome; too few pairs decide neither ``==`` nor ``!=``."""
    comparison = MetricPairs(find_metric(expression.name), runs)
    if not comparison.pairs:
        return _unknown(comparison.missing)
    if len(comparison.pairs) < fewest_pairs():
        return _unknown(f"{len(comparison.pairs)} pairs; at least {fewest_pairs()} are needed")
    outcome, why = outcome_of(comparison, p_value_of(comparison))
    passed = (outcome == expression.word) is (expression.operator == "==")
    reason = f"it was {outcome}" + (f": {why}" if why else "")
    return Evaluated(comparison.ratio.value, passed=passed, reason=reason)


def _predicted(expression: Expression, decisions: Decisions | None) -> Reading:
    if decisions is None:
        return Reading(None, _NO_DECISIONS)
    for decision in decisions.decisions:
        for predicted in decision.predicted:
            if predicted.metric.replace(" ", "") == expression.name:
                return Reading(
                    predicted.expected, f"{decision.id}: {predicted.low:g} to {predicted.high:g}"
                )
    return Reading(None, f"nothing was predicted for {expression.name}")


_NO_DECISIONS = "no decisions were made before the first run"
_MEASURED = ("candidate", "baseline", "ratio")
"""Sources of a quantity that a single round measures."""


def with_rounds(
    results: Sequence[ClaimResult], claims: Sequence[Claim], measurements: Sequence[Measurement]
) -> list[ClaimResult]:
    """The results, each with the rounds that measured its claim and those in which it held.

    Shape: no rounds for claims on decisions and outcomes, for one that must be less than another,
    and for one whose variants did not run.
    """
    variants = list(dict.fromkeys(run.variant for run in measurements))
    classes = list(dict.fromkeys(name for run in measurements for name in run.classes))
    counted = []
    for result, claim in zip(results, claims, strict=True):
        expression = parse_expression(claim.expression)
        if result.left_out or claim.less_than or expression.source not in _MEASURED:
            counted.append(result)
            continue
        pairs = select_pairs(
            measurements, len(variants), against=claim.against, variant=claim.variant
        )
        held = _held_by_round(expression, pair_runs(pairs), classes, expect=claim.expect)
        counted.append(msgspec.structs.replace(result, rounds=len(held), rounds_held=sum(held)))
    return counted


def _held_by_round(
    expression: Expression, runs: PairedRuns, classes: Sequence[str], *, expect: str
) -> list[bool]:
    """True or False for each round that measured the claim."""
    answers = [
        answer_expression(expression, PairedRuns((pair,)), None, classes) for pair in runs.pairs
    ]
    return [
        answer.passed is (expect == "holds") for answer in answers if answer.measured is not None
    ]


_BLOCKED = "server.loop_blocked_ratio without pools"
"""The model's name for the share of time in which disks block a server without pools. It is a share
of all time, not of loop turns."""

_CHUNK = "seconds of one cold chunk"
"""The time of one blocking sendfile(), which makes the longest turns of a loop without pools."""


_LEAST_ANSWERS = 2
_TOO_FEW = "a run of the baseline has fewer than two answers per closed-loop client"


class _Subject(NamedTuple):
    decision: DecisionId
    variant: str
    source_figure: str


def judge_predictions(
    decisions: Decisions,
    measurements: Sequence[Measurement],
    *,
    variant: str,
    tried: Collection[str],
    claims: Sequence[Claim] = (),
    without_pools: bool = False,
    chunk_in_loop: bool = False,
) -> list[PredictionResult]:
    """Judge predictions by their measurements.

    ``measurements``: pairs of the baseline and the variant of this name. ``tried``: ids of the
    decisions in which the two differ. ``without_pools``: true if the baseline has no thread pools.
    ``chunk_in_loop``: true if the variant's event loop itself sends the chunks that were decided.

    Shape: only predictions of a metric, and of decisions that were tried.
    """
    runs = pair_runs(measurements)
    classes = list(dict.fromkeys(name for run in measurements for name in run.classes))
    results = []
    for decision in decisions.decisions:
        for predicted in decision.predicted:
            subject = _Subject(decision.id, variant, "")
            name = predicted.metric.replace(" ", "")
            if predicted.metric == _BLOCKED and without_pools:
                results.append(_result(predicted, _blocked_ratio(runs), subject))
            elif predicted.metric == _CHUNK and chunk_in_loop:
                turns = find_metric("server.loop_turn_seconds.p99").read(runs.candidate)
                results.append(_result(predicted, turns, subject))
            elif name.startswith("ratio(") and decision.id in tried:
                expression = _as_expression(name, classes)
                if expression is not None:
                    figure = _source_figure(expression, claims, variant)
                    subject = subject._replace(source_figure=figure)
                    results.append(_judge_ratio(predicted, expression, runs, subject))
    return results


def _judge_ratio(
    predicted: Predicted, expression: Expression, runs: PairedRuns, subject: _Subject
) -> PredictionResult:
    """Judge a predicted ratio of a metric by the pairs."""
    if too_few_answers(runs.baseline, expression.name):
        return _result(predicted, Reading(None, _TOO_FEW), subject)
    comparison = MetricPairs(find_metric(expression.name), runs)
    logs = comparison.log_ratios
    interval = signed_rank_interval(logs) if len(logs) >= fewest_pairs() else None
    return _result(predicted, comparison.ratio, subject, interval)


def too_few_answers(runs: Iterable[Measurement], metric: str) -> bool:
    """True if a run is too short for its closed-loop clients: fewer than two answers for each.

    The slowest answers then come after the run, or never, so no rate can be known. ``metric`` is of
    one class, or of ``total``.
    Source: the scenario thread-pools-cold-heavy (four clients, each with a first answer after 2 s
            and no second one within 8 s) and the drawn cell 7717-000 (three answers for four
            clients).
    """
    head = metric.partition(".")[0]
    return any(
        part.requests < _LEAST_ANSWERS * (part.users or 0)
        for run in runs
        for name, part in run.classes.items()
        if head in (name, "total")
    )


def _as_expression(text: str, classes: Sequence[str]) -> Expression | None:
    """The expression of a predicted quantity; None if the quantity is not measured."""
    try:
        expression = parse_expression(f"{text} >= 0")
        find_metric(expression.name, classes or None)
    except UsageError:
        return None
    return expression


def _blocked_ratio(runs: PairedRuns) -> Reading:
    """The share of time in which the baseline's loops waited for disks, averaged over runs."""
    shares = []
    for run in runs.baseline:
        seconds = run.duration_seconds if run.server.workers else 0.0
        blocked = measure_blocked(run.server, seconds) if seconds else None
        if blocked is None:
            return Reading(None, "the loops' waits were not measured")
        shares.append(blocked.ratio)
    return Reading(fmean(shares)) if shares else Reading(None, "no valid pair of runs")


def _result(
    predicted: Predicted, reading: Reading, subject: _Subject, interval: Interval | None = None
) -> PredictionResult:
    # A bound can only show that a prediction is outside its range.
    above = reading.at_least is not None and reading.at_least > predicted.high
    below = reading.at_most is not None and reading.at_most < predicted.low
    bound = reading.at_least if above else reading.at_most if below else None
    measured = bound if reading.is_bound else reading.value
    return PredictionResult(
        decision=subject.decision,
        variant=subject.variant,
        source_figure=subject.source_figure,
        metric=predicted.metric,
        low=predicted.low,
        expected=predicted.expected,
        high=predicted.high,
        measured=measured,
        measured_low=None if interval is None else exp(interval.low),
        measured_high=None if interval is None else exp(interval.high),
        inside=None if measured is None else predicted.low <= measured <= predicted.high,
        reason=reading.reason if measured is None or reading.is_bound else "",
    )


def _source_figure(expression: Expression, claims: Sequence[Claim], variant: str) -> str:
    """The source's figure for the same quantity; empty if the source has none."""
    for claim in claims:
        claimed = parse_expression(claim.expression)
        same = (claimed.source, claimed.name) == (expression.source, expression.name)
        if same and claim.source_figure and variant in (claim.variant, "candidate"):
            return claim.source_figure
    return ""
