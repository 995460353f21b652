"""Steady state: trends are found where they are, and hardly where they are not."""

import random
from itertools import permutations

import pytest
from rows import each_row

from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.measure.proof.by_seconds import (
    find_trends,
    trend_p,
    warmup_seconds,
    with_steadiness,
)
from nginx_tune.measure.proof.runs import pair_runs


def series(*medians: float, rate: int = 100) -> list[SeriesPoint]:
    return [
        SeriesPoint(second=second, classes={"hot": ClassSecond(requests=rate, p50=value)})
        for second, value in enumerate(medians)
    ]


def run(*medians: float) -> Measurement:
    return Measurement(duration_seconds=float(len(medians)), series=series(*medians))


@each_row("size", [3, 5, 7])
def test_p_is_the_share_of_all_orders(size: int) -> None:
    def score(values: tuple[int, ...]) -> int:
        return abs(sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :]))

    orders = list(permutations(range(size)))
    for values in (orders[0], orders[3], orders[len(orders) // 3], orders[-2]):
        far = sum(score(order) >= score(values) for order in orders)
        assert trend_p(values) == pytest.approx(min(1.0, far / len(orders)))


def test_p_of_many_seconds_goes_on_where_the_exact_one_ends() -> None:
    chance = random.Random(1)
    values = [chance.random() + 0.02 * number for number in range(60)]
    assert trend_p([*values, values[-1]]) == pytest.approx(trend_p(values), rel=0.5, abs=1e-6)
    assert trend_p([1.0] * 100) == 1.0


def test_a_cache_that_fills_is_seen_and_cut() -> None:
    falling = [10.0, 8, 6, 5, 4, 3, 2.5, 2, 1.8, 1.5]
    assert find_trends(series(*falling))["hot"] < 0.5
    steady = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.02, 0.97]
    cut = warmup_seconds(run(*falling, *steady, *steady))
    assert cut is not None
    assert 3 <= cut <= 10
    assert warmup_seconds(run(*range(40, 0, -1))) is None
    assert warmup_seconds(run(*steady)) == 0


def test_a_trend_too_small_to_matter_is_none() -> None:
    assert find_trends(series(*[1 + 0.001 * second for second in range(30)])) == {}


def test_seconds_without_order_are_rarely_flagged() -> None:
    chance = random.Random(4)
    flagged = sum(
        bool(find_trends(series(*[chance.expovariate(1.0) for _ in range(8)]))) for _ in range(1000)
    )
    assert flagged <= 15


def test_the_seconds_of_draining_do_not_count() -> None:
    draining = [*[1.0] * 8, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]
    measured = Measurement(duration_seconds=8.0, series=series(*draining))
    assert with_steadiness(measured).flags == []


def test_the_flag_is_a_warning_since_it_depends_on_the_variant() -> None:
    """To discard by it would be to choose runs by their result."""
    warming = with_steadiness(run(*[10.0, 8, 6, 5, 4, 3, 2.5, 2, 1.8, 1.5]))
    assert [flag.split(":")[:2] for flag in warming.flags] == [["not_steady", " hot"]]
    halves = [
        Measurement(variant=variant, number=number, flags=warming.flags)
        for number, variant in enumerate(("baseline", "candidate"))
    ]
    assert len(pair_runs(halves).pairs) == 1
