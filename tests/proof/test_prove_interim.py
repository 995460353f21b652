"""Looking repeatedly: what all looks together claim wrongly stays below 5 %."""

import math
import random
from collections.abc import Callable

from rows import each_row
from tiers import draws

from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.statistics import fewest_pairs, hodges_lehmann, signed_rank_interval
from nginx_tune.measure.proof.verdict import FIRST_ALPHA, judge, meets_stopping_rule, next_look

MakeRuns = Callable[..., list[Measurement]]
RATE = "hot.requests_per_second"
MOST_PAIRS = 60


def test_all_looks_together_spend_at_most_five_per_cent() -> None:
    look, spent = None, 0.0
    for _ in range(40):
        look = next_look(look)
        spent += look.alpha
        assert look.pairs >= fewest_pairs(alpha=look.alpha)  # it can claim something at all
    assert 0.0499 < spent <= 0.05


def test_the_first_look_is_where_the_caller_wants_it() -> None:
    assert next_look(None).pairs == 7
    assert next_look(None, first_pairs=12) == (1, 12, FIRST_ALPHA)
    assert next_look(next_look(None, first_pairs=12)).pairs == 18


def ratios(chance: random.Random, effect: float, spread: float) -> list[float]:
    """Log ratios with now and then a stall in either half."""
    return [
        effect + chance.gauss(0, spread) * (5 if chance.random() < 0.05 else 1)
        for _ in range(MOST_PAIRS)
    ]


def stopped_at(values: list[float], *, spends: bool) -> tuple[bool, bool]:
    """Whether a winner was claimed at any look, and whether every interval held zero."""
    look, claimed, held = None, False, True
    while (look := next_look(look)).pairs <= len(values):
        interval = signed_rank_interval(values[: look.pairs], look.alpha if spends else 0.05)
        assert interval is not None
        clear = not interval.low <= 0 <= interval.high
        held &= not clear
        far = abs(hodges_lehmann(values[: look.pairs])) > math.log1p(0.05)
        claimed |= clear and far
    return claimed, held


def test_looking_often_costs_no_more_than_said_and_would_without_spending() -> None:
    chance, count = random.Random(6), draws(300, 600)
    runs = [ratios(chance, 0.0, 0.3) for _ in range(count)]
    spending = [stopped_at(values, spends=True) for values in runs]
    assert sum(claimed for claimed, _ in spending) <= 0.05 * count
    assert sum(not held for _, held in spending) <= 0.05 * count
    naive = [stopped_at(values, spends=False) for values in runs]
    assert sum(claimed for claimed, _ in naive) > 0.075 * count


def sequential(make: MakeRuns, values: list[float]) -> tuple[str, int]:
    look = None
    while True:
        look = next_look(look)
        rates = [(100.0, 100.0 * math.exp(value)) for value in values[: look.pairs]]
        verdict = judge(make(rates), primary_metric=RATE, metrics=[], alpha=look.alpha)
        if meets_stopping_rule(verdict.metrics[0]) or look.pairs >= len(values):
            return verdict.outcome, look.pairs


@each_row(
    ("effect", "spread", "outcome", "most_pairs"),
    [(2.0, 0.1, "better", 7), (1.2, 0.1, "better", 26), (0.8, 0.1, "worse", 26)],
)
def test_a_clear_effect_needs_few_pairs(
    make_runs: MakeRuns, effect: float, spread: float, outcome: str, most_pairs: int
) -> None:
    chance = random.Random(1)
    for _ in range(draws(5, 20)):
        found, pairs = sequential(make_runs, ratios(chance, math.log(effect), spread / 2))
        assert (found, pairs <= most_pairs) == (outcome, True)


def test_no_difference_and_an_effect_at_the_edge_end_too(make_runs: MakeRuns) -> None:
    chance = random.Random(2)
    quiet = [chance.gauss(0, 0.02) for _ in range(MOST_PAIRS)]
    assert sequential(make_runs, quiet)[0] == "no_difference"
    edge = [math.log(1.05) + chance.gauss(0, 0.02) for _ in range(MOST_PAIRS)]
    assert sequential(make_runs, edge)[1] < MOST_PAIRS
