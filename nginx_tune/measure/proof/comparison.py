"""A metric in two variants: its pairs, its outcome, and the CPU time of the same requests.

CPU time per request can only be compared for the same requests. In a closed loop a faster variant
answers a different mix, with more requests of the class that became faster. If a request of a class
always costs a variant the same, then the baseline's CPU time for the candidate's requests has two
bounds: its own CPU time, multiplied by the smallest and by the largest ratio of requests over the
classes. Only a candidate outside of both bounds counts as a difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text, plural
from nginx_tune.documents.verdict import BetterWhen, Outcome
from nginx_tune.measure.proof.latency import Reading
from nginx_tune.measure.proof.metrics import Metric
from nginx_tune.measure.proof.runs import Pair, PairedRuns
from nginx_tune.measure.proof.statistics import (
    ALPHA,
    fewest_pairs,
    hodges_lehmann,
    sign_flip_p,
    signed_rank_interval,
)

CUT_OFF = "a lower bound, because requests were cut off"
"""The reason why a number is only a bound."""


@dataclass(frozen=True)
class MetricPairs:
    """A metric over the valid pairs of two variants."""

    metric: Metric
    all_runs: PairedRuns

    @cached_property
    def runs(self) -> PairedRuns:
        """The runs that count for this metric."""
        return self.all_runs.counting_for(self.metric.name)

    @property
    def discarded(self) -> int:
        """Pairs that do not count."""
        spoilt = len(self.all_runs.pairs) - len(self.runs.pairs)
        return len(self.all_runs.discarded) + spoilt

    @cached_property
    def baseline(self) -> Reading:
        """The metric over all runs of the baseline."""
        return self.metric.read(self.runs.baseline)

    @cached_property
    def candidate(self) -> Reading:
        """The metric over all runs of the candidate."""
        return self.metric.read(self.runs.candidate)

    @cached_property
    def pairs(self) -> list[tuple[float, float]]:
        """Baseline and candidate of each pair; empty if any run lacks the metric.

        Leaving out only the runs that lack it would bias the result.
        """
        return [] if self.missing else [(b or 0.0, c or 0.0) for b, c in self._values]

    @cached_property
    def missing(self) -> str:
        """The reason why there are no pairs; empty when there are."""
        if not self.runs.pairs:
            return "no valid pair of runs"
        lacking = sum(None in pair for pair in self._values)
        if not lacking:
            return ""
        reason = next(r.reason for r in self._readings if r.seen is None)
        return f"{lacking} of {len(self._values)} pairs lack it: {reason}"

    @cached_property
    def bounded(self) -> frozenset[str]:
        """The variants with a run whose number is a lower bound, because requests were cut off."""
        variants = ("baseline", "candidate")
        return frozenset(
            variants[index % 2] for index, reading in enumerate(self._readings) if reading.is_bound
        )

    @cached_property
    def log_ratios(self) -> list[float]:
        """The log of candidate / baseline of each pair; empty if a pair has no ratio."""
        if any(b <= 0 or c <= 0 for b, c in self.pairs):
            return []
        return [math.log(c / b) for b, c in self.pairs]

    @property
    def differences(self) -> list[float]:
        """Candidate - baseline of each pair."""
        return [candidate - baseline for baseline, candidate in self.pairs]

    @property
    def by_pair(self) -> dict[int, float]:
        """The log ratios by pair number, or the differences if a pair has no ratio.

        Empty if any run lacks the metric.
        """
        if not self.pairs:
            return {}
        values = self.log_ratios or self.differences
        return {pair.index: one for pair, one in zip(self.runs.pairs, values, strict=True)}

    @cached_property
    def ratio(self) -> Reading:
        """Candidate / baseline: estimated over pairs, else from all runs of the variants.

        A bound if one variant's numbers are lower bounds; no value if both are.
        """
        before, after = self.baseline, self.candidate
        if self.log_ratios:
            return _bounded(math.exp(hodges_lehmann(self.log_ratios)), self.bounded)
        for variant, reading in (("baseline", before), ("candidate", after)):
            if reading.seen is None:
                return Reading(None, f"{variant}: {reading.reason}")
        if not before.seen or after.seen is None:
            return Reading(None, "no ratio: the baseline is zero")
        variants = [
            variant
            for variant, reading in (("baseline", before), ("candidate", after))
            if reading.is_bound
        ]
        return _bounded(after.seen / before.seen, frozenset(variants))

    @cached_property
    def middles(self) -> tuple[float, float] | None:
        """The middle of the baseline's and of the candidate's runs; None without ratios of pairs.

        Each is the Hodges-Lehmann estimate of its runs, adjusted so that their quotient is exactly
        the ratio estimated over pairs.
        """
        if not self.log_ratios:
            return None
        before, after = (
            hodges_lehmann([math.log(value) for value in variant])
            for variant in zip(*self.pairs, strict=True)
        )
        apart = (hodges_lehmann(self.log_ratios) - (after - before)) / 2
        return math.exp(before - apart), math.exp(after + apart)

    @cached_property
    def _values(self) -> list[tuple[float | None, float | None]]:
        values = [reading.seen for reading in self._readings]
        return list(zip(values[::2], values[1::2], strict=True))

    @cached_property
    def _readings(self) -> list[Reading]:
        return [
            self.metric.read([run])
            for pair in self.runs.pairs
            for run in (pair.baseline, pair.candidate)
        ]


def _bounded(ratio: float, variants: frozenset[str]) -> Reading:
    """A ratio in which the numbers of some variants are lower bounds."""
    if not variants:
        return Reading(ratio)
    if len(variants) > 1:
        return Reading(None, f"both configurations: {CUT_OFF}")
    [variant] = variants
    if variant == "candidate":
        return Reading(ratio, f"at least {ratio:.3g}; candidate: {CUT_OFF}", at_least=ratio)
    return Reading(ratio, f"at most {ratio:.3g}; baseline: {CUT_OFF}", at_most=ratio)


MARGIN = 0.05
"""The smallest effect worth having, as a share."""


class Criterion(NamedTuple):
    """The criterion for an outcome."""

    tests: int = 1
    """The number of metrics tested together."""
    margin: float = MARGIN
    floor: float = 0.0
    """The noise floor of this host, as a share."""
    alpha: float = ALPHA
    """The accepted share of wrong claims; lower if this is one of several looks."""


TOO_FEW = "are needed"
"""The words that end the reason for an outcome if there are too few pairs."""

NO_SIDE = "neither direction is better"
"""The reason of a metric without a better side, such as the load average."""

ALONE = Criterion()
"""The criterion of a metric that is tested once, by itself."""


def outcome_of(
    comparison: MetricPairs, p: float | None, bar: Criterion = ALONE
) -> tuple[Outcome, str]:
    """The outcome of a metric, with the reason if it is not decided."""
    if comparison.metric.better_when == "neither":
        return "inconclusive", NO_SIDE
    if comparison.log_ratios:
        found = _outcome_of_ratios(comparison, p, bar)
    else:
        found = _outcome_of_differences(comparison, p, bar.alpha)
    return found if _stands(comparison, found[0]) else ("inconclusive", _why_open(comparison))


def _stands(comparison: MetricPairs, outcome: Outcome) -> bool:
    """True if an outcome holds for all true values above the lower bounds.

    If a number is larger, ranks and intervals can only grow. So with lower bounds of the candidate
    "higher" is certain, and with lower bounds of the baseline "lower" is.
    """
    return stands(
        outcome,
        comparison.metric.better_when,
        can_grow="candidate" in comparison.bounded,
        can_shrink="baseline" in comparison.bounded,
    )


def stands(outcome: Outcome, better_when: BetterWhen, *, can_grow: bool, can_shrink: bool) -> bool:
    """True if an outcome holds whatever the true ratio is.

    ``can_grow`` and ``can_shrink``: true if the true ratio may be higher or lower than measured.
    """
    if not (can_grow or can_shrink) or outcome not in ("better", "worse", "no_difference"):
        return True
    is_higher = (outcome == "better") is (better_when == "higher")
    return outcome != "no_difference" and not (can_shrink if is_higher else can_grow)


def _why_open(comparison: MetricPairs) -> str:
    return f"{' and '.join(sorted(comparison.bounded))}: {CUT_OFF}"


def p_value_of(comparison: MetricPairs) -> float | None:
    """The p-value of a metric; None without pairs, or with equal numbers in all of them."""
    if comparison.log_ratios:
        return sign_flip_p(comparison.log_ratios)
    if any(comparison.differences):
        return sign_flip_p(comparison.differences)
    return None


def _outcome_of_ratios(
    comparison: MetricPairs, p: float | None, bar: Criterion
) -> tuple[Outcome, str]:
    """The outcome of a metric with a ratio in every pair, with the reason if not decided."""
    pairs = len(comparison.log_ratios)
    fewest = fewest_pairs(alpha=bar.alpha)
    if pairs < fewest:
        return "inconclusive", f"{plural(pairs, 'pair')}; at least {fewest} {TOO_FEW}"
    interval = signed_rank_interval(comparison.log_ratios, bar.alpha)
    if interval is None:
        return "inconclusive", "no interval"
    edge = math.log1p(bar.margin)
    if -edge < interval.low and interval.high < edge:
        return "no_difference", ""
    if interval.low <= 0 <= interval.high:
        return "inconclusive", "the interval includes 1"
    estimate = hodges_lehmann(comparison.log_ratios)
    if abs(estimate) <= edge:
        share = percent_text(bar.margin)
        return "inconclusive", f"below the smallest effect that matters, {share}"
    if is_noise(comparison.log_ratios, bar.margin, bar.floor):
        return "inconclusive", f"within the noise of this host, {percent_text(bar.floor, 2)}"
    # A single metric needs no correction: its interval has decided.
    if bar.tests > 1 and (p is None or p > bar.alpha):
        return "inconclusive", (
            f"significant alone, but not after the correction for {bar.tests} metrics "
            "tested together"
        )
    return _direction(comparison, estimate), ""


def _outcome_of_differences(
    comparison: MetricPairs, p: float | None, alpha: float
) -> tuple[Outcome, str]:
    """The outcome of a metric without ratios: not measured in every run, or zero somewhere."""
    pairs = comparison.pairs
    if not pairs:
        return "inconclusive", comparison.missing
    if p is None:
        if len(pairs) < fewest_pairs(alpha=alpha):
            needed = f"at least {fewest_pairs(alpha=alpha)} {TOO_FEW}"
            return "inconclusive", f"{plural(len(pairs), 'pair')}; {needed}"
        return "no_difference", "the same in every pair"
    zeros = sum(value <= 0 for pair in pairs for value in pair)
    reason = f"no ratio: zero in {zeros} of {2 * len(pairs)} runs"
    if p > alpha:
        return "inconclusive", reason
    return _direction(comparison, math.fsum(comparison.differences)), reason


def is_noise(log_ratios: Sequence[float], margin: float, floor: float) -> bool:
    """True if an effect exceeds the margin but not the host's noise floor."""
    return math.log1p(margin) < abs(hodges_lehmann(log_ratios)) <= math.log1p(floor)


