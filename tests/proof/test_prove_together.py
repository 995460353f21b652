"""Several metrics tested together: by hand, against a plain count, and on noise."""

import itertools
import math

import pytest
from rows import each_row
from tiers import REPEAT, dice, draws

from nginx_tune.measure.proof.statistics import holm, sign_flip_p, step_down


def by_pair(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def counted(metrics: list[list[float]]) -> list[float]:
    """The same by the book: every toss of all pairs, one metric after the other taken away."""
    size = len(metrics[0])
    signs = list(itertools.product((1, -1), repeat=size))

    def strength(values: list[float], toss: tuple[int, ...]) -> float:
        total = math.fsum(v * s for v, s in zip(values, toss, strict=True))
        return abs(total) / math.sqrt(math.fsum(v * v for v in values))

    seen = [strength(values, signs[0]) for values in metrics]
    left = sorted(range(len(metrics)), key=lambda index: -seen[index])
    adjusted, largest = [0.0] * len(metrics), 0.0
    while left:
        first = left[0]
        hits = sum(
            max(strength(metrics[i], toss) for i in left) >= seen[first] - 1e-9 for toss in signs
        )
        largest = max(largest, hits / len(signs))
        adjusted[first] = largest
        left = left[1:]
    return adjusted


def test_six_pairs_that_agree_show_it_of_any_number_of_metrics() -> None:
    """Where Holm could say nothing of any."""
    chance = dice("effects")
    effects = [[math.log(2) + chance.gauss(0, 0.02) for _ in range(6)] for _ in range(20)]
    p_values = step_down([by_pair(values) for values in effects])
    assert p_values == pytest.approx([2 / 64] * 20)
    assert min(holm([sign_flip_p(values) for values in effects])) > 0.6


def test_it_is_what_a_plain_count_gives() -> None:
    chance = dice("by the book")
    for _ in range(draws(20, 60)):
        count, size = chance.randint(1, 5), chance.randint(2, 7)
        metrics = [
            [chance.gauss(chance.choice((0, 1)), 1) for _ in range(size)] for _ in range(count)
        ]
        found = step_down([by_pair(values) for values in metrics])
        assert found == pytest.approx(counted(metrics)), REPEAT


def test_nothing_and_zero_and_pairs_of_their_own() -> None:
    assert step_down([]) == []
    assert step_down([{}]) == [1.0]
    assert step_down([by_pair([0.0] * 6), by_pair([1.0] * 6)]) == pytest.approx([1.0, 2 / 64])
    # A pair that does not count for a metric leaves it fewer to show anything with.
    fewer = dict.fromkeys(range(1, 6), 1.0)
    assert step_down([fewer, by_pair([1.0] * 6)]) == pytest.approx([2 / 32, 2 / 64])


@each_row(("alike", "pairs"), [(0.0, 6), (0.0, 8), (0.7, 6), (0.7, 9)])
def test_of_equal_variants_at_most_one_run_in_twenty_claims_anything(
    alike: float, pairs: int
) -> None:
    """Twelve metrics, with noise of their own and in common, some with heavy tails."""
    chance, runs = dice(f"equal variants {alike} {pairs}"), draws(200, 600)
    claimed = 0
    for _ in range(runs):
        common = [chance.gauss(0, 1) for _ in range(pairs)]
        metrics = []
        for number in range(12):
            noise = [chance.gauss(0, 1) ** (3 if number % 3 == 0 else 1) for _ in range(pairs)]
            metrics.append(
                [alike * c + (1 - alike) * n for c, n in zip(common, noise, strict=True)]
            )
        claimed += min(step_down([by_pair(values) for values in metrics])) <= 0.05
    assert claimed <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95), REPEAT
