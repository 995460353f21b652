"""The verdict on a candidate: better, worse, no difference, inconclusive or invalid.

Two metrics are named beforehand and tested separately: the primary one, and the cost of the same
requests (CPU time). All others are tested together (``step_down``). A difference needs at least six
pairs, an exact interval clear of 1, an estimate beyond both the smallest effect worth having and
the host's noise floor, and, if tested together, a corrected p-value.

- worse: the candidate fails more requests, or a judged metric is worse and the caller did not
  accept that beforehand;
- better: the primary metric is better; or it shows no difference, and another one is better;
- no difference: the whole intervals of the primary metric and of the cost lie inside the margin;
- invalid: too few pairs count, or disks failed reads;
- inconclusive: anything else, with the number of pairs that would settle it.

Looks: testing at 5 % after every pair and stopping at the first difference would be wrong in far
more than 5 % of cases. So there are few looks, each with 1.5 times the pairs of the one before. The
first look spends the smallest alpha that its pairs can give (seven that agree: 2 of 2^7 patterns).
Each further look spends a fixed share of the rest. Together they spend at most 5 %, so all
intervals hold together with 95 %, and a comparison may stop at any look for any reason.

Source: Bonferroni over looks; repeated confidence intervals, Jennison and Turnbull 1989.
"""

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
"""Metrics that are shown but not judged. Thread pools wait more for disks while clients see only
gains, and a longer loop turn does harm only if clients wait for it."""


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

    ``lost``: what the candidate no longer serves; any loss makes it worse.
    ``accept_worse``: metrics that are judged but do not make the candidate worse.
    ``alpha``: the share of wrong claims of this look, less than 5 % if it is one of several.
    Units:  ``margin`` and ``noise_floor`` are shares: 0.05 is 5 %. A mapping gives the floor of
            each metric, as ``measure_noise_floor`` returns it.
    Errors: UsageError for an unknown metric, an expression that cannot be read, runs that
            cannot be paired, or a primary metric in ``accept_worse``.
    """
    if primary_metric in accept_worse:
        raise UsageError(
            f"{primary_metric} is the primary metric, so it cannot be accepted as worse",
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
        warnings=[*failure_warnings(runs), *limit_warnings(runs), *flag_warnings(runs)],
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
    """The noise floor of each metric as a share, from two variants of one configuration.

    It is the far end of the interval of the A/A comparison.

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
    """True if a search found no capacity because something other than the server was the limit."""
    return capacity.capacity_per_second is None and capacity.limited_by != "bound"


def scenario_status(run: ScenarioRun) -> ExitStatus:
    """The exit status of a scenario: its claims decide, unless nothing valid was measured."""
    if run.verdict.outcome == "invalid":
        return ExitStatus.UNDECIDED
    held = all(claim.held or claim.left_out for claim in run.claims)
    return ExitStatus.OK if held else ExitStatus.FOUND


def _cost_of(runs: PairedRuns, primary_metric: str) -> list[str]:
    """The cost metric, if it was measured and the primary metric does not cover the cost."""
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
    """The metrics judged; ``names`` begin with the primary one."""
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
        metric = _judge_metric(comparison, p, own)
        results.append(_unjudged(metric, comparison) if index else metric)
    return _without_contradicted(results)


def _without_contradicted(metrics: Sequence[MetricVerdict]) -> list[MetricVerdict]:
    """The metrics; a mean that is worse is not judged if the rate of its class is better.

    Closed-loop users get more answers only by waiting less (Little's law), so such a mean comes
    from requests still unanswered at the ends of the runs.
    """
    better = {metric.name for metric in metrics if metric.outcome == "better"}
    results = [metrics[0]]
    for metric in metrics[1:]:
        name, _, statistic = metric.name.rpartition(".")
        rate = f"{name}.requests_per_second"
        if metric.outcome == "worse" and statistic == "mean" and rate in better:
            reason = f"{rate} is better with the same users"
            results.append(_not_judged(metric, reason))
        else:
            results.append(metric)
    return results


def _not_judged(metric: MetricVerdict, reason: str) -> MetricVerdict:
    return msgspec.structs.replace(
        metric, outcome="inconclusive", judged=False, reason=reason, pairs_needed=None
    )


def _compare(name: str, runs: PairedRuns, classes: Sequence[str]) -> MetricPairs:
    metric = find_metric(name, classes or None)
    return CostComparison(metric, runs) if name == COST else MetricPairs(metric, runs)


def _unjudged(metric: MetricVerdict, comparison: MetricPairs) -> MetricVerdict:
    """The metric, marked as not judged if it is for explanation only or is not comparable.

    A cost without a difference is not comparable if the configurations answered different mixes of
    requests.
    """
    if metric.name in _EXPLAINING:
        return _not_judged(metric, "for explanation only: the verdict depends on what clients see")
    if isinstance(comparison, CostComparison) and metric.outcome not in ("better", "worse"):
        mix = comparison.other_mix
        if mix:  # the ratio then covers only the unexplained part
            return _not_judged(
                msgspec.structs.replace(metric, ratio=None, low=None, high=None), mix
            )
    return metric


