"""The stated range of hits against simulated page caches, on data drawn at random."""

import random
from dataclasses import replace

import pytest
from page_cache import LinuxLists, Lru, hits
from rows import each_row
from tiers import draws

from nginx_tune.decide.model.cache import hit_ratio_after, page_cache_hit_ratio, zipf_classes
from nginx_tune.decide.model.disk import TYPICAL
from nginx_tune.decide.model.inputs import BlockingInputs, CacheAge, hit_range

PAGE = 4096
DRAWN = draws(20, 40)


def drawn(seed: int) -> tuple[BlockingInputs, list[int], float]:
    """A page cache, the pieces of each file that is asked for, and how skewed that is."""
    rng = random.Random(seed)
    files, exponent = round(10 ** rng.uniform(2.3, 3.2)), rng.uniform(0.0, 1.3)
    several = rng.random() < 0.5
    sizes = [rng.choice([1, 1, 2, 4, 12]) if several else 3 for _ in range(files)]
    piece = rng.choice([PAGE, 16 * PAGE, 128 * PAGE])
    cache = rng.uniform(0.03, 0.95) * sum(sizes) * piece
    i = BlockingInputs(
        workers=1,
        page_cache_bytes=cache,
        dataset_bytes=float(sum(sizes) * piece),
        object_bytes=sum(sizes) * piece / files,
        classes=zipf_classes(float(files), exponent),
        disk=TYPICAL["hdd"],
        read_bytes=512.0 * 1024,
        page_waste_bytes=0.0,
        names_take_memory=False,
    )
    return i, sizes, exponent


@pytest.mark.long
@each_row("kind", [Lru, LinuxLists])
def test_nine_in_ten_simulated_caches_lie_in_the_stated_range(kind: type[Lru | LinuxLists]) -> None:
    """Of the whole limit, as a cache alone would have, and of what others leave of it."""
    missed = []
    rng = random.Random(3)
    for seed in range(DRAWN):
        i, sizes, exponent = drawn(seed)
        piece = i.dataset_bytes / sum(sizes)
        room = rng.uniform(0.85, 1.0) * i.page_cache_bytes
        seen = hits(kind(max(1, int(room / piece))), exponent, sizes, 20 * len(sizes), seed=seed)
        low, high = hit_range(i)
        assert high <= 4 * max(low, 0.02), "a range that says something"
        if not low <= seen <= high:
            missed.append((seed, low, seen, high))
    assert len(missed) <= DRAWN // 10, missed


@pytest.mark.long
@each_row("exponent", [0.0, 0.5, 0.8, 1.0, 1.2][:: draws(2, 1)])
@each_row("share", [0.05, 0.2, 0.5, 0.85])
def test_the_middle_is_that_of_linux_lists(exponent: float, share: float) -> None:
    files = 1000
    seen = hits(LinuxLists(round(files * share)), exponent, [1] * files, 40 * files)
    said = page_cache_hit_ratio(zipf_classes(float(files), exponent), files * share)
    assert said == pytest.approx(seen, abs=0.025)


@each_row("exponent", [0.0, 0.8, 1.1])
@each_row("requests", [100, 400, 3000])
@each_row("full", [True, False])
def test_a_cache_learns_what_is_popular_as_simulated(
    exponent: float, requests: int, *, full: bool
) -> None:
    """Hits in a short window after so many requests to a cache full at random, or empty."""
    files, room, seen = 1000, 450, 0.0
    classes = zipf_classes(float(files), exponent)
    runs = draws(15, 30)
    for seed in range(runs):
        rng = random.Random(seed)
        cache = Lru(room)
        if full:
            for file in rng.sample(range(files), room):
                cache.ask((file, 0))
        weights = [(rank + 1) ** -exponent for rank in range(files)]
        asked = rng.choices(range(files), weights, k=requests + 200)
        there = [cache.ask((file, 0)) for file in asked]
        seen += sum(there[requests - 50 :]) / len(there[requests - 50 :]) / runs
    said = hit_ratio_after(classes, float(room), requests + 75.0, began_full=full)
    assert said == pytest.approx(seen, abs=0.04)


def test_a_measured_cell_that_had_not_learnt_yet() -> None:
    """Zipf 1.1, data twice the memory, 200-KB files on flash, in blocks of some seconds: measured
    0.862, where an even popularity says 0.464 and the long run 0.92."""
    i = replace(
        drawn(1)[0],
        classes=zipf_classes(2600.0, 1.1),
        dataset_bytes=2600 * 200e3,
        object_bytes=200e3,
        page_cache_bytes=0.5155 * 2600 * 200e3,
    )
    even = replace(i, classes=zipf_classes(2600.0, 0.0))
    assert 1 - even.miss_ratio == pytest.approx(0.464, abs=0.002)
    assert 1 - i.miss_ratio == pytest.approx(0.92, abs=0.01)
    short = replace(i, asked=CacheAge(1000.0, began_full=True))
    low, high = hit_range(short)
    assert low < 0.862 < high


def test_what_is_asked_for_once_is_never_there() -> None:
    i = replace(drawn(1)[0], asked=CacheAge(once=True))
    assert i.miss_ratio == 1.0
    assert replace(i, page_cache_bytes=2 * i.dataset_bytes).miss_ratio == 0.0


def test_names_that_are_charged_elsewhere_leave_more_room() -> None:
    """60,000 cold names of one page each in 96 MiB: measured 0.368; with their names 0.28."""
    i = replace(
        drawn(1)[0],
        classes=zipf_classes(60_000.0, 0.0),
        dataset_bytes=60_000.0 * PAGE,
        object_bytes=float(PAGE),
        page_cache_bytes=96.0 * 2**20,
    )
    low, high = hit_range(i)
    assert low < 0.368 < high
    assert 1 - i.miss_ratio == pytest.approx(0.368, rel=0.02)
    assert 1 - replace(i, names_take_memory=True).miss_ratio < 0.3
