import random
from dataclasses import replace

import pytest
from rows import each_row

from nginx_tune.decide.model.cache import objects_asked, zipf_classes
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import BlockingInputs, CacheAge, since_empty

FILES = 1088
EMPTY = BlockingInputs(
    workers=1,
    page_cache_bytes=192 << 20,
    dataset_bytes=FILES * 77_377.0,
    object_bytes=77_377.0,
    classes=zipf_classes(float(FILES), 0.0),
    disk=ModelDisk(0.02, 300e6, heads=7, spread=0.3),
    read_bytes=524_288.0,
    concurrency=160,
    cold_concurrency=160,
    cold_by_popularity=True,
    since_seconds=2.0,
)
"""drawn-4201-012: memory holds all of the data, and has none of it when the clients come."""


def test_data_that_would_fit_is_not_there_while_clients_wait_for_it() -> None:
    assert EMPTY.miss_ratio == 0.0
    filling = since_empty(EMPTY)
    # Of 2 s one read takes 20.3 ms: 99 files of 1088 are there.
    assert filling.miss_ratio == pytest.approx(1 - 99 / FILES, abs=0.01)
    later = since_empty(replace(EMPTY, since_seconds=10.0))
    assert later.miss_ratio < filling.miss_ratio
    assert since_empty(replace(EMPTY, since_seconds=1e4)).asked.requests is None


@each_row("exponent", [0.0, 0.8, 1.2])
def test_requests_are_as_many_as_a_simulation_needs_for_so_many_reads(exponent: float) -> None:
    classes = zipf_classes(float(FILES), exponent)
    filling = since_empty(replace(EMPTY, classes=classes, since_seconds=6.0))
    assert filling.asked.requests is not None
    reads = objects_asked(classes, filling.asked.requests)
    assert reads == pytest.approx(6.0 / EMPTY.disk.read_seconds(77_377.0), rel=1e-6)
    rng = random.Random(7)
    population = range(len(classes))
    weights = [c.objects * c.probability_each for c in classes]
    counts = []
    for _ in range(40):
        seen: set[tuple[int, int]] = set()
        requests = 0
        while len(seen) < reads:
            requests += 1
            (group,) = rng.choices(population, weights)
            seen.add((group, rng.randrange(round(classes[group].objects))))
        counts.append(requests)
    assert sum(counts) / len(counts) == pytest.approx(filling.asked.requests, rel=0.08)


def test_a_slow_way_fills_the_page_cache_as_slowly() -> None:
    link = since_empty(replace(EMPTY, link_bytes_per_second=1e6))
    assert link.asked.requests == pytest.approx(2e6 / 77_377, rel=0.05)


def test_where_requests_are_counted_or_come_by_themselves_nothing_changes() -> None:
    counted = replace(EMPTY, asked=CacheAge(requests=50.0))
    assert since_empty(counted) is counted
    rated = replace(EMPTY, rate_per_second=10.0)
    assert since_empty(rated) is rated
    long_since = replace(EMPTY, since_seconds=None)
    assert since_empty(long_since) is long_since
