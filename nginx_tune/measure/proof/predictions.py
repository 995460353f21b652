"""What was predicted before a run, held against what was measured.

A prediction is judged as it was stated: by its range. The claims of a scenario say what must be
seen at least; that both hold does not make a prediction of 270 × for 94 × a good one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import exp
from statistics import fmean
from typing import NamedTuple

from nginx_tune.documents.decisions import DecisionId, Decisions, Predicted
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, PredictionResult
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.blocked import measure_blocked
from nginx_tune.measure.proof.blocks import Blocks, pair_blocks
from nginx_tune.measure.proof.comparison import MetricPairs
from nginx_tune.measure.proof.expression import Expression, parse_expression
from nginx_tune.measure.proof.latency import Reading
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.statistics import Interval, fewest_pairs, signed_rank_interval

_BLOCKED = "server.loop_blocked_ratio without pools"
"""What the model says of a server without pools: the share of all time, not of the turns."""

_CHUNK = "seconds of one cold chunk"
"""How long one blocking sendfile() lasts; the longest turns of a loop that reads by itself."""


_LEAST_ANSWERS = 2
_TOO_FEW = "a block of the baseline has less than two answers for each client that waits for one"


class _Subject(NamedTuple):
    decision: DecisionId
    arm: str
    source_figure: str


def judge_predictions(
    decisions: Decisions,
    measurements: Sequence[Measurement],
    *,
    arm: str,
    tried: Collection[str],
    claims: Sequence[Claim] = (),
    without_pools: bool = False,
    chunk_in_loop: bool = False,
) -> list[PredictionResult]:
    """Each predicted number that the run can answer, beside what was measured.

    ``measurements`` are pairs of the baseline and of the arm of this name; ``tried`` the ids of
    the decisions in which these two differ; ``without_pools`` whether the baseline has none;
    ``chunk_in_loop`` whether the arm's own loop sends the chunks that were decided.

    Shape: without what no metric measures and without what was not tried.
    """
    blocks = pair_blocks(measurements)
    classes = list(dict.fromkeys(name for block in measurements for name in block.classes))
    results = []
    for decision in decisions.decisions:
        for predicted in decision.predicted:
            if predicted.metric == _BLOCKED and without_pools:
                of = _Subject(decision.id, arm, "")
                results.append(_result(predicted, _blocked_ratio(blocks), of))
                continue
            if predicted.metric == _CHUNK and chunk_in_loop:
                of = _Subject(decision.id, arm, "")
                turns = find_metric("server.loop_turn_seconds.p99").read(blocks.candidate)
                results.append(_result(predicted, turns, of))
                continue
            name = predicted.metric.replace(" ", "")
            tries = name.startswith("ratio(") and decision.id in tried
            expression = _parsed(name, classes) if tries else None
            if expression is not None:
                of = _Subject(decision.id, arm, _source_figure(expression, claims, arm))
                if too_few_answers(blocks.baseline, expression.name):
                    results.append(_result(predicted, Reading(None, _TOO_FEW), of))
                    continue
                reading = MetricPairs(find_metric(expression.name), blocks).ratio
                results.append(_result(predicted, reading, of, _interval(expression, blocks)))
    return results


def too_few_answers(blocks: Iterable[Measurement], metric: str) -> bool:
    """Whether blocks are too short for their clients, those that wait for an answer to ask again.

    With less than two answers for each of them in a block nobody knows how often they are answered:
    who waits longest is counted after it, or never. ``metric`` is of one class, or of ``total``.
    Source: thread-pools-cold-heavy, a first answer for each of four clients after 2 s and no second
            one in 8; drawn-7717-000, three answers for four clients.
    """
    name = metric.partition(".")[0]
    return any(
        one.requests < _LEAST_ANSWERS * (one.users or 0)
        for block in blocks
        for of, one in block.classes.items()
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


def _blocked_ratio(blocks: Blocks) -> Reading:
    """Share of the baseline's time in which a loop waited for disks, workers and blocks alike."""
    shares = []
    for block in blocks.baseline:
        seconds = block.duration_seconds if block.server.workers else 0.0
        blocked = measure_blocked(block.server, seconds) if seconds else None
        if blocked is None:
            return Reading(None, "what held the loops was not measured")
        shares.append(blocked.ratio)
    return Reading(fmean(shares)) if shares else Reading(None, "no valid pair of blocks")


def _interval(expression: Expression, blocks: Blocks) -> Interval | None:
    log_ratios = MetricPairs(find_metric(expression.name), blocks).log_ratios
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
        arm=of.arm,
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


def _source_figure(expression: Expression, claims: Sequence[Claim], arm: str) -> str:
    """What the source says of the same quantity."""
    for claim in claims:
        said = parse_expression(claim.expression)
        same = (said.source, said.name) == (expression.source, expression.name)
        if same and claim.source_figure and arm in (claim.arm, "candidate"):
            return claim.source_figure
    return ""
