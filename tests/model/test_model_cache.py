import random
from bisect import bisect
from collections import OrderedDict
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.decide.model.cache import curve_classes, hit_ratio, zipf_classes


def simulate_lru(objects: int, exponent: float, capacity: int, requests: int) -> float:
    """Hit ratio of a real LRU list in the second half of the requests."""
    rng = random.Random(7)
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(objects)))
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for number in range(requests):
        item = bisect(weights, rng.random() * weights[-1])
        if item in cache:
            cache.move_to_end(item)
            hits += number >= requests // 2
        else:
            cache[item] = None
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits / (requests - requests // 2)


@each_row(("exponent", "capacity"), [(0.0, 600), (0.6, 200), (0.8, 100), (1.0, 300), (1.2, 50)])
def test_the_hit_ratio_is_that_of_a_simulated_lru(exponent: float, capacity: int) -> None:
    simulated = simulate_lru(2000, exponent, capacity, 60_000)
    model = hit_ratio(zipf_classes(2000.0, exponent), float(capacity))
    assert model == pytest.approx(simulated, abs=0.02)


def test_grouping_the_tail_does_not_change_the_law() -> None:
    grouped = zipf_classes(100_000.0, 0.8)
    weights = [rank**-0.8 for rank in range(1, 100_001)]
    exact_top = sum(weights[:1000]) / sum(weights)
    seen = covered = 0.0
    for c in grouped:
        share = min(c.objects, 1000 - seen)
        covered += max(0.0, share) * c.probability_each
        seen += c.objects
    assert covered == pytest.approx(exact_top, rel=0.01)
    assert len(grouped) < 200


def test_uniform_popularity_hits_by_the_share_that_fits() -> None:
    assert hit_ratio(zipf_classes(1000.0, 0.0), 250.0) == pytest.approx(0.25, abs=1e-6)


def test_a_measured_curve_gives_the_same_as_the_law_it_was_taken_from() -> None:
    classes = zipf_classes(10_000.0, 0.9)
    curve, bytes_, share = [], 0.0, 0.0
    for c in classes:
        bytes_ += c.objects * 1000
        share += c.objects * c.probability_each
        curve.append((share, bytes_))
    from_curve = curve_classes(curve, 1000.0, 10_000_000.0)
    assert hit_ratio(from_curve, 1500.0) == pytest.approx(hit_ratio(classes, 1500.0), abs=0.005)


@given(objects=st.floats(1, 1e12), exponent=st.floats(0, 3), share=st.floats(0, 2))
def test_any_cache_answers_between_nothing_and_all(
    objects: float, exponent: float, share: float
) -> None:
    ratio = hit_ratio(zipf_classes(objects, exponent), objects * share)
    assert 0.0 <= ratio <= 1.0 + 1e-9


@given(exponent=st.floats(0, 1.5), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_larger_cache_never_answers_less(exponent: float, shares: tuple[float, float]) -> None:
    classes = zipf_classes(50_000.0, exponent)
    small, large = sorted(shares)
    assert hit_ratio(classes, small * 50_000) <= hit_ratio(classes, large * 50_000) + 1e-6