def _direction(comparison: MetricPairs, change: float) -> Outcome:
    return "better" if (change > 0) is (comparison.metric.better_when == "higher") else "worse"


COST = "server.cpu_seconds_per_request"
_LEAST_SHARE = 0.01
"""The share of requests and bytes below which a class does not affect the CPU time."""
_SAME_MIX = math.log(1.05)
"""The largest spread of the classes' request ratios with which the mix counts as the same."""


@dataclass(frozen=True)
class CostComparison(MetricPairs):
    """CPU time per request, without the part that a change in the mix of requests can explain."""

    @cached_property
    def log_ratios(self) -> list[float]:
        """The part of each pair's log ratio that the mix cannot explain."""
        if not self.pairs or any(b <= 0 or c <= 0 for b, c in self.pairs):
            return []
        ranges = [
            _range_of(pair, math.log(c / b))
            for pair, (b, c) in zip(self.runs.pairs, self.pairs, strict=True)
        ]
        return [low if low > 0 else min(high, 0.0) for low, high in ranges]

    @cached_property
    def middles(self) -> None:
        """Always None: the ratio is for the same requests, the figures shown are as measured."""
        return None

    @cached_property
    def other_mix(self) -> str:
        """The reason why the costs cannot be called equal; empty if the mix is the same."""
        spreads = [spread for pair in self.runs.pairs if (spread := _spread(pair)) is not None]
        if not spreads or median(spreads) <= _SAME_MIX:
            return ""
        most, least = _extremes(self.runs.pairs)
        return (
            "the configurations answered different mixes of requests: with the candidate "
            f"{_times(*most)}, {_times(*least)}"
        )


