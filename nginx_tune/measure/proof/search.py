"""A search among candidates: what to measure next, and who is worth a confirmation; pure.

Successive halving (Jamieson and Talwalkar 2016). Every candidate is measured once in an interleaved
round, the better half once more, and so on, with two rounds from the third step on. A candidate is
ranked by its ratio to the recommendation in the rounds that both ran in, so that a drift of the
host meets both. The recommendation stays in all rounds: it is what the others have to beat.

The best of many noisy figures is partly the luckiest: most winners of a search lose when they are
measured again (Freischuetz et al., TUNA, EuroSys 2025). So a search claims nothing. It names a
challenger, which is compared on seeds of its own, by the looks of ``verdict``, with the
recommendation and with today's configuration. A challenger that is announced beat both. With all
candidates equal that takes two wrong claims of "better" at once, each of which has half of the 5 %
of all looks; so a winner that is none comes in at most 2.5 % of searches, however many candidates
there are and however often the rounds are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Verdict
from nginx_tune.measure.proof.comparison import MARGIN, MetricPairs
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.runs import pair_runs, select_pairs
from nginx_tune.measure.proof.statistics import Interval, hodges_lehmann, signed_rank_interval

TODAY = "baseline"
"""The variant that is today's configuration."""
RECOMMENDED = "recommended"
MOST_CANDIDATES = 8
"""Beside today's configuration and the recommendation."""
_ROUNDS = (1, 1, 2)
"""Rounds of each step; the last figure holds for all further ones."""
_FINALISTS = 2

Gains = Mapping[str, Sequence[float]]
"""By variant, the log of how many times as good as the reference it was, one for each round."""


class Rung(NamedTuple):
    """One step of a search: these variants, so many interleaved rounds."""

    names: tuple[str, ...]
    rounds: int


class Ranked(NamedTuple):
    """A variant by what was measured of it so far."""

    name: str
    gain: float
    """The log of how many times as good as the reference it is; 0 for the reference."""
    interval: Interval | None
    """None with fewer than two rounds."""
    rounds: int


def gains_of(
    measurements: Sequence[Measurement], names: Sequence[str], against: str, metric: str
) -> Gains:
    """The log of how many times as good as ``against`` each variant is, by round.

    Shape: only rounds that count for both and in which both have the metric, above zero.
    ``measurements`` are of one step; its rounds hold each of ``names`` once.
    """
    sign = 1.0 if find_metric(metric).better_when == "higher" else -1.0
    found: dict[str, list[float]] = {}
    for name in names:
        if name == against:
            continue
        runs = pair_runs(select_pairs(measurements, len(names), against=against, variant=name))
        logs = MetricPairs(find_metric(metric), runs).log_ratios
        found[name] = [sign * one for one in logs]
    return found


def first_rung(names: Sequence[str]) -> Rung:
    """The first step: all of them."""
    return Rung(tuple(names), _ROUNDS[0])


def next_rung(names: Sequence[str], reference: str, steps: Sequence[Gains]) -> Rung | None:
    """The step that follows; None where two are left and were measured beside each other.

    ``steps`` are the gains over the reference by variant, step by step. A variant of which nothing
    could be measured comes last.
    """
    if not steps:
        return first_rung(names)
    left = [one.name for one in rank(names, reference, steps) if one.name in steps[-1]]
    size = len(left) + 1
    if size <= _FINALISTS:
        return None
    keep = max(_FINALISTS, math.ceil(size / 2))
    rounds = _ROUNDS[min(len(steps), len(_ROUNDS) - 1)]
    chosen = {reference, *left[: keep - 1]}
    return Rung(tuple(name for name in names if name in chosen), rounds)


def rank(names: Sequence[str], reference: str, steps: Sequence[Gains]) -> list[Ranked]:
    """All but the reference: who came furthest first, then by gain, then in the order given."""
    found = []
    for name in names:
        if name == reference:
            continue
        gains = [one for step in steps for one in step.get(name, ())]
        gain = hodges_lehmann(gains) if gains else -math.inf
        found.append(Ranked(name, gain, signed_rank_interval(gains), len(gains)))
    lasted = {name: sum(name in step for step in steps) for name in names}
    return sorted(found, key=lambda one: (-lasted[one.name], -one.gain))


def challenger(names: Sequence[str], reference: str, steps: Sequence[Gains]) -> str | None:
    """The variant that is worth a confirmation: more than the smallest effect better, if luckily.

    None where the reference is the best so far, but for noise.
    """
    for one in rank(names, reference, steps)[:1]:
        if one.gain > math.log1p(MARGIN):
            return one.name
    return None


def is_ahead(verdict: Verdict) -> bool:
    """True if the metric that decides is better, and with it the whole.

    A contender is chosen by that metric. What another one shows by the way is no winner.
    """
    primary = (one for one in verdict.metrics if one.name == verdict.primary_metric)
    return verdict.outcome == "better" and any(one.outcome == "better" for one in primary)
