"""Regret: the loss of the recommended configuration compared with the best candidate.

The best of several noisy candidates is partly the luckiest. So in every round the opponent is the
candidate that was best in the *other* half of the rounds: it is chosen by one half and scored on
the other, and noise is not mistaken for regret. Each round gives the log ratio of the recommended
configuration to its opponent. Middle, interval and p are as everywhere in nginx-tune (exact, over
paired rounds), with Holm over the cells.

Pure: numbers in, numbers out.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from nginx_tune.decide.model.blocking import BUSY_HOST_SECONDS
from nginx_tune.measure.proof.statistics import (
    ALPHA,
    Interval,
    hodges_lehmann,
    holm,
    sign_flip_p,
    signed_rank_interval,
)

FEWEST_ROUNDS = 4
"""Two rounds in each half."""
TOLERATED = 0.10
"""The largest regret that does not count, as a share."""
FLOOR_SECONDS = BUSY_HOST_SECONDS
"""A regret in an answer's time does not count up to this: the mean time of an answer on a busy
host whose loops never block."""
TOLERATED_TEXT = f"{TOLERATED:.0%} or {1e3 * FLOOR_SECONDS:g} ms"
_FLIPS = 400
Better = Literal["higher", "lower"]
Rounds = Mapping[str, Sequence[float]]
"""By candidate, a value for each round; all have the same length."""

Outcome = Literal["within", "worse", "open"]


class CellScore(NamedTuple):
    """The score of a cell, before the cells are judged together."""

    cell: str
    opponents: tuple[str, str]
    """The best candidate of the even and of the odd rounds."""
    regret: float
    """The share by which the recommended one is worse than its opponents; negative if it is better.
    """
    low: float
    high: float
    level: float
    missed_seconds: float
    """The time by which the best answers sooner, in the middle of the rounds; infinite if the
    metric is not the time of an answer, so that it has no floor."""
    p_beyond: float
    """The p-value of "the regret is tolerable", against a larger one."""
    against_stock: float
    """The recommended one's value divided by stock's, such that above 1 is better."""
    stock_low: float
    stock_high: float
    noise_floor: float
    """The largest difference of stock from itself, as a share, by the interval of the two."""


class Judged(NamedTuple):
    """A cell judged among all."""

    score: CellScore
    outcome: Outcome
    p_adjusted: float


def score_cell(
    cell: str,
    rounds: Rounds,
    better: Better,
    *,
    recommended: str = "recommended",
    stock: str = "stock",
    again: str = "stock-again",
    of_answers: bool = False,
) -> CellScore:
    """The regret of a cell; ``of_answers``: values are times of answers, in seconds.

    Errors: ValueError for fewer than four rounds, rounds of different lengths or values that
            are not above zero.
    """
    gains = _log_gains(rounds, better)
    best, differences = _against_best(gains, recommended, again)
    middle, interval = _middle(differences)
    over_stock, stock_low, stock_high = ratio_of(rounds, better, recommended, stock)
    allowed = -math.log1p(TOLERATED)
    beyond = [d - allowed for d in differences]
    p_two_sided = sign_flip_p(beyond)
    return CellScore(
        cell=cell,
        opponents=(best[0], best[1]),
        regret=math.expm1(-middle),
        low=math.expm1(-interval.high),
        high=math.expm1(-interval.low),
        level=interval.level,
        missed_seconds=_missed(rounds, best, recommended) if of_answers else math.inf,
        p_beyond=p_two_sided / 2 if math.fsum(beyond) < 0 else 1 - p_two_sided / 2,
        against_stock=over_stock,
        stock_low=stock_low,
        stock_high=stock_high,
        noise_floor=_noise(gains, stock, again),
    )


def is_within(score: CellScore) -> bool:
    """True if the regret is no more than is tolerated: the larger of the share and the floor."""
    return score.regret <= TOLERATED or score.missed_seconds <= FLOOR_SECONDS


def _missed(rounds: Rounds, best: Mapping[int, str], recommended: str) -> float:
    own = rounds[recommended]
    return hodges_lehmann([own[n] - rounds[best[1 - n % 2]][n] for n in range(len(own))])


def chance_beyond(
    rounds: Rounds, better: Better, *, recommended: str = "recommended", again: str = "stock-again"
) -> float:
    """The probability that a candidate as good as the best looks worse than tolerable.

    Each round's difference from the middle gets a random sign: the effect of this cell's noise on a
    regret of zero. 0 if the recommended one was the best in both halves.
    """
    _, differences = _against_best(_log_gains(rounds, better), recommended, again)
    middle = hodges_lehmann(differences)
    apart = [one - middle for one in differences]
    if not any(apart):
        return 0.0
    dice = random.Random(1)  # noqa: S311  # the same figure each time
    flips = ([one * dice.choice((-1, 1)) for one in apart] for _ in range(_FLIPS))
    return sum(hodges_lehmann(one) < -math.log1p(TOLERATED) for one in flips) / _FLIPS


def is_clear(score: CellScore) -> bool:
    """True if more rounds could not change the result of a cell with few.

    Then the recommendation is clearly no worse than the best and than stock; any other result needs
    all rounds.
    """
    return score.high <= TOLERATED and score.stock_low >= 1 - TOLERATED


def judge_cells(scores: Sequence[CellScore]) -> list[Judged]:
    """The outcome of every cell, with Holm over all cells.

    ``worse``: the regret is significantly larger than tolerable. ``within``: its whole interval is
    tolerable, or its middle is below the floor. ``open``: the rounds do not decide.
    """
    adjusted = holm([score.p_beyond for score in scores])
    return [Judged(score, _outcome(score, p), p) for score, p in zip(scores, adjusted, strict=True)]


def ratio_of(rounds: Rounds, better: Better, name: str, other: str) -> tuple[float, float, float]:
    """The factor by which a candidate is better than another, with the ends of its interval."""
    gains = _log_gains(rounds, better)
    middle, interval = _middle([a - b for a, b in zip(gains[name], gains[other], strict=True)])
    return math.exp(middle), math.exp(interval.low), math.exp(interval.high)


def geometric_mean_over(cells: Sequence[tuple[Rounds, Better]], name: str, other: str) -> float:
    """The factor by which a candidate is better than another, over all cells."""
    middles = []
    for rounds, better in cells:
        gains = _log_gains(rounds, better)
        middles.append(
            hodges_lehmann([a - b for a, b in zip(gains[name], gains[other], strict=True)])
        )
    return math.exp(_mean(middles))


def _against_best(
    gains: Mapping[str, Sequence[float]], recommended: str, again: str
) -> tuple[dict[int, str], list[float]]:
    """The best of each half, and each round's difference from the best of the other half."""
    choices = sorted(name for name in gains if name != again)
    best = {half: max(choices, key=lambda name: _mean(gains[name][half::2])) for half in (0, 1)}
    opponents = (gains[best[1 - n % 2]][n] for n in range(len(gains[recommended])))
    return best, [own - other for own, other in zip(gains[recommended], opponents, strict=True)]


