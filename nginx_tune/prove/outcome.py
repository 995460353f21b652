"""What came of one metric: better, worse, no difference, or not known.

An outcome needs at least six pairs, an exact interval clear of 1, an estimate beyond the smallest
effect worth having and beyond the noise floor of the host, and, for one of several metrics, a p
that survives the correction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.verdict import BetterWhen, Outcome
from nginx_tune.prove.comparison import CUT_OFF, MetricPairs
from nginx_tune.prove.statistics import (
    ALPHA,
    fewest_pairs,
    hodges_lehmann,
    sign_flip_p,
    signed_rank_interval,
)

MARGIN = 0.05
"""The smallest effect worth having, as a share."""


class Criterion(NamedTuple):
    """What a claim must clear."""

    tests: int = 1
    """Metrics that are tested together, this one among them."""
    margin: float = MARGIN
    floor: float = 0.0
    """Share that two equal arms come out apart on this host."""
    alpha: float = ALPHA
    """Share of wrong claims; less when this is one of several looks."""


TOO_FEW = "are needed"
"""In the reason of an outcome that too few pairs allow."""

NO_SIDE = "neither way is better"
"""Of a metric that rises or falls without harm or gain, such as the load average (SOURCES A6)."""

ALONE = Criterion()
"""Of a metric that is looked at once, by itself."""


def outcome_of(
    comparison: MetricPairs, p: float | None, bar: Criterion = ALONE
) -> tuple[Outcome, str]:
    """The outcome of a metric, and why it is not decided."""
    if comparison.metric.better_when == "neither":
        return "inconclusive", NO_SIDE
    if comparison.log_ratios:
        found = _outcome_of_ratios(comparison, p, bar)
    else:
        found = _outcome_of_differences(comparison, p, bar.alpha)
    return found if _stands(comparison, found[0]) else ("inconclusive", _why_open(comparison))


def _stands(comparison: MetricPairs, outcome: Outcome) -> bool:
    """Whether an outcome holds wherever above its bounds the truth lies.

    Where the candidate's numbers can only be higher it may be found higher, and lower where the
    baseline's can: ranks and their intervals grow with every number.
    """
    return stands(
        outcome,
        comparison.metric.better_when,
        can_grow="candidate" in comparison.bounded,
        can_shrink="baseline" in comparison.bounded,
    )


def stands(outcome: Outcome, better_when: BetterWhen, *, can_grow: bool, can_shrink: bool) -> bool:
    """Whether an outcome holds though the ratio may in truth be higher, or lower, or both."""
    if not (can_grow or can_shrink) or outcome not in ("better", "worse", "no_difference"):
        return True
    is_higher = (outcome == "better") is (better_when == "higher")
    return outcome != "no_difference" and not (can_shrink if is_higher else can_grow)


def _why_open(comparison: MetricPairs) -> str:
    return f"{' and '.join(sorted(comparison.bounded))}: {CUT_OFF}"


def p_value_of(comparison: MetricPairs) -> float | None:
    """None where there is nothing to test: no pairs, or the same number in both arms."""
    if comparison.log_ratios:
        return sign_flip_p(comparison.log_ratios)
    if any(comparison.differences):
        return sign_flip_p(comparison.differences)
    return None


def _outcome_of_ratios(
    comparison: MetricPairs, p: float | None, bar: Criterion
) -> tuple[Outcome, str]:
    """The outcome of a metric that has a ratio in every pair, and why it is not decided."""
    pairs = len(comparison.log_ratios)
    fewest = fewest_pairs(alpha=bar.alpha)
    if pairs < fewest:
        return "inconclusive", f"{_count(pairs, 'pair')}; at least {fewest} {TOO_FEW}"
    interval = signed_rank_interval(comparison.log_ratios, bar.alpha)
    if interval is None:
        return "inconclusive", "no interval"
    edge = math.log1p(bar.margin)
    if -edge < interval.low and interval.high < edge:
        return "no_difference", ""
    if interval.low <= 0 <= interval.high:
        return "inconclusive", "the interval holds 1"
    estimate = hodges_lehmann(comparison.log_ratios)
    if abs(estimate) <= edge:
        share = f"{bar.margin * 100:.0f} %"
        return "inconclusive", f"less than the smallest effect worth having, {share}"
    if is_noise(comparison.log_ratios, bar.margin, bar.floor):
        return "inconclusive", f"within the noise of this host, {bar.floor * 100:.0f} %"
    # One metric needs no correction, and its interval has decided.
    if bar.tests > 1 and (p is None or p > bar.alpha):
        return "inconclusive", (
            f"clear of 1 alone, not after the correction for {bar.tests} metrics tested together"
        )
    return _direction(comparison, estimate), ""


def _outcome_of_differences(
    comparison: MetricPairs, p: float | None, alpha: float
) -> tuple[Outcome, str]:
    """The outcome of a metric without ratios: not measured in every block, or zero somewhere."""
    pairs = comparison.pairs
    if not pairs:
        return "inconclusive", comparison.missing
    if p is None:
        if len(pairs) < fewest_pairs(alpha=alpha):
            needed = f"at least {fewest_pairs(alpha=alpha)} {TOO_FEW}"
            return "inconclusive", f"{_count(len(pairs), 'pair')}; {needed}"
        return "no_difference", "the same in every pair"
    zeros = sum(value <= 0 for pair in pairs for value in pair)
    reason = f"no ratio: zero in {zeros} of {2 * len(pairs)} blocks"
    if p > alpha:
        return "inconclusive", reason
    return _direction(comparison, math.fsum(comparison.differences)), reason


def is_noise(log_ratios: Sequence[float], margin: float, floor: float) -> bool:
    """An effect worth having that two equal arms show on this host as well."""
    return math.log1p(margin) < abs(hodges_lehmann(log_ratios)) <= math.log1p(floor)


def _direction(comparison: MetricPairs, change: float) -> Outcome:
    return "better" if (change > 0) is (comparison.metric.better_when == "higher") else "worse"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
