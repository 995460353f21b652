"""Gates, claims and predictions held against measurements.

A quantity that was not measured never passes, whatever the operator: an unknown is no proof.

A claim that all runs together bear out may fail in a round, and one that fails may hold in most.
Where rounds do not agree that is part of the answer: "held, in 3 of 4 rounds".

A prediction is judged as it was stated: by its range. The claims of a scenario say what must be
seen at least; that both hold does not make a prediction of 270 × for 94 × a good one.
"""

from __future__ import annotations

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
"""Quantities whose number needs a unit, with the two that a bare one is most likely meant in."""


@dataclass(frozen=True)
class Evaluated:
    """The result of an expression."""

    measured: float | None
    passed: bool
    reason: str = ""


def check_expressions(expressions: Iterable[str], classes: Iterable[str] | None) -> None:
    """Nothing, when every expression can be read and names metrics of these classes, or of any.

    To be called before a run: a misspelt gate must not cost an hour of load.

    Errors: UsageError.
    """
    known = None if classes is None else list(classes)
    for text in expressions:
        _check(parse_expression(text), known)


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
    """Each claim of a scenario beside what was measured.

    ``left_out`` are the variants that did not run, with why: a claim on one is neither held nor
    lost.

    Errors: UsageError for an expression that cannot be read or names an unknown metric.
    """
    variants = list(dict.fromkeys(run.variant for run in measurements))
    classes = list(dict.fromkeys(name for run in measurements for name in run.classes))
    results = []
    for claim in claims:
        reason = next(
            (
                why
                for variant, why in (left_out or {}).items()
                if variant in (claim.variant, claim.against)
            ),
            "",
        )
        if reason:
            results.append(_claim_result(claim, _unknown(reason), left_out=True))
            continue
        chosen = select_pairs(
            measurements, len(variants), against=claim.against, variant=claim.variant
        )
        expression = parse_expression(claim.expression)
        answer = answer_expression(expression, pair_runs(chosen), decisions, classes)
        results.append(_claim_result(claim, answer))
    return [_compared(result, results) for result in results]


def _compared(result: ClaimResult, results: Sequence[ClaimResult]) -> ClaimResult:
    """The result held against the other claim that its number must be less than."""
    if not result.less_than or result.left_out:
        return result
    other = next((one for one in results if one.name == result.less_than), None)
    if other is None or other.measured is None or result.measured is None:
        reason = result.reason or "the claim that it is compared with was not measured"
        return msgspec.structs.replace(result, held=False, reason=reason)
    less = result.measured < other.measured
    return msgspec.structs.replace(
        result, held=result.held and less, reason=f"against {other.measured:.4g}"
    )


def _claim_result(claim: Claim, answer: Evaluated, *, left_out: bool = False) -> ClaimResult:
    """A claim that expects a gate to fail holds when what was measured does not pass it."""
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
    """The result of an expression over these runs and the decisions made before them."""
    if expression.source == "decision":
        return _answer_decision(expression, decisions)
    _check(expression, classes or None)
    if expression.source == "predicted":
        reading = _predicted(expression, decisions)
    else:
        if expression.source == "outcome":
            return _answer_outcome(expression, runs)
        reading = _read(expression, MetricPairs(find_metric(expression.name), runs))
    if reading.is_bound:
        return _answer_bound(expression, reading)
    if reading.value is None or not math.isfinite(reading.value):
        return Evaluated(None, passed=False, reason=reading.reason or "not a number")
    return Evaluated(
        reading.value,
        passed=COMPARE[expression.operator](reading.value, expression.limit),
        reason=reading.reason,
    )


def _answer_bound(expression: Expression, reading: Reading) -> Evaluated:
    """The answer of a bound: a lower one says that the value is above a limit, or not below."""
    bound = reading.at_most if reading.at_least is None else reading.at_least
    if bound is None or expression.operator in ("==", "!="):
        return _unknown(reading.reason)
    holds = COMPARE[expression.operator](bound, expression.limit)
    above = expression.operator in (">", ">=")
    decides = holds is above if reading.at_most is None else holds is not above
    return (
        Evaluated(bound, passed=holds, reason=reading.reason)
        if decides
        else _unknown(reading.reason)
    )