def _outcome(score: CellScore, p: float) -> Outcome:
    if score.high <= TOLERATED or score.missed_seconds <= FLOOR_SECONDS:
        return "within"
    return "worse" if p <= ALPHA and score.regret > TOLERATED else "open"


def _log_gains(rounds: Rounds, better: Better) -> dict[str, list[float]]:
    """Logs of the values, with signs such that more is better."""
    lengths = {len(values) for values in rounds.values()}
    if len(lengths) != 1 or min(lengths) < FEWEST_ROUNDS:
        raise ValueError(f"four or more rounds of every candidate are needed, not {lengths}")
    if any(not value > 0 for values in rounds.values() for value in values):
        raise ValueError("a value is not above zero: no ratio of it can be taken")
    sign = 1.0 if better == "higher" else -1.0
    return {name: [sign * math.log(v) for v in values] for name, values in rounds.items()}


def _middle(values: Sequence[float]) -> tuple[float, Interval]:
    interval = signed_rank_interval(values)
    if interval is None:
        raise ValueError("an interval needs two rounds")
    return hodges_lehmann(values), interval


def _noise(gains: Mapping[str, Sequence[float]], stock: str, again: str) -> float:
    if again not in gains:
        return 0.0
    _, interval = _middle([a - b for a, b in zip(gains[again], gains[stock], strict=True)])
    return math.expm1(max(abs(interval.low), abs(interval.high)))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
