"""Counts of harm over two windows against each other, and causes that are new in the later one.

A count has no seconds to draw from. What must never happen is worse when it is new. Of what
happens now and then there must be surely more in as many requests (in as much time, where these
are not known) than chance makes, and twice as many, since failures come in clumps. Where there
was more traffic, or a server that was not changed shows the same, that may be the reason.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nginx_tune.documents.comparison import ComparedMetric
from nginx_tune.documents.verdict import Outcome
from nginx_tune.measure.proof.windows import ComparedWindow, weight_of

_FEWEST = 5
_TIMES = 2.0
_CHANCE = 0.01


class JudgedCount(NamedTuple):
    """A judged count."""

    metric: ComparedMetric
    is_doubt: bool
    """Whether it may be worse, so that nothing better and no sameness can be said of the whole."""


def judge_count(
    name: str,
    before: ComparedWindow,
    after: ComparedWindow,
    control: tuple[ComparedWindow, ComparedWindow] | None,
    *,
    more_traffic: bool,
) -> JudgedCount:
    """One count that both windows have."""
    outcome, reason, is_doubt = _judged(name, before, after)
    if outcome == "worse" and control is not None and _grew(name, *control):
        outcome, reason, is_doubt = "inconclusive", f"{reason}; so it did in the control", True
    elif outcome == "worse" and more_traffic and weight_of(name) != "never":
        reason += ", under more traffic, which may be the reason"
        outcome, is_doubt = "inconclusive", True
    old, new = before.totals[name], after.totals[name]
    metric = ComparedMetric(
        name=name,
        unit="count",
        before=old,
        after=new,
        ratio=new / old if old and new else None,
        method="counts",
        seconds=math.floor(min(before.seconds, after.seconds)),
        outcome=outcome,
        reason=reason,
    )
    return JudgedCount(metric, is_doubt)


def _judged(name: str, before: ComparedWindow, after: ComparedWindow) -> tuple[Outcome, str, bool]:
    old, new = before.totals[name], after.totals[name]
    if old == new == 0:
        return "no_difference", "none in either window", False
    if new == 0:
        return "better", f"none after {old:,.0f} before", False
    said = f"{new:,.0f} after {f'{old:,.0f}' if old else 'none'} before"
    weight = weight_of(name)
    if weight == "never" and not old:
        return "worse", said, False
    if not _grew(name, before, after):
        return "inconclusive", "a single count has no interval", False
    return ("inconclusive", said, True) if weight == "sign" else ("worse", said, False)


def _grew(name: str, before: ComparedWindow, after: ComparedWindow) -> bool:
    """Surely more than chance makes, and at least twice as many."""
    if name not in before.totals or name not in after.totals:
        return False
    old, new = round(before.totals[name]), round(after.totals[name])
    exposures = (before.seconds, after.seconds)
    if before.requests and after.requests:
        exposures = (float(before.requests), float(after.requests))
    if new < _FEWEST or not all(exposures):
        return False
    expected = old * exposures[1] / exposures[0]
    share = exposures[1] / sum(exposures)
    return new >= _TIMES * expected and _beyond(new, old + new, share) < _CHANCE


def _beyond(count: int, of: int, share: float) -> float:
    """The chance of ``count`` or more among ``of``, each with this chance.

    The bound of Chernoff and Hoeffding: exp(-n D(k/n, p)), never below the exact one.
    """
    part = count / of
    if part <= share:
        return 1.0
    divergence = part * math.log(part / share)
    if part < 1:
        divergence += (1 - part) * math.log((1 - part) / (1 - share))
    return math.exp(-of * divergence)


def new_causes(
    before: ComparedWindow,
    after: ComparedWindow,
    control: tuple[ComparedWindow, ComparedWindow] | None,
) -> list[str]:
    """Ids that only the later window names; not those that are new in the control as well."""
    new = [one for one in after.causes if one not in before.causes]
    if control is None:
        return new
    also = set(control[1].causes) - set(control[0].causes)
    return [one for one in new if one not in also]


def only_in_one(before: ComparedWindow, after: ComparedWindow) -> list[str]:
    """What was counted in one window and not in the other."""
    return sorted(before.totals.keys() ^ after.totals.keys())
