"""The verdict on recorded runs of a real nginx that were all alike, and with a true 20 %.

``benchmarks/verdict_errors.py`` does the same for every metric with thousands of experiments.
"""

import random
from collections.abc import Callable

import pytest
from dealing import deal, deal_neighbours, outcome, read_recorded, values_of
from rows import each_row
from tiers import ALL, draws

RECORDED = read_recorded()
METRICS = ("hot.requests_per_second", "hot.mean", "memory.p50", "server.cpu_seconds_per_request")


@pytest.mark.long
@each_row("metric", METRICS)
@each_row("how", [deal, deal_neighbours])
def test_equal_variants_have_a_winner_in_at_most_five_per_cent(metric: str, how: Callable) -> None:
    chance = random.Random(7)
    values = values_of(RECORDED, metric)
    runs = draws(150, 600)
    seen = [outcome(how(values, chance, pairs=chance.choice((6, 8, 12)))) for _ in range(runs)]
    # Of few runs the share is known less well.
    assert seen.count("better") + seen.count("worse") <= (0.05 if ALL else 0.08) * runs
