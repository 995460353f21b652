"""The verdict on recorded blocks of a real nginx that were all alike, and with a true 20 %.

``benchmarks/verdict_errors.py`` does the same for every metric with thousands of experiments.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dealing import deal, deal_neighbours, outcome, read_recorded, values_of
from rows import each_row

RECORDED = read_recorded()
METRICS = ("hot.requests_per_second", "hot.mean", "memory.p50", "server.cpu_seconds_per_request")


def test_enough_was_recorded() -> None:
    assert len(RECORDED["blocks"]) >= 24
    assert all(values_of(RECORDED, metric) for metric in METRICS)


@each_row("metric", METRICS)
@each_row("how", [deal, deal_neighbours])
def test_equal_arms_have_a_winner_in_at_most_five_per_cent(metric: str, how: Callable) -> None:
    chance = random.Random(7)
    values = values_of(RECORDED, metric)
    seen = [outcome(how(values, chance, pairs=chance.choice((6, 8, 12)))) for _ in range(600)]
    assert seen.count("better") + seen.count("worse") <= 30


@each_row(("metric", "pairs"), [("hot.requests_per_second", 6)])
def test_a_true_twenty_per_cent_is_found(metric: str, pairs: int) -> None:
    chance = random.Random(8)
    values = values_of(RECORDED, metric)
    seen = [outcome(deal(values, chance, pairs=pairs, ratio=1.2)) for _ in range(300)]
    assert seen.count("better") >= 240
    assert seen.count("worse") == 0