def _times(log_ratio: float, name: str) -> str:
    """The candidate's requests of a class, as a multiple of the baseline's."""
    if log_ratio == math.inf:
        return f"requests of {name}, which the baseline did not answer"
    return f"{math.exp(log_ratio):.3g} × the requests of {name}"


def _range_of(pair: Pair, log_ratio: float) -> tuple[float, float]:
    """The range of the log ratio of the cost of the same requests.

    ``log_ratio`` is the log ratio of CPU time per request over all classes.
    """
    ratios = _class_ratios(pair)
    if not ratios:
        return log_ratio, log_ratio
    total = math.log(_requests(pair.candidate) / _requests(pair.baseline))
    cpu = log_ratio + total
    return cpu - max(ratios.values()), cpu - min(ratios.values())


def _spread(pair: Pair) -> float | None:
    ratios = _class_ratios(pair).values()
    return max(ratios) - min(ratios) if ratios else None


def _extremes(pairs: Sequence[Pair]) -> tuple[tuple[float, str], tuple[float, str]]:
    """The classes with the largest and the smallest ratio of requests over all pairs."""
    names = dict.fromkeys(name for pair in pairs for name in _class_ratios(pair))
    ratios = sorted((_total_ratio(pairs, name), name) for name in names)
    return ratios[-1], ratios[0]


