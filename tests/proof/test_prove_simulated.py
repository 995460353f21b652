"""The statistics on simulated hosts: how often a verdict is wrong, how often it is missed."""

import math
import random
import statistics
from collections.abc import Callable

from rows import each_row
from tiers import draws

from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.runs import schedule_runs
from nginx_tune.measure.proof.statistics import hodges_lehmann, pairs_needed, signed_rank_interval
from nginx_tune.measure.proof.verdict import MARGIN, judge

MakeRuns = Callable[..., list[Measurement]]
RATE = "hot.requests_per_second"


def simulate(chance: random.Random, pairs: int, effect: float) -> list[tuple[float, float]]:
    """Rates of runs on a host that drifts (AR(1)), jitters and now and then stalls."""
    level, results = 0.0, []
    for start in range(0, 2 * pairs, 2):
        order = schedule_runs(pairs, chance.randrange(1 << 30))[start : start + 2]
        pair = {}
        for variant in order:
            level = 0.7 * level + chance.gauss(0, 0.04)
            stall = 0.3 if chance.random() < 0.05 else 0.0
            noise = level + chance.gauss(0, 0.04) - stall
            pair[variant] = 100 * math.exp(noise) * (effect if variant == "candidate" else 1.0)
        results.append((pair["baseline"], pair["candidate"]))
    return results


def outcomes(make: MakeRuns, runs: int, pairs: int, effect: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [
        judge(make(simulate(chance, pairs, effect)), primary_metric=RATE, metrics=[]).outcome
        for _ in range(runs)
    ]


@each_row("pairs", [6, 10])
def test_two_equal_variants_are_rarely_told_apart(make_runs: MakeRuns, pairs: int) -> None:
    runs = draws(250, 1000)
    seen = outcomes(make_runs, runs, pairs, 1.0, seed=pairs)
    assert seen.count("better") + seen.count("worse") <= 0.05 * runs


def test_twenty_per_cent_is_found_with_ten_pairs(make_runs: MakeRuns) -> None:
    runs = draws(100, 400)
    seen = outcomes(make_runs, runs, 10, 1.2, seed=5)
    assert seen.count("better") >= 0.8 * runs
    assert seen.count("worse") == 0


@each_row("pairs", [1, 2, 3, 4, 5])
def test_fewer_than_six_pairs_never_say_that_there_is_no_difference(
    make_runs: MakeRuns, pairs: int
) -> None:
    seen = outcomes(make_runs, 50, pairs, 1.0, seed=pairs)
    seen.append(judge(make_runs([(100.0, 100.0)] * pairs), primary_metric=RATE).outcome)
    assert "no_difference" not in seen


@each_row(
    ("effect", "spread"), [(1.1, 0.1), (1.2, 0.1), (1.2, 0.2), (1.5, 0.3), (1.02, 0.05), (1.0, 0.1)]
)
def test_the_pairs_that_are_called_enough_are(effect: float, spread: float) -> None:
    """With as many pairs as ``pairs_needed`` says, four runs in five are settled."""
    worth = math.log1p(MARGIN)
    shape = [position - 2.5 for position in range(6)]
    seen = [math.log(effect) + value * spread / statistics.stdev(shape) for value in shape]
    pairs = pairs_needed(seen, worth=worth)
    assert pairs is not None
    chance = random.Random(3)
    settled = 0
    for _ in range(400):
        ratios = [chance.gauss(math.log(effect), spread) for _ in range(pairs)]
        interval = signed_rank_interval(ratios)
        assert interval is not None
        settled += (
            interval.low > 0 and hodges_lehmann(ratios) > worth
            if math.log(effect) > worth
            else -worth < interval.low and interval.high < worth
        )
    assert settled >= 0.74 * 400  # 0.8 less three standard errors
