"""Two samples that are not paired: against tables, by brute force, on simulated runs."""

import random
from itertools import combinations

import pytest
from rows import each_row

from nginx_tune.measure.proof.run_comparison import (
    rank_sum_cumulative,
    rank_sum_p,
    shift_interval,
    shift_of,
)

# Mann-Whitney U, two-sided 0.05: reject at or below; in most textbooks.
CRITICAL = {(4, 4): 0, (5, 5): 2, (6, 6): 5, (8, 8): 13, (10, 10): 23, (5, 8): 6, (20, 20): 127}


@each_row(("sizes", "critical"), CRITICAL.items())
def test_critical_values_are_those_of_the_tables(sizes: tuple[int, int], critical: int) -> None:
    cumulative = rank_sum_cumulative(*sizes)
    total = cumulative[-1]
    assert 2 * cumulative[critical] / total <= 0.05
    assert 2 * cumulative[critical + 1] / total > 0.05


@each_row(("first", "second"), [(1, 1), (1, 4), (3, 2), (4, 5)])
def test_the_distribution_is_that_of_all_arrangements(first: int, second: int) -> None:
    counts = [0] * (first * second + 1)
    for places in combinations(range(first + second), first):
        counts[sum(place - rank for rank, place in enumerate(places))] += 1
    cumulative = rank_sum_cumulative(first, second)
    assert cumulative == [sum(counts[: n + 1]) for n in range(len(counts))]


def test_shift_and_interval_by_hand() -> None:
    assert shift_of([1.0, 2.0], [4.0, 8.0]) == 4.5
    interval = shift_interval([0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0])
    assert interval is not None
    assert (interval.low, interval.high) == (7.0, 13.0)
    assert interval.level == pytest.approx(1 - 2 / 70)
    assert shift_interval([], [1.0]) is None


def test_ties_and_empty_samples_prove_nothing() -> None:
    assert rank_sum_p([1.0] * 5, [1.0] * 5) == 1.0
    assert rank_sum_p([], [1.0]) == 1.0
    assert rank_sum_p([1.0, 2, 3, 4], [5.0, 6, 7, 8]) == pytest.approx(2 / 70)


def test_equal_populations_are_rarely_told_apart() -> None:
    chance = random.Random(3)
    claims = misses = 0
    for _ in range(1000):
        a, b = ([chance.expovariate(1.0) for _ in range(n)] for n in (6, 8))
        claims += rank_sum_p(a, b) <= 0.05
        interval = shift_interval(a, b)
        assert interval is not None
        misses += not interval.low <= 0 <= interval.high
    assert claims <= 65
    assert misses <= 65
