"""When a comparison whose pairs come one by one is looked at, and what each look may claim.

To look after every pair at a level of 5 % and to stop at the first claim is wrong far more often
than in 5 %. So there are few looks, each half as many pairs again as the one before, and each
spends a part of the 5 %: the first what the fewest pairs can give at all (seven that agree, 2 of
the 2^7 patterns), every further one a fixed share of what is left. The parts of all looks there
could ever be add up to 5 %. Then all intervals hold together with 95 %, whatever the looks have in
common, and it may be stopped at any look for any reason: because it is settled, because the
interval is as narrow as asked, or because time is up.

Source: Bonferroni over looks; repeated confidence intervals, Jennison and Turnbull 1989.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nginx_tune.documents.verdict import MetricVerdict
from nginx_tune.measure.proof.comparison import MARGIN
from nginx_tune.measure.proof.statistics import ALPHA, fewest_pairs

FIRST_ALPHA = 2.0**-6
FEWEST_FIRST = fewest_pairs(alpha=FIRST_ALPHA)
"""Pairs of the first look."""
_GROWTH = 1.5
_SHARE = 0.3
"""Of what is left, that each further look spends."""


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
    """Whether more pairs are not worth their time.

    The outcome is known, or the interval is so narrow (half the margin to either side) that what
    is left open does not matter: an effect at the edge of what is worth having stays there.
    """
    if metric.outcome in ("better", "worse", "no_difference"):
        return True
    if metric.low is None or metric.high is None or metric.low <= 0:
        return False
    return math.log(metric.high / metric.low) <= math.log1p(margin)
