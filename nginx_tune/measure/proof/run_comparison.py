"""The comparison of two kept runs: the candidate of the second against that of the first.

The host may have changed between them. If both have the same baseline, it is the control: the log
ratios of candidate to baseline, by pair, are compared between the runs, so that changes of the host
cancel. Without a common baseline the candidates' own values are compared, with a warning, and the
outcome is always ``inconclusive``.
"""

import bisect
import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import KeptRun, RunComparison, RunMetric, RunSummary, Validation
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.units import percent_text
from nginx_tune.documents.verdict import Outcome
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.comparison import CUT_OFF, MARGIN, NO_SIDE, MetricPairs, stands
from nginx_tune.measure.proof.metrics import default_metrics, find_metric
from nginx_tune.measure.proof.runs import PairedRuns, pair_runs, select_pairs
from nginx_tune.measure.proof.statistics import ALPHA, Interval, holm


def shift_of(first: Sequence[float], second: Sequence[float]) -> float:
    """The shift of the second sample over the first: the median of all differences.

    Errors: StatisticsError when either is empty.
    """
    return median(_differences(first, second))


def rank_sum_cumulative(first: int, second: int) -> list[int]:
    """The number of arrangements of two samples with at most 0, 1, 2, … inversions."""
    ways = [1] + [0] * (first * second)
    # The Gaussian binomial coefficient: a product of (1 - q^(second + i)) / (1 - q^i).
    for step in range(1, first + 1):
        for place in range(len(ways) - 1, second + step - 1, -1):
            ways[place] -= ways[place - second - step]
        for place in range(step, len(ways)):
            ways[place] += ways[place - step]
    return list(accumulate(ways))


def shift_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """The narrowest exact interval of the shift with a coverage of at least ``1 - ALPHA``.

    If none reaches it, the widest interval with its level; None for an empty sample.
    """
    if not first or not second:
        return None
    differences = sorted(_differences(first, second))
    cumulative = rank_sum_cumulative(len(first), len(second))
    cut = max(bisect.bisect_right(cumulative, cumulative[-1] * ALPHA / 2), 1)
    level = 1 - 2 * cumulative[cut - 1] / cumulative[-1]
    return Interval(differences[cut - 1], differences[-cut], level)


def rank_sum_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the rank-sum test; 1 for an empty sample.

    A tie is half an inversion, rounded towards the middle, so p is conservative.
    """
    if not first or not second:
        return 1.0
    below = sum((a < b) + (a == b) / 2 for a in first for b in second)
    cumulative = rank_sum_cumulative(len(first), len(second))
    least = math.ceil(min(below, len(first) * len(second) - below))
    return min(1.0, 2 * cumulative[least] / cumulative[-1])


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [b - a for a in first for b in second]


_FEWEST_PAIRS = 4
"""Minimum number of pairs on each side. With fewer pairs no rank sum is significant at 0.05."""


class _Compared(NamedTuple):
    """A metric of both kept runs."""

    a: MetricPairs
    b: MetricPairs
    values_a: list[float]
    """Logs of the compared values by pair; empty if they cannot be compared."""
    values_b: list[float]
    reason: str

    @property
    def p_value(self) -> float | None:
        return rank_sum_p(self.values_a, self.values_b) if not self.reason else None


def compare_runs(a: KeptRun, b: KeptRun, *, primary_metric: str | None = None) -> RunComparison:
    """The comparison of two kept runs.

    Errors: UsageError if they have no metric in common, or not the primary one.
    """
    paired = [pair_runs(pairs_of(kept)) for kept in (a, b)]
    same = _baseline(a) == _baseline(b) != ""
    names = _names(paired, primary_metric, a.summary)
    compared = [_compare(name, *paired, same_baseline=same) for name in names]
    p_values = [metric.p_value for metric in compared]
    tested = [index for index, p in enumerate(p_values) if index and p is not None]
    adjusted = holm([p_values[index] or 0.0 for index in tested])
    for index, corrected in zip(tested, adjusted, strict=True):
        p_values[index] = corrected
    metrics = [
        _judge(metric, p, same_baseline=same) for metric, p in zip(compared, p_values, strict=True)
    ]
    return RunComparison(
        a=a.summary,
        b=b.summary,
        outcome=metrics[0].outcome,
        primary_metric=names[0],
        reason=metrics[0].reason,
        same_baseline=same,
        metrics=metrics,
        warnings=_warnings(a.summary, b.summary, same_baseline=same),
    )


def pairs_of(kept: KeptRun) -> list[Measurement]:
    """The runs of baseline and candidate, without the other variants of a scenario."""
    result = _measured(kept)
    if not isinstance(result, ScenarioRun):
        return result.measurements
    variants = len({run.variant for run in result.measurements})
    return select_pairs(
        result.measurements, max(variants, 1), against="baseline", variant="candidate"
    )


def _measured(kept: KeptRun) -> Validation | ScenarioRun:
    """The result with pairs. Errors: UsageError for a rehearsal."""
    if isinstance(kept.result, Rehearsal):
        raise UsageError(
            f"run {kept.summary.id} is a rehearsal, which has no pairs",
            hint="nginx-tune report A B shows both",
        )
    return kept.result


def _baseline(kept: KeptRun) -> str:
    """The baseline's configuration; empty if it was not kept."""
    texts = (v.nginx_conf for v in _measured(kept).variants if v.variant == "baseline")
    return next(texts, "")