def _check(expression: Expression, classes: Sequence[str] | None) -> None:
    """Nothing, when the metric is known and the number can be meant of it.

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
            hint=f"write '{text}{near}' or '{text}{base}'; units: {_written(unit)}",
        )
    if unit == "count" and not expression.limit.is_integer():
        raise UsageError(
            f"'{expression.text}': {expression.name} is a count, "
            f"and {expression.limit:g} is no whole number",
            hint=f"for none at all write '{expression.name} == 0'",
        )


def _written(unit: Unit) -> str:
    """The units that a number of such a quantity may have."""
    per_second = "/s" if unit == "bytes_per_second" else ""
    return ", ".join(f"{one}{per_second}" for one in units_of(_DIMENSIONS[unit][0]))


def _unit_of(expression: Expression, classes: Sequence[str] | None) -> Unit | None:
    """The quantity's; None for a prediction of something that is no metric.

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
        return Evaluated(None, passed=False, reason="no decisions were made before the run")
    verdict = next((d.verdict for d in decisions.decisions if d.id == expression.name), None)
    if verdict is None:
        return Evaluated(None, passed=False, reason=f"no decision '{expression.name}' was made")
    passed = (verdict == expression.word) is (expression.operator == "==")
    return Evaluated(None, passed=passed, reason=f"it was {verdict}")


def _answer_outcome(expression: Expression, runs: PairedRuns) -> Evaluated:
    """The answer of an outcome; one of too few pairs is no evidence for ``!=`` or ``==``."""
    comparison = MetricPairs(find_metric(expression.name), runs)
    if not comparison.pairs:
        return _unknown(comparison.missing)
    if len(comparison.pairs) < fewest_pairs():
        said = f"{len(comparison.pairs)} of at least {fewest_pairs()} pairs that are needed"
        return _unknown(said)
    outcome, why = outcome_of(comparison, p_value_of(comparison))
    passed = (outcome == expression.word) is (expression.operator == "==")
    reason = f"it was {outcome}" + (f": {why}" if why else "")
    return Evaluated(comparison.ratio.value, passed=passed, reason=reason)


def _predicted(expression: Expression, decisions: Decisions | None) -> Reading:
    if decisions is None:
        return Reading(None, "no decisions were made before the run")
    for decision in decisions.decisions:
        for predicted in decision.predicted:
            if predicted.metric.replace(" ", "") == expression.name:
                return Reading(
                    predicted.expected,
                    f"{decision.id}: {predicted.low:g} to {predicted.high:g}",
                )
    return Reading(None, f"nothing was predicted for {expression.name}")


_MEASURED = ("candidate", "baseline", "ratio")
"""Sources of what a single round can answer."""


def with_rounds(
    results: Sequence[ClaimResult], claims: Sequence[Claim], measurements: Sequence[Measurement]
) -> list[ClaimResult]:
    """The results of these claims, each with the rounds that could answer it and that held it.

    Shape: no rounds for claims on decisions and outcomes, for one that is held against another,
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
        chosen = select_pairs(
            measurements, len(variants), against=claim.against, variant=claim.variant
        )
        held = _held_by_round(expression, pair_runs(chosen), classes, expect=claim.expect)
        counted.append(msgspec.structs.replace(result, rounds=len(held), rounds_held=sum(held)))
    return counted


def _held_by_round(
    expression: Expression, runs: PairedRuns, classes: Sequence[str], *, expect: str
) -> list[bool]:
    """The result of each round that measured it."""
    answers = [
        answer_expression(expression, PairedRuns((pair,)), None, classes) for pair in runs.pairs
    ]
    return [
        answer.passed is (expect == "holds") for answer in answers if answer.measured is not None
    ]


_BLOCKED = "server.loop_blocked_ratio without pools"
"""The model's share for a server without pools: of all time, not of the turns."""

_CHUNK = "seconds of one cold chunk"
"""The time of one blocking sendfile(): the longest turns of a loop that reads by itself."""


