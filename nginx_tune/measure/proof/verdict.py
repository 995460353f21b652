"""Two variants judged: the candidate is better, worse, no different, or it is not known.

Two metrics are named before the run and tested each by itself: the primary one, and what the same
requests cost the server. All others are tested together (``step_down``). A claim needs all
of: at least six pairs, an exact interval clear of 1, an estimate beyond the smallest effect worth
having and beyond the noise floor of the host, and among the others a p that survives. One judged
metric that is worse makes the candidate worse, however much better the rest is, unless the caller
named it beforehand as one that may be. Where the primary metric shows no difference and none is
worse, one that is better makes it better, by the same corrected p. ``no_difference`` is as strict:
the whole interval of the primary metric and that of the cost lie inside the margin. Anything else
is ``inconclusive``, with the pairs that would settle it. A candidate that fails more requests is
never better, however fast the rest came. Where disks failed reads the comparison is invalid, since
it is theirs.

A comparison whose pairs come one by one is looked at now and then. To look after every pair at a
level of 5 % and to stop at the first claim is wrong far more often than in 5 %. So there are few
looks, each half as many pairs again as the one before, and each spends a part of the 5 %: the first
what the fewest pairs can give at all (seven that agree, 2 of the 2^7 patterns), every further one a
fixed share of what is left. The parts of all looks there could ever be add up to 5 %. Then all
intervals hold together with 95 %, whatever the looks have in common, and it may be stopped at any
look for any reason: because it is settled, because the interval is as narrow as asked, or because
time is up.

Source: Bonferroni over looks; repeated confidence intervals, Jennison and Turnbull 1989.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.measurement import Capacity, Measurement
from nginx_tune.documents.run import Validation
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.verdict import Environment, MetricVerdict, Outcome, Verdict
from nginx_tune.errors import ExitStatus, UsageError, worst
from nginx_tune.measure.proof.by_seconds import with_seconds_checks
from nginx_tune.measure.proof.comparison import (
    COST,
    MARGIN,
    CostComparison,
    Criterion,
    MetricPairs,
    is_noise,
    outcome_of,
    p_value_of,
)
from nginx_tune.measure.proof.gates import judge_gates
from nginx_tune.measure.proof.merge import sessions_by_variant
from nginx_tune.measure.proof.metrics import default_metrics, find_metric
from nginx_tune.measure.proof.runs import (
    PairedRuns,
    failing_both,
    failing_class,
    failure_warnings,
    flag_warnings,
    limit_warnings,
    pair_runs,
)
from nginx_tune.measure.proof.statistics import (
    ALPHA,
    fewest_pairs,
    pairs_needed,
    signed_rank_interval,
    step_down,
)

_EXPLAINING = ("server.block_io_delay_seconds", "server.loop_turn_seconds.p99")
"""Shown and not judged: what many threads wait for disks rises where all that clients see gets
better, and a longer turn harms through what clients wait alone."""


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
    accept_worse: Sequence[str] = (),
    lost: Sequence[str] = (),
) -> Verdict:
    """The verdict over all runs of two variants.

    ``lost`` is what the candidate no longer serves: it is worse, however fast it is.
    ``accept_worse`` are metrics that may become worse; they are judged and decide nothing.
    ``alpha`` is the share of wrong claims that this look may make; less when it is one of several.
    Units:  ``margin`` and ``noise_floor`` are shares: 0.05 is 5 %. A mapping gives the floor of
            each metric, as ``measure_noise_floor`` returns it.
    Errors: UsageError for an unknown metric, an expression that cannot be read, runs that
            cannot be paired, or a primary metric that may become worse.
    """
    if primary_metric in accept_worse:
        raise UsageError(
            f"{primary_metric} decides, so it cannot be accepted as worse",
            hint="name another metric with --primary",
        )
    runs = pair_runs(measurements)
    classes = list(dict.fromkeys(name for run in measurements for name in run.classes))
    if metrics is None:
        metrics = default_metrics(runs.baseline + runs.candidate)
    names = list(dict.fromkeys((primary_metric, *_cost_of(runs, primary_metric), *metrics)))
    bar = Criterion(margin=margin, alpha=alpha)
    judged = _judge_metrics(names, runs, classes, noise_floor, bar)
    outcome, reason = _overall(judged, runs, find_read_errors(measurements), accept_worse)
    if lost:
        outcome, reason = "worse", f"it no longer serves what the baseline does: {'; '.join(lost)}"
    environment = environment or Environment()
    return Verdict(
        outcome=outcome,
        primary_metric=primary_metric,
        reason=reason,
        metrics=with_seconds_checks(judged, runs, bar, seed=environment.seed),
        gates=judge_gates(requires, runs, decisions, classes),
        warnings=[
            *failure_warnings(runs),
            *limit_warnings(runs),
            *flag_warnings(runs),
        ],
        accept_worse=list(accept_worse),
        lost=list(lost),
        environment=msgspec.structs.replace(
            environment,
            pairs=len(runs.pairs),
            discarded_pairs=len(runs.discarded),
            tls=sessions_by_variant(measurements),
        ),
    )


def measure_noise_floor(measurements: Sequence[Measurement]) -> dict[str, float]:
    """The distance of two variants of the same configuration, per metric, as a share.

    The far end of the interval: what an A/A run cannot tell from nothing, no A/B run may claim.

    Shape: only metrics that have a ratio in every pair.
    """
    runs = pair_runs(measurements)
    floors = {}
    for name in default_metrics(runs.baseline + runs.candidate):
        interval = signed_rank_interval(MetricPairs(find_metric(name), runs).log_ratios)
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
    """True if a search came to no capacity: what was in the way is not the server."""
    return capacity.capacity_per_second is None and capacity.limited_by != "bound"


def scenario_status(run: ScenarioRun) -> ExitStatus:
    """The exit status of a scenario: its claims decide, unless nothing valid was measured."""
    if run.verdict.outcome == "invalid":
        return ExitStatus.UNDECIDED
    held = all(claim.held or claim.left_out for claim in run.claims)
    return ExitStatus.OK if held else ExitStatus.FOUND


def _cost_of(runs: PairedRuns, primary_metric: str) -> list[str]:
    """The cost, where it was measured and is not what the primary metric says already."""
    if primary_metric.startswith("server.cpu_seconds"):
        return []
    read = find_metric(COST).read
    return [COST] if any(read([run]).value for run in runs.baseline) else []


def _judge_metrics(
    names: Sequence[str],
    runs: PairedRuns,
    classes: Sequence[str],
    noise_floor: float | Mapping[str, float] | None,
    bar: Criterion,
) -> list[MetricVerdict]:
    """Each metric; the first is the primary one."""
    compared = [_compare(name, runs, classes) for name in names]
    p_values = [p_value_of(comparison) for comparison in compared]
    tested = [
        index
        for index, p in enumerate(p_values)
        if p is not None and index and names[index] not in (COST, *_EXPLAINING)
    ]
    adjusted = step_down([compared[index].by_pair for index in tested])
    for index, corrected in zip(tested, adjusted, strict=True):
        p_values[index] = corrected
    floors = (
        noise_floor if isinstance(noise_floor, Mapping) else dict.fromkeys(names, noise_floor or 0)
    )
    results = []
    for index, (comparison, p) in enumerate(zip(compared, p_values, strict=True)):
        tests = len(tested) if index in tested else 1
        own = bar._replace(tests=tests, floor=floors.get(names[index], 0.0))
        found = _judge_metric(comparison, p, own)
        results.append(_unjudged(found, comparison) if index else found)
    return _without_contradicted(results)


def _without_contradicted(metrics: Sequence[MetricVerdict]) -> list[MetricVerdict]:
    """The metrics; a mean that is worse is not judged where the same users got more answers.

    Users who wait for each answer get more of them only by waiting less (Little). A mean that says
    otherwise has come from the ends of the runs: from whom was still waiting there.
    """
    faster = {one.name for one in metrics if one.outcome == "better"}
    results = []
    for index, one in enumerate(metrics):
        name, _, statistic = one.name.rpartition(".")
        rate = f"{name}.requests_per_second"
        if index and one.outcome == "worse" and statistic == "mean" and rate in faster:
            reason = f"{rate} is better, and both are of the same users"
            one = msgspec.structs.replace(  # noqa: PLW2901
                one, outcome="inconclusive", judged=False, reason=reason
            )
        results.append(one)
    return results


def _compare(name: str, runs: PairedRuns, classes: Sequence[str]) -> MetricPairs:
    metric = find_metric(name, classes or None)
    return CostComparison(metric, runs) if name == COST else MetricPairs(metric, runs)


def _unjudged(found: MetricVerdict, comparison: MetricPairs) -> MetricVerdict:
    """The metric without an outcome, where it is to explain or could not be told."""
    if found.name in _EXPLAINING:
        reason = "shown to explain; what clients see is judged"
    elif isinstance(comparison, CostComparison) and found.outcome not in ("better", "worse"):
        reason = comparison.other_mix
        if reason:  # 1 is then all that could not be explained, and no ratio
            found = msgspec.structs.replace(found, ratio=None, low=None, high=None)
    else:
        reason = ""
    if not reason:
        return found
    return msgspec.structs.replace(
        found, outcome="inconclusive", judged=False, reason=reason, pairs_needed=None
    )


def _judge_metric(comparison: MetricPairs, p: float | None, bar: Criterion) -> MetricVerdict:
    log_ratios = comparison.log_ratios
    interval = signed_rank_interval(log_ratios, bar.alpha)
    outcome, reason = outcome_of(comparison, p, bar)
    needed = None
    # No number of pairs settles what the host's own noise hides.
    is_open = outcome == "inconclusive" and not comparison.bounded
    if is_open and log_ratios and not is_noise(log_ratios, bar.margin, bar.floor):
        needed = pairs_needed(
            log_ratios, worth=math.log1p(bar.margin), tests=bar.tests, alpha=bar.alpha
        )
    before, after = comparison.middles or (None, None)
    return MetricVerdict(
        name=comparison.metric.name,
        unit=comparison.metric.unit,
        baseline=comparison.baseline.seen,
        candidate=comparison.candidate.seen,
        at_least=[
            variant for variant in ("baseline", "candidate") if variant in comparison.bounded
        ],
        baseline_middle=before,
        candidate_middle=after,
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


def _overall(
    judged: Sequence[MetricVerdict],
    runs: PairedRuns,
    failing_disks: str,
    accept_worse: Sequence[str],
) -> tuple[Outcome, str]:
    primary = judged[0]
    if failing_disks:
        return "invalid", failing_disks
    counted = len(runs.counting_for(primary.name).pairs)
    if not counted or primary.discarded_pairs > counted:
        first = _first_flag(runs)
        planned = counted + primary.discarded_pairs
        return "invalid", f"{primary.discarded_pairs} of {planned} pairs discarded{first}"
    if failing := failing_both(runs, primary.name):
        return "invalid", failing
    if not primary.pairs:
        return "invalid", f"{primary.name}: {primary.reason}"
    if primary.outcome != "worse" and (failing := failing_class(runs)):
        return "worse", failing
    if primary.outcome == "worse":
        return primary.outcome, primary.reason
    worse = [
        one
        for one in judged[1:]
        if one.judged and one.outcome == "worse" and one.name not in accept_worse
    ]
    if worse:
        return "worse", "; ".join(_said(one) for one in worse)
    return _beside_others(judged, accept_worse)


def _beside_others(
    judged: Sequence[MetricVerdict], accept_worse: Sequence[str]
) -> tuple[Outcome, str]:
    """The primary metric's outcome; where that sees no difference, that of the others.

    The others decide for the candidate as they do against it, by the same corrected p.
    """
    primary = judged[0]
    cost = next((one for one in judged[1:] if one.name == COST and one.judged), None)
    if primary.outcome != "no_difference":
        return primary.outcome, primary.reason
    if cost is not None and cost.outcome == "inconclusive" and COST not in accept_worse:
        return "inconclusive", f"{cost.name}: {cost.reason}"
    better = [one for one in judged[1:] if one.judged and one.outcome == "better"]
    if better:
        return "better", "; ".join(map(_said, better))
    return primary.outcome, primary.reason


def _said(metric: MetricVerdict) -> str:
    """A metric with its ratio, on a line."""
    ratio = "" if metric.ratio is None else f": {metric.ratio:.3g} × the baseline's"
    return f"{metric.name}{ratio or ': ' + metric.reason}"


def _first_flag(runs: PairedRuns) -> str:
    """The reason why the first pair does not count."""
    if runs.discarded:
        return f"; {runs.discarded[0].reason}"
    spoilt = next((pair for pair in runs.pairs if pair.spoilt), None)
    return f"; the probe was late for {', '.join(sorted(spoilt.spoilt))}" if spoilt else ""


def find_read_errors(measurements: Sequence[Measurement]) -> str:
    """The variants in which disks failed, in some words; empty when none did.

    A failed read ends a response early or refuses it, and a retried one takes time, wherever the
    bad places of the disk happen to lie under what a variant asks for: better and worse then say
    nothing of the configuration. One failed read in one run is enough, in any run: none can
    be left out without choosing by the result.
    """
    variants = dict.fromkeys(run.variant for run in measurements)
    told = [_told([run for run in measurements if run.variant == variant]) for variant in variants]
    found = [f"{variant}: {text}" for variant, text in zip(variants, told, strict=True) if text]
    return f"disks failed reads (EIO): {'; '.join(found)}" if found else ""


def _told(runs: Sequence[Measurement]) -> str:
    failing = [run for run in runs if _disk_failed(run)]
    if not failing:
        return ""
    by_disk: dict[str, int] = {}
    for run in failing:
        for disk, count in run.server.disk_read_errors.items():
            by_disk[disk] = by_disk.get(disk, 0) + count
    lines = sum(run.server.read_errors or 0 for run in failing)
    parts = [f"{count:,} of {disk}" for disk, count in sorted(by_disk.items())]
    parts += [f"{lines:,} in nginx's error log"] if lines else []
    return f"{', '.join(parts)}, in {len(failing)} of {len(runs)} runs"


def _disk_failed(run: Measurement) -> bool:
    return bool(run.server.read_errors or sum(run.server.disk_read_errors.values()))


FIRST_ALPHA = 2.0**-6
FEWEST_FIRST = fewest_pairs(alpha=FIRST_ALPHA)
"""Pairs of the first look."""
_GROWTH = 1.5
_SHARE = 0.3
"""The share of what is left that each further look spends."""


class Look(NamedTuple):
    """One look at all pairs so far."""

    number: int
    """From 1."""
    pairs: int
    alpha: float
    """Share of wrong claims that it may make."""


def next_look(last: Look | None, *, first_pairs: int = FEWEST_FIRST) -> Look:
    """The look that follows; the first one for None."""
    if last is None:
        return Look(1, max(first_pairs, FEWEST_FIRST), FIRST_ALPHA)
    number = last.number + 1
    return Look(number, math.ceil(last.pairs * _GROWTH), alpha_of(number))


def alpha_of(number: int) -> float:
    """The share that a look spends, by its number from 1."""
    if number == 1:
        return FIRST_ALPHA
    return (ALPHA - FIRST_ALPHA) * _SHARE * (1 - _SHARE) ** (number - 2)


def meets_stopping_rule(metric: MetricVerdict, *, margin: float = MARGIN) -> bool:
    """True if more pairs are not worth their time.

    The outcome is known, or the interval is so narrow (half the margin to either side) that what
    is left open does not matter: an effect at the edge of what is worth having stays there.
    """
    if metric.outcome in ("better", "worse", "no_difference"):
        return True
    if metric.low is None or metric.high is None or metric.low <= 0:
        return False
    return math.log(metric.high / metric.low) <= math.log1p(margin)


def rejudge(
    validation: Validation, *, requires: Sequence[str] = (), primary_metric: str | None = None
) -> Validation:
    """A stored validation with other gates, or by another metric.

    Errors: as those of ``judge``.
    """
    before = validation.verdict
    gates = list(requires) or validation.requires
    verdict = judge(
        validation.measurements,
        primary_metric=primary_metric or before.primary_metric,
        requires=gates,
        noise_floor=validation.noise_floor or None,
        alpha=ALPHA if before.stopped == "pairs" else alpha_of(before.looks),
        environment=before.environment,
        accept_worse=before.accept_worse,
        lost=before.lost,
    )
    verdict = msgspec.structs.replace(
        verdict, looks=before.looks, stopped=before.stopped, capacities=before.capacities
    )
    return msgspec.structs.replace(validation, verdict=verdict, requires=gates)