def _total_ratio(pairs: Sequence[Pair], name: str) -> float:
    runs = [(pair.baseline.classes[name], pair.candidate.classes.get(name)) for pair in pairs]
    before = sum(_answered(measurement) for measurement, _ in runs)
    after = sum(_answered(other) for _, other in runs if other is not None)
    if before and after:
        return math.log(after / before)
    return math.inf if after else -math.inf


def _class_ratios(pair: Pair) -> dict[str, float]:
    """The log ratio of candidate to baseline requests, for each class that matters.

    Infinite for a class that only one variant answered, whose cost is then unknown.
    """
    found = {}
    for name, before in pair.baseline.classes.items():
        after = pair.candidate.classes.get(name)
        if after is None:
            continue
        if max(_share(pair.baseline, name), _share(pair.candidate, name)) < _LEAST_SHARE:
            continue
        if _answered(before) and _answered(after):
            found[name] = math.log(_answered(after) / _answered(before))
        else:
            found[name] = math.inf if _answered(after) else -math.inf
    return found


def _share(run: Measurement, name: str) -> float:
    """The larger of a class's shares of requests and bytes."""
    part = run.classes[name]
    sent = sum(measurement.bytes for measurement in run.classes.values())
    return max(_answered(part) / _requests(run), part.bytes / sent if sent else 0.0)


def _requests(run: Measurement) -> int:
    return max(sum(map(_answered, run.classes.values())), 1)


def _answered(part: ClassMeasurement) -> int:
    """Good answers and refusals by a limit, which cost CPU time too."""
    return part.requests + part.limited
