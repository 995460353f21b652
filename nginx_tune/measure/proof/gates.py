"""Gates and claims held against what was measured and predicted.

A quantity that was not measured never passes, whatever the operator: an unknown is no proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, ClaimResult
from nginx_tune.documents.verdict import GateResult, Unit
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.blocks import Blocks, degraded_by, pair_blocks, select_pairs
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
from nginx_tune.measure.proof.statistics import fewest_pairs

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
    """What an expression came to."""

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
    blocks: Blocks,
    decisions: Decisions | None = None,
    classes: Sequence[str] | None = None,
) -> list[GateResult]:
    """The result of each gate.

    Errors: UsageError for an expression that cannot be read or names an unknown metric.
    """
    results = []
    degraded = ", ".join(degraded_by(blocks))
    for text in requires:
        answer = answer_expression(parse_expression(text), blocks, decisions, classes)
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

    ``left_out`` are the arms that did not run, with why: a claim on one is neither held nor lost.

    Errors: UsageError for an expression that cannot be read or names an unknown metric.
    """
    arms = list(dict.fromkeys(block.arm for block in measurements))
    classes = list(dict.fromkeys(name for block in measurements for name in block.classes))
    results = []
    for claim in claims:
        reason = next(
            (why for arm, why in (left_out or {}).items() if arm in (claim.arm, claim.against)), ""
        )
        if reason:
            results.append(_claim_result(claim, _unknown(reason), left_out=True))
            continue
        chosen = select_pairs(measurements, len(arms), against=claim.against, arm=claim.arm)
        expression = parse_expression(claim.expression)
        answer = answer_expression(expression, pair_blocks(chosen), decisions, classes)
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
        arm=claim.arm,
        against=claim.against,
        left_out=left_out,
    )


def _unknown(reason: str) -> Evaluated:
    return Evaluated(None, passed=False, reason=reason)


def answer_expression(
    expression: Expression,
    blocks: Blocks,
    decisions: Decisions | None = None,
    classes: Sequence[str] | None = None,
) -> Evaluated:
    """What an expression comes to over these blocks and the decisions made before them."""
    if expression.source == "decision":
        return _answer_decision(expression, decisions)
    _check(expression, classes or None)
    if expression.source == "predicted":
        reading = _predicted(expression, decisions)
    else:
        if expression.source == "outcome":
            return _answer_outcome(expression, blocks)
        reading = _read(expression, MetricPairs(find_metric(expression.name), blocks))
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
    """What a bound decides: a lower one that the value is above a limit, or not below it."""
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
    """Of the quantity; None for a prediction of something that is no metric.

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


def _answer_outcome(expression: Expression, blocks: Blocks) -> Evaluated:
    """What is said of too few pairs is no evidence, for ``!=`` as little as for ``==``."""
    comparison = MetricPairs(find_metric(expression.name), blocks)
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