_LEAST_ANSWERS = 2
_TOO_FEW = "a run of the baseline has less than two answers for each client that waits for one"


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
    """Each predicted number that the run can answer, beside what was measured.

    ``measurements`` are pairs of the baseline and of the variant of this name; ``tried`` the ids of
    the decisions in which these two differ; ``without_pools`` whether the baseline has none;
    ``chunk_in_loop`` whether the variant's own loop sends the chunks that were decided.

    Shape: without what no metric measures and without what was not tried.
    """
    runs = pair_runs(measurements)
    classes = list(dict.fromkeys(name for run in measurements for name in run.classes))
    results = []
    for decision in decisions.decisions:
        for predicted in decision.predicted:
            if predicted.metric == _BLOCKED and without_pools:
                of = _Subject(decision.id, variant, "")
                results.append(_result(predicted, _blocked_ratio(runs), of))
                continue
            if predicted.metric == _CHUNK and chunk_in_loop:
                of = _Subject(decision.id, variant, "")
                turns = find_metric("server.loop_turn_seconds.p99").read(runs.candidate)
                results.append(_result(predicted, turns, of))
                continue
            name = predicted.metric.replace(" ", "")
            tries = name.startswith("ratio(") and decision.id in tried
            expression = _parsed(name, classes) if tries else None
            if expression is not None:
                of = _Subject(decision.id, variant, _source_figure(expression, claims, variant))
                if too_few_answers(runs.baseline, expression.name):
                    results.append(_result(predicted, Reading(None, _TOO_FEW), of))
                    continue
                reading = MetricPairs(find_metric(expression.name), runs).ratio
                results.append(_result(predicted, reading, of, _interval(expression, runs)))
    return results


def too_few_answers(runs: Iterable[Measurement], metric: str) -> bool:
    """True if runs are too short for their clients, those that wait for an answer to ask again.

    With less than two answers for each of them in a run nobody knows how often they are answered:
    who waits longest is counted after it, or never. ``metric`` is of one class, or of ``total``.
    Source: thread-pools-cold-heavy, a first answer for each of four clients after 2 s and no second
            one in 8; drawn-7717-000, three answers for four clients.
    """
    name = metric.partition(".")[0]
    return any(
        one.requests < _LEAST_ANSWERS * (one.users or 0)
        for run in runs
        for of, one in run.classes.items()
        if name in (of, "total")
    )


def _parsed(text: str, classes: Sequence[str]) -> Expression | None:
    """The quantity as an expression that can be answered; None for one that cannot."""
    try:
        expression = parse_expression(f"{text} >= 0")
        find_metric(expression.name, classes or None)
    except UsageError:  # the model names more than is measured
        return None
    return expression


def _blocked_ratio(runs: PairedRuns) -> Reading:
    """Share of the baseline's time in which a loop waited for disks, workers and runs alike."""
    shares = []
    for run in runs.baseline:
        seconds = run.duration_seconds if run.server.workers else 0.0
        blocked = measure_blocked(run.server, seconds) if seconds else None
        if blocked is None:
            return Reading(None, "what held the loops was not measured")
        shares.append(blocked.ratio)
    return Reading(fmean(shares)) if shares else Reading(None, "no valid pair of runs")


def _interval(expression: Expression, runs: PairedRuns) -> Interval | None:
    log_ratios = MetricPairs(find_metric(expression.name), runs).log_ratios
    return signed_rank_interval(log_ratios) if len(log_ratios) >= fewest_pairs() else None


def _result(
    predicted: Predicted, reading: Reading, of: _Subject, interval: Interval | None = None
) -> PredictionResult:
    # A bound says of a prediction that it is outside, or nothing.
    above = reading.at_least is not None and reading.at_least > predicted.high
    below = reading.at_most is not None and reading.at_most < predicted.low
    bound = reading.at_least if above else reading.at_most if below else None
    measured = bound if reading.is_bound else reading.value
    return PredictionResult(
        decision=of.decision,
        variant=of.variant,
        source_figure=of.source_figure,
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
    """The source's figure for the same quantity."""
    for claim in claims:
        said = parse_expression(claim.expression)
        same = (said.source, said.name) == (expression.source, expression.name)
        if same and claim.source_figure and variant in (claim.variant, "candidate"):
            return claim.source_figure
    return ""
