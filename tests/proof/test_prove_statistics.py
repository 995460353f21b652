import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.measure.proof.statistics import (
    hodges_lehmann,
    holm,
    pairs_needed,
    sign_flip_p,
    signed_rank_cumulative,
    signed_rank_interval,
    walsh_averages,
)

LOG_RATIOS = st.lists(
    st.floats(-5, 5, allow_nan=False).map(lambda value: round(value, 3)), min_size=1, max_size=9
)

# Wilcoxon's signed-rank test, two-sided 0.05: reject at a rank sum of at most this. The table is
# in nearly every textbook, e.g. Hollander, Wolfe and Chicken, table A.4.
CRITICAL_RANK_SUMS = {
    6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 13: 17, 14: 21, 15: 25, 16: 29, 17: 34, 18: 40,
    19: 46, 20: 52, 21: 58, 22: 65, 23: 73, 24: 81, 25: 89,
}  # fmt: skip


def test_walsh_averages_and_their_median_by_hand() -> None:
    assert walsh_averages([1.0, 2.0, 6.0]) == [1.0, 1.5, 2.0, 3.5, 4.0, 6.0]
    assert hodges_lehmann([1.0, 2.0, 6.0]) == 2.75


@each_row(("size", "critical"), CRITICAL_RANK_SUMS.items())
def test_intervals_are_cut_at_the_published_ranks(size: int, critical: int) -> None:
    values = [float(2**i) for i in range(size)]  # so that all averages differ
    interval = signed_rank_interval(values)
    averages = walsh_averages(values)
    assert interval is not None
    assert (interval.low, interval.high) == (averages[critical], averages[-critical - 1])


@each_row(
    ("size", "level"),
    # 1 - 2 P(T <= critical), from the exact distribution counted by hand for small sizes.
    [(2, 0.5), (5, 0.9375), (6, 1 - 2 / 64), (7, 1 - 6 / 128), (8, 1 - 10 / 256)],
)
def test_the_level_is_the_one_that_is_reached(size: int, level: float) -> None:
    interval = signed_rank_interval([float(2**i) for i in range(size)])
    assert interval is not None
    assert interval.level == pytest.approx(level)


@each_row("size", range(1, 9))
def test_the_signed_rank_distribution_is_the_count_of_all_patterns(size: int) -> None:
    sums = Counter(
        sum(rank for rank, sign in enumerate(signs, 1) if sign)
        for signs in product((False, True), repeat=size)
    )
    cumulative = signed_rank_cumulative(size)
    assert cumulative[-1] == 2**size
    assert [b - a for a, b in zip([0, *cumulative], cumulative, strict=False)] == [
        sums[total] for total in range(size * (size + 1) // 2 + 1)
    ]


@settings(max_examples=80, deadline=None)
@given(values=LOG_RATIOS)
def test_p_is_the_share_of_all_sign_patterns(values: list[float]) -> None:
    far = abs(math.fsum(values)) - 1e-9
    patterns = list(product((1, -1), repeat=len(values)))
    hits = sum(
        abs(math.fsum(s * v for s, v in zip(signs, values, strict=True))) >= far
        for signs in patterns
    )
    assert sign_flip_p(values) == hits / len(patterns)


def test_a_p_of_many_pairs_is_sampled_from_the_seed() -> None:
    chance = random.Random(7)
    values = [chance.gauss(0.25, 1) for _ in range(40)]
    sampled = sign_flip_p(values, seed=3)
    assert sampled == sign_flip_p(values, seed=3)
    spread = math.sqrt(math.fsum(v * v for v in values))
    normal = math.erfc(abs(math.fsum(values)) / spread / math.sqrt(2))
    assert sampled == pytest.approx(normal, abs=0.02)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_pairs_needed() -> None:
    worth = math.log(1.05)
    noisy = [0.30, -0.10, 0.25, 0.05, 0.20, -0.05]
    assert pairs_needed([0.2], worth=worth) == 6
    assert pairs_needed([0.2] * 6, worth=worth) == 6
    few, many = pairs_needed(noisy, worth=worth), pairs_needed([v * 3 for v in noisy], worth=worth)
    assert few == many  # the effect grew with the spread
    assert few is not None
    assert 6 < few < 60
    to_the_margin = hodges_lehmann(noisy) - worth + 1e-6
    assert pairs_needed([v - to_the_margin for v in noisy], worth=worth) is None
    with_holm = pairs_needed(noisy, worth=worth, tests=10)
    assert with_holm is not None
    assert with_holm > few


def ar_run_noise(chance: random.Random, pairs: int, spread: float) -> list[float]:
    """Log ratios of pairs of neighbouring runs on a host whose speed drifts (AR(1)) and stalls.

    Heavy tails on purpose: one run in ten meets a stall of a third.
    """
    level, ratios = 0.0, []
    for _ in range(pairs):
        halves = []
        for _ in range(2):
            level = 0.7 * level + chance.gauss(0, spread)
            stall = math.log(4 / 3) if chance.random() < 0.1 else 0.0
            halves.append(level + chance.gauss(0, spread) - stall)
        # The order inside a pair is a coin toss, as schedule_blocks makes it.
        sign = chance.choice((1, -1))
        ratios.append(sign * (halves[1] - halves[0]))
    return ratios


def covered(samples: Sequence[Sequence[float]], truth: float) -> float:
    """The share of samples whose interval holds the truth."""
    hits = 0
    for sample in samples:
        interval = signed_rank_interval(sample)
        assert interval is not None
        hits += interval.low <= truth <= interval.high
    return hits / len(samples)


@each_row("pairs", [6, 8, 12])
def test_intervals_cover_the_truth_as_often_as_they_say(pairs: int) -> None:
    chance = random.Random(pairs)
    truth = math.log(1.3)
    samples = [
        [truth + d for d in ar_run_noise(chance, pairs, 0.05)] for _ in range(2000)
    ]  # fmt: skip
    interval = signed_rank_interval(samples[0])
    assert interval is not None
    share = covered(samples, truth)
    assert share >= 0.93
    # Four standard errors of the share around the level that is claimed.
    assert share == pytest.approx(
        interval.level, abs=4 * math.sqrt(interval.level * (1 - interval.level) / 2000)
    )
