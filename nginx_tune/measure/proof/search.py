"""A search among candidates: the next measurement, and the challenger to confirm.

Successive halving (Jamieson and Talwalkar 2016): every candidate is measured in one interleaved
round, the better half in another one, and so on, with two rounds from the third step on. The
recommendation runs in all rounds. A candidate is ranked by its ratio to the recommendation in the
same rounds, so that a drift of the host affects both.

The best of many noisy figures is partly the luckiest: most winners of a search lose when they are
measured again (Freischuetz et al., TUNA, EuroSys 2025). So a search claims nothing. It names a
challenger, which is compared on fresh seeds, by the looks of ``verdict``, with the recommendation
and with the current configuration. The challenger is announced only if it beats both. If all
candidates are equal, that happens only if both comparisons wrongly say "better". All looks of a
comparison together are wrong in at most 5 % of cases, and half of these say "better". So at most
2.5 % of searches announce a wrong winner, whatever the number of candidates and looks.
"""

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
"""The variant that is the current configuration."""
RECOMMENDED = "recommended"
MOST_CANDIDATES = 8
"""Maximum number of candidates, besides the current configuration and the recommendation."""
_ROUNDS = (1, 1, 2)
"""Rounds of each step; the last entry holds for all further steps."""
_FINALISTS = 2

Gains = Mapping[str, Sequence[float]]
"""The log of each variant's gain over the reference in each round."""


class Rung(NamedTuple):
    """A step of a search: variants and the number of interleaved rounds."""

    names: tuple[str, ...]
    rounds: int


class Ranked(NamedTuple):
    """A variant with its gain so far."""

    name: str
    gain: float
    """The log of the factor by which the variant is better than the reference."""
    interval: Interval | None
    """Interval of the gain; None with fewer than two rounds."""
    rounds: int


def gains_of(
    measurements: Sequence[Measurement], names: Sequence[str], against: str, metric: str
) -> Gains:
    """The gains of each variant over ``against`` in the runs of one step.

    Shape: only rounds that count for both and in which both have the metric, above zero.
    """
    sign = 1.0 if find_metric(metric).better_when == "higher" else -1.0
    gains: dict[str, list[float]] = {}
    for name in names:
        if name == against:
            continue
        runs = pair_runs(select_pairs(measurements, len(names), against=against, variant=name))
        logs = MetricPairs(find_metric(metric), runs).log_ratios
        gains[name] = [sign * log for log in logs]
    return gains


def next_rung(names: Sequence[str], reference: str, steps: Sequence[Gains]) -> Rung | None:
    """The step after ``steps``; None once the last two variants were measured together."""
    if not steps:
        return Rung(tuple(names), _ROUNDS[0])
    left = [ranked.name for ranked in rank(names, reference, steps) if ranked.name in steps[-1]]
    size = len(left) + 1
    if size <= _FINALISTS:
        return None
    keep = max(_FINALISTS, math.ceil(size / 2))
    rounds = _ROUNDS[min(len(steps), len(_ROUNDS) - 1)]
    chosen = {reference, *left[: keep - 1]}
    return Rung(tuple(name for name in names if name in chosen), rounds)


def rank(names: Sequence[str], reference: str, steps: Sequence[Gains]) -> list[Ranked]:
    """All variants but the reference: by steps survived, then by gain, then in the given order."""
    ranked = []
    for name in names:
        if name == reference:
            continue
        gains = [gain for step in steps for gain in step.get(name, ())]
        gain = hodges_lehmann(gains) if gains else -math.inf
        ranked.append(Ranked(name, gain, signed_rank_interval(gains), len(gains)))
    survived = {name: sum(name in step for step in steps) for name in names}
    return sorted(ranked, key=lambda ranked: (-survived[ranked.name], -ranked.gain))


def challenger(names: Sequence[str], reference: str, steps: Sequence[Gains]) -> str | None:
    """The best variant, if it seems better by more than the smallest effect worth having."""
    for best in rank(names, reference, steps)[:1]:
        if best.gain > math.log1p(MARGIN):
            return best.name
    return None


def is_ahead(verdict: Verdict) -> bool:
    """True if the verdict is better by its primary metric, which chose the challenger."""
    primary = next(m for m in verdict.metrics if m.name == verdict.primary_metric)
    return verdict.outcome == primary.outcome == "better"