def _judge_metric(comparison: MetricPairs, p: float | None, bar: Criterion) -> MetricVerdict:
    log_ratios = comparison.log_ratios
    interval = signed_rank_interval(log_ratios, bar.alpha)
    outcome, reason = outcome_of(comparison, p, bar)
    needed = None
    # No number of pairs settles an effect within the host's own noise.
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
    if invalid := failing_disks or _why_invalid(primary, runs):
        return "invalid", invalid
    if primary.outcome == "worse":
        return "worse", primary.reason
    if failing := failing_class(runs):
        return "worse", failing
    others = [metric for metric in judged[1:] if metric.judged]
    worse = [m for m in others if m.outcome == "worse" and m.name not in accept_worse]
    if worse:
        return "worse", "; ".join(map(_with_ratio, worse))
    if primary.outcome != "no_difference":
        return primary.outcome, primary.reason
    cost = next((metric for metric in others if metric.name == COST), None)
    if cost is not None and cost.outcome == "inconclusive" and COST not in accept_worse:
        return "inconclusive", f"{cost.name}: {cost.reason}"
    better = [metric for metric in others if metric.outcome == "better"]
    if better:
        return "better", "; ".join(map(_with_ratio, better))
    return primary.outcome, primary.reason


def _why_invalid(primary: MetricVerdict, runs: PairedRuns) -> str:
    """The reason why the pairs cannot decide; empty if they can."""
    counted = len(runs.counting_for(primary.name).pairs)
    if not counted or primary.discarded_pairs > counted:
        measured = counted + primary.discarded_pairs
        return f"{primary.discarded_pairs} of {measured} pairs discarded{_first_flag(runs)}"
    if failing := failing_both(runs, primary.name):
        return failing
    return "" if primary.pairs else f"{primary.name}: {primary.reason}"


def _with_ratio(metric: MetricVerdict) -> str:
    """A metric's name with its ratio, or with the reason why there is no ratio."""
    if metric.ratio is None:
        return f"{metric.name}: {metric.reason}"
    return f"{metric.name}: {metric.ratio:.3g} × the baseline's"


def _first_flag(runs: PairedRuns) -> str:
    """The reason why the first discarded pair does not count; empty if all pairs count."""
    if runs.discarded:
        return f"; {runs.discarded[0].reason}"
    spoilt = next((pair for pair in runs.pairs if pair.spoilt), None)
    return f"; the probe was late for {', '.join(sorted(spoilt.spoilt))}" if spoilt else ""


def find_read_errors(measurements: Sequence[Measurement]) -> str:
    """A sentence on failed disk reads of each variant; empty without any.

    A failed read truncates or refuses a response, and a retried one takes time, depending on which
    files a variant happens to read. One failed read in any run is enough: leaving runs out would
    select by result.
    """
    variants = dict.fromkeys(run.variant for run in measurements)
    counts = [
        f"{variant}: {text}"
        for variant in variants
        if (text := _failed_reads([run for run in measurements if run.variant == variant]))
    ]
    return f"disks failed reads (EIO): {'; '.join(counts)}" if counts else ""


def _failed_reads(runs: Sequence[Measurement]) -> str:
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
"""The share of the remaining alpha that each further look spends."""


class Look(NamedTuple):
    """An interim analysis of all pairs so far."""

    number: int
    """Number of the look, counted from 1."""
    pairs: int
    alpha: float
    """The share of wrong claims that the look may make."""


def next_look(last: Look | None, *, first_pairs: int = FEWEST_FIRST) -> Look:
    """The look after ``last``; with None, the first look."""
    if last is None:
        return Look(1, max(first_pairs, FEWEST_FIRST), FIRST_ALPHA)
    number = last.number + 1
    return Look(number, math.ceil(last.pairs * _GROWTH), alpha_of(number))


_SET_UP_SECONDS = 5.0
_BETWEEN_SECONDS = 2.0
"""Start, first answers and end of a run's nginx; seen: 1 to 3.5 s on two CPUs."""


def expected_seconds(pairs: int, run_seconds: float) -> float:
    """The time of an experiment of so many pairs; ``run_seconds``: warm-up and duration."""
    return _SET_UP_SECONDS + 2 * pairs * (run_seconds + _BETWEEN_SECONDS)


def alpha_of(number: int) -> float:
    """The alpha that a look spends, by its number from 1."""
    if number == 1:
        return FIRST_ALPHA
    return (ALPHA - FIRST_ALPHA) * _SHARE * (1 - _SHARE) ** (number - 2)


def meets_stopping_rule(metric: MetricVerdict, *, margin: float = MARGIN) -> bool:
    """True if the outcome is known, or the interval is no wider than the margin.

    An effect right at the edge of the margin would stay there with any number of pairs.
    """
    if metric.outcome in ("better", "worse", "no_difference"):
        return True
    if metric.low is None or metric.high is None or metric.low <= 0:
        return False
    return math.log(metric.high / metric.low) <= math.log1p(margin)


def rejudge(
    validation: Validation, *, requires: Sequence[str] = (), primary_metric: str | None = None
) -> Validation:
    """Judge a kept validation again, by other gates or by another primary metric.

    Errors: as for ``judge``.
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