def _names(paired: Sequence[PairedRuns], requested: str | None, first: RunSummary) -> list[str]:
    both = [default_metrics(runs.baseline + runs.candidate) for runs in paired]
    common = [name for name in both[0] if name in both[1]]
    classes = [name for name in paired[0].classes if name in paired[1].classes]
    if not all(runs.pairs for runs in paired):
        raise UsageError("a result without a valid pair cannot be compared")
    primary = requested or first.primary_metric
    find_metric(primary, classes)
    return list(dict.fromkeys((primary, *common)))


def _compare(name: str, a: PairedRuns, b: PairedRuns, *, same_baseline: bool) -> _Compared:
    metric = find_metric(name)
    both = MetricPairs(metric, a), MetricPairs(metric, b)
    values_a, values_b = (_logs(pairs, same_baseline=same_baseline) for pairs in both)
    reason = next((pairs.missing for pairs in both if pairs.missing), "")
    if not reason and not (values_a and values_b):
        reason = "no ratio: zero in a run"
    if not reason and min(len(values_a), len(values_b)) < _FEWEST_PAIRS:
        reason = f"at least {_FEWEST_PAIRS} pairs are needed on each side"
    return _Compared(*both, values_a, values_b, reason)


def _logs(comparison: MetricPairs, *, same_baseline: bool) -> list[float]:
    if same_baseline:
        return comparison.log_ratios
    values = [candidate for _, candidate in comparison.pairs]
    return [math.log(value) for value in values] if all(v > 0 for v in values) else []


def _judge(one: _Compared, p: float | None, *, same_baseline: bool) -> RunMetric:
    has_values = bool(one.values_a and one.values_b)
    interval = shift_interval(one.values_a, one.values_b) if has_values else None
    shift = shift_of(one.values_a, one.values_b) if has_values else None
    metric = one.a.metric
    outcome: Outcome = "inconclusive"
    reason = one.reason
    if not reason and metric.better_when == "neither":
        reason = NO_SIDE
    if not reason and interval is not None and shift is not None and p is not None:
        grew_is_better = metric.better_when == "higher"
        outcome, reason = _outcome(shift, interval.low, interval.high, p, grew_is_better)
    if not reason and not same_baseline:
        outcome, reason = "inconclusive", "without a common baseline: the host may have changed"
    if not _stands(one, outcome, same_baseline=same_baseline):
        outcome, reason = "inconclusive", CUT_OFF
    before, after = one.a.baseline.value, one.b.baseline.value
    return RunMetric(
        name=metric.name,
        unit=metric.unit,
        a=one.a.candidate.seen,
        b=one.b.candidate.seen,
        at_least=[name for name, run in (("a", one.a), ("b", one.b)) if "candidate" in run.bounded],
        baseline_ratio=after / before if before and after is not None else None,
        ratio=None if shift is None else math.exp(shift),
        low=None if interval is None else math.exp(interval.low),
        high=None if interval is None else math.exp(interval.high),
        level=None if interval is None else interval.level,
        p_value=p,
        pairs_a=len(one.values_a),
        pairs_b=len(one.values_b),
        better_when=metric.better_when,
        outcome=outcome,
        reason=reason,
    )


def _stands(one: _Compared, outcome: Outcome, *, same_baseline: bool) -> bool:
    """True if an outcome holds for every value above the lower bounds."""
    a, b = one.a.bounded, one.b.bounded
    return stands(
        outcome,
        one.a.metric.better_when,
        can_grow="candidate" in b or (same_baseline and "baseline" in a),
        can_shrink="candidate" in a or (same_baseline and "baseline" in b),
    )


def _outcome(
    shift: float, low: float, high: float, p: float, grew_is_better: bool
) -> tuple[Outcome, str]:
    edge = math.log1p(MARGIN)
    if -edge < low and high < edge:
        return "no_difference", ""
    if low <= 0 <= high:
        return "inconclusive", "the interval includes 1"
    if abs(shift) <= edge:
        return "inconclusive", f"below the smallest effect that matters, {percent_text(MARGIN)}"
    if p > ALPHA:
        return "inconclusive", "not significant among this many metrics"
    return ("better" if (shift > 0) is grew_is_better else "worse"), ""


def _warnings(a: RunSummary, b: RunSummary, *, same_baseline: bool) -> list[str]:
    warnings = []
    if not same_baseline:
        warnings.append(
            "the baselines differ, so the ratios include everything else that changed in between"
        )
    for what, one, other in (
        ("lab", a.lab, b.lab),
        ("nginx", a.nginx_version, b.nginx_version),
        ("kind", a.kind, b.kind),
        ("name", a.name, b.name),
    ):
        if one != other:
            warnings.append(f"{what}: {one} in {a.id}, {other} in {b.id}")
    return warnings
