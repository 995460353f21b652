"""Two arms judged: the candidate is better, worse, no different, or it is not known.

An outcome needs all of: at least six pairs, an exact interval clear of 1, an estimate beyond the
smallest effect worth having and beyond the noise floor of the host, and for every metric but the
primary one a p that survives Holm's correction. ``no_difference`` is as strict: the whole
interval lies inside the margin. Anything else is ``inconclusive``, with the pairs that would
settle it. A candidate that fails more requests is never better, however fast the rest came. Where
disks failed reads the comparison is invalid, since it is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from nginx_tune.documents.capacity import Capacity
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.verdict import Environment, MetricVerdict, Outcome, Verdict
from nginx_tune.errors import ExitStatus, worst
from nginx_tune.prove.blocks import Blocks, flag_warnings, pair_blocks
from nginx_tune.prove.by_seconds import with_seconds_checks
from nginx_tune.prove.comparison import Comparison
from nginx_tune.prove.gates import judge_gates
from nginx_tune.prove.metrics import default_metrics, find_metric
from nginx_tune.prove.outcome import MARGIN, Bar, is_noise, outcome_of, p_value_of
from nginx_tune.prove.read_errors import find_read_errors
from nginx_tune.prove.statistics import (
    ALPHA,
    holm,
    pairs_needed,
    signed_rank_interval,
)

_MORE_FAILURES = 0.001
"""Failed requests in a thousand that the candidate may have more than the baseline."""


def judge(
    measurements: Sequence[Measurement],
    *,
    primary_metric: str,
    metrics: Sequence[str] | None = None,
    requires: Sequence[str] = (),
    margin: float = MARGIN,
    noise_floor: float | Mapping[str, float] | None = None,
    alpha: float = ALPHA,
    environment: Environment | None = None,
    decisions: Decisions | None = None,
) -> Verdict:
    """The verdict over all blocks of two arms.

    ``alpha`` is the share of wrong claims that this look may make; less when it is one of several.
    Units:  ``margin`` and ``noise_floor`` are shares: 0.05 is 5 %. A mapping gives the floor of
            each metric, as ``measure_noise_floor`` returns it.
    Errors: UsageError for an unknown metric, an expression that cannot be read, or blocks that
            cannot be paired.
    """
    blocks = pair_blocks(measurements)
    classes = list(dict.fromkeys(name for block in measurements for name in block.classes))
    if metrics is None:
        metrics = default_metrics(blocks.baseline + blocks.candidate)
    names = list(dict.fromkeys((primary_metric, *metrics)))
    bar = Bar(margin=margin, alpha=alpha)
    judged = _judge_metrics(names, blocks, classes, noise_floor, bar)
    primary = judged[0]
    outcome, reason = _overall(primary, blocks, find_read_errors(measurements))
    environment = environment or Environment()
    return Verdict(
        outcome=outcome,
        primary_metric=primary_metric,
        reason=reason,
        metrics=with_seconds_checks(judged, blocks, bar, seed=environment.seed),
        gates=judge_gates(requires, blocks, decisions, classes),
        warnings=flag_warnings(blocks),
        environment=msgspec.structs.replace(
            environment, pairs=len(blocks.pairs), discarded_pairs=len(blocks.discarded)
        ),
    )


def measure_noise_floor(
    measurements: Sequence[Measurement], metrics: Sequence[str] | None = None
) -> dict[str, float]:
    """How far apart two arms of the same configuration came out, per metric, as a share.

    The far end of the interval: what an A/A run cannot tell from nothing, no A/B run may claim.

    Shape: only metrics that have a ratio in every pair.
    """
    blocks = pair_blocks(measurements)
    floors = {}
    for name in metrics or default_metrics(blocks.baseline + blocks.candidate):
        interval = signed_rank_interval(Comparison(find_metric(name), blocks).log_ratios)
        if interval is not None:
            floors[name] = math.expm1(max(abs(interval.low), abs(interval.high)))
    return floors


def verdict_status(verdict: Verdict, *, accept_inconclusive: bool = False) -> ExitStatus:
    """The exit status of a verdict with its gates."""
    statuses = [ExitStatus.OK]
    if verdict.outcome == "worse" or not all(gate.passed for gate in verdict.gates):
        statuses.append(ExitStatus.FOUND)
    if verdict.outcome == "invalid":
        statuses.append(ExitStatus.UNDECIDED)
    if verdict.outcome == "inconclusive" and not accept_inconclusive:
        statuses.append(ExitStatus.UNDECIDED)
    if any(is_unknown(capacity) for capacity in verdict.capacities.values()):
        statuses.append(ExitStatus.UNDECIDED)
    return worst(*statuses)


def is_unknown(capacity: Capacity) -> bool:
    """Whether a search came to no capacity: what was in the way is not the server."""
    return capacity.capacity_per_second is None and capacity.limited_by != "bound"


def scenario_status(run: ScenarioRun) -> ExitStatus:
    """The exit status of a scenario: its claims decide, unless nothing valid was measured."""
    if run.verdict.outcome == "invalid":
        return ExitStatus.UNDECIDED
    held = all(claim.held or claim.left_out for claim in run.claims)
    return ExitStatus.OK if held else ExitStatus.FOUND


def _judge_metrics(
    names: Sequence[str],
    blocks: Blocks,
    classes: Sequence[str],
    noise_floor: float | Mapping[str, float] | None,
    bar: Bar,
) -> list[MetricVerdict]:
    compared = [Comparison(find_metric(name, classes or None), blocks) for name in names]
    p_values = [p_value_of(comparison) for comparison in compared]
    tested = [index for index, p in enumerate(p_values) if index and p is not None]
    adjusted = holm([p_values[index] or 0.0 for index in tested])
    for index, corrected in zip(tested, adjusted, strict=True):
        p_values[index] = corrected
    floors = (
        noise_floor if isinstance(noise_floor, Mapping) else dict.fromkeys(names, noise_floor or 0)
    )
    results = []
    for index, (comparison, p) in enumerate(zip(compared, p_values, strict=True)):
        tests = len(tested) if index else 1
        own = bar._replace(tests=tests, floor=floors.get(names[index], 0.0))
        results.append(_judge_metric(comparison, p, own))
    return results


def _judge_metric(comparison: Comparison, p: float | None, bar: Bar) -> MetricVerdict:
    log_ratios = comparison.log_ratios
    interval = signed_rank_interval(log_ratios, bar.alpha)
    outcome, reason = outcome_of(comparison, p, bar)
    needed = None
    # No number of pairs settles what the host's own noise hides.
    if outcome == "inconclusive" and log_ratios and not is_noise(log_ratios, bar.margin, bar.floor):
        needed = pairs_needed(
            log_ratios, worth=math.log1p(bar.margin), tests=bar.tests, alpha=bar.alpha
        )
    return MetricVerdict(
        name=comparison.metric.name,
        baseline=comparison.baseline.value,
        candidate=comparison.candidate.value,
        ratio=comparison.ratio.value,
        low=None if interval is None else math.exp(interval.low),
        high=None if interval is None else math.exp(interval.high),
        level=None if interval is None else interval.level,
        p_value=p,
        pairs=len(comparison.pairs),
        discarded_pairs=comparison.discarded,
        better_when=comparison.metric.better_when,
        outcome=outcome,
        pairs_needed=needed,
        reason=reason,
    )


def _overall(primary: MetricVerdict, blocks: Blocks, failing_disks: str) -> tuple[Outcome, str]:
    if failing_disks:
        return "invalid", failing_disks
    counted = len(blocks.counting_for(primary.name).pairs)
    if not counted or primary.discarded_pairs > counted:
        first = _first_flag(blocks)
        planned = counted + primary.discarded_pairs
        return "invalid", f"{primary.discarded_pairs} of {planned} pairs discarded{first}"
    if not primary.pairs:
        return "invalid", f"{primary.name}: {primary.reason}"
    if primary.outcome != "worse" and (failing := _failing_class(blocks)):
        return "worse", failing
    return primary.outcome, primary.reason


def _first_flag(blocks: Blocks) -> str:
    """Why the first pair does not count."""
    if blocks.discarded:
        return f"; {blocks.discarded[0].reason}"
    spoilt = next((pair for pair in blocks.pairs if pair.spoilt), None)
    return f"; the probe was late for {', '.join(sorted(spoilt.spoilt))}" if spoilt else ""


def _failing_class(blocks: Blocks) -> str:
    """What fails more often with the candidate in every pair; empty for nothing."""
    for name in blocks.classes:
        shares = [
            (_failed(pair.baseline, name), _failed(pair.candidate, name)) for pair in blocks.pairs
        ]
        if all(candidate > baseline + _MORE_FAILURES for baseline, candidate in shares):
            low = f"{100 * min(candidate for _, candidate in shares):.1f} %"
            return f"{name}: at least {low} of the candidate's requests failed in every block"
    return ""


def _failed(block: Measurement, name: str) -> float:
    part = block.classes.get(name)
    if part is None:
        return 0.0
    failed = sum(part.errors.values())
    return failed / max(part.requests + failed, 1)
