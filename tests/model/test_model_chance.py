"""How far the time in cold reads is from its mean, against drawn files and misses."""

import math
import random
from dataclasses import replace

import pytest
from rows import each_row
from tiers import draws

from nginx_tune.decide.model.cache import miss_overlap, zipf_classes
from nginx_tune.decide.model.disk import ModelDisk, disks_together
from nginx_tune.decide.model.inputs import (
    BlockingInputs,
    counted_requests,
    hit_range,
    time_factors,
    turn_factors,
    usable_objects,
)
from nginx_tune.decide.model.reads import SizeGroup

SLOW = ModelDisk(8e-3, 120e6, heads=1, spread=0.0)
MANY_SMALL = (SizeGroup(4 / 7, 0.001), SizeGroup(2 / 7, 0.02), SizeGroup(1 / 7, 6.956))


def inputs(
    files: int, exponent: float, rate: float, sizes: tuple[SizeGroup, ...]
) -> BlockingInputs:
    mean_bytes = 2e6
    return BlockingInputs(
        workers=2,
        page_cache_bytes=0.4 * files * mean_bytes,
        dataset_bytes=files * mean_bytes,
        object_bytes=mean_bytes,
        classes=zipf_classes(files, exponent),
        disk=SLOW,
        read_bytes=128 * 1024,
        window_bytes=128 * 1024,
        sendfile_bytes=2**31,
        clients_keep_pace=True,
        rate_per_second=rate,
        sizes=sizes,
    )


def drawn_times(i: BlockingInputs, chance: random.Random, runs: int) -> list[float]:
    """Time in reads of each run over the mean of all: files in another order, and new misses."""
    missed = missed_weights(i)
    counted = counted_requests(i)
    groups = i.sizes or (SizeGroup(1.0, 1.0),)
    sizes = [g.over_mean * i.object_bytes for g in groups for _ in range(round(g.share * 7))]
    times = [
        SLOW.latency_seconds * max(1.0, size / i.longest_hold_bytes) + size / SLOW.bytes_per_second
        for size in (sizes * len(missed))[: len(missed)]
    ]
    sums = []
    for _ in range(runs):
        chance.shuffle(times)
        number = poisson(chance, counted * sum(missed))
        sums.append(sum(chance.choices(times, missed, k=number)))
    mean = sum(sums) / len(sums)
    return [each / mean for each in sums]


def poisson(chance: random.Random, mean: float) -> int:
    number, time = 0, chance.expovariate(1)
    while time < mean:
        number, time = number + 1, time + chance.expovariate(1)
    return number


def missed_weights(i: BlockingInputs) -> list[float]:
    """Of each file the chance that a request is for it, and does not find it (Che's rule)."""
    each = [c.probability_each for c in i.classes for _ in range(round(c.objects))]
    low, high = 0.0, 1e9
    for _ in range(100):
        time = (low + high) / 2
        held = sum(1 - math.exp(-p * time) for p in each)
        low, high = (time, high) if held < usable_objects(i) else (low, time)
    return [p * math.exp(-p * low) for p in each]


@pytest.mark.long
@each_row("files", [28, 91, 399, 5600])
@each_row("exponent", [0.0, 0.7, 1.1])
@each_row("sizes", [(), MANY_SMALL], ids=["one size", "few large"])
def test_nine_in_ten_runs_are_within(
    files: int, exponent: float, sizes: tuple[SizeGroup, ...]
) -> None:
    i = inputs(files, exponent, 4.0, sizes)
    less, more = time_factors(i)
    drawn = drawn_times(i, random.Random(files), 300 if files < 1000 else draws(150, 300))
    inside = sum(less <= each <= more for each in drawn) / len(drawn)
    assert 0.82 <= inside <= 0.98, (less, more)


def test_the_few_reads_of_a_slow_disk_are_left_to_chance() -> None:
    """One miss in 200 takes a hundred times as long: a third of the time, by a handful of reads."""
    fast = ModelDisk(80e-6, 12e9, heads=8, spread=0.0)
    both = disks_together([SLOW, fast], [1.0, 199.0])
    i = replace(inputs(4000, 0.0, 100.0, ()), disk=both, object_bytes=8192.0)
    i = replace(i, dataset_bytes=4000 * 8192.0, page_cache_bytes=0.4 * 4000 * 8192.0)
    less, more = time_factors(i)
    chance, counted = random.Random(7), 1000.0 * sum(missed_weights(i))
    each = [disk.read_seconds(8192.0) for disk in (SLOW, fast)]
    drawn = [
        each[0] * poisson(chance, counted / 200) + each[1] * poisson(chance, counted * 199 / 200)
        for _ in range(400)
    ]
    mean = counted * both.read_seconds(8192.0)
    inside = sum(less <= one / mean <= more for one in drawn) / len(drawn)
    assert 0.82 <= inside <= 0.98, (less, more)
    assert more > 1.3


@each_row("exponent", [0.0, 0.7, 1.1])
@each_row("rate", [4.0, 40.0])
def test_nine_in_ten_runs_wait_behind_turns_as_said(exponent: float, rate: float) -> None:
    """Wait goes by the squares of the sizes that were asked for: files in another order each."""
    i = inputs(56, exponent, rate, MANY_SMALL)
    less, more = turn_factors(i)
    chance = random.Random(11)
    weights = [c.probability_each for c in i.classes for _ in range(round(c.objects))]
    sizes = [g.over_mean for g in MANY_SMALL for _ in range(round(g.share * len(weights)))]
    mean = sum(size**2 for size in sizes) / len(sizes) * counted_requests(i)
    inside = 0
    for _ in range(400):
        chance.shuffle(sizes)
        asked = chance.choices(sizes, weights, k=poisson(chance, counted_requests(i)))
        inside += less <= sum(size**2 for size in asked) / mean <= more
    assert 0.82 <= inside / 400 <= 0.98, (less, more)


def test_turns_of_one_size_are_never_left_to_chance() -> None:
    assert turn_factors(inputs(56, 1.1, 4.0, ())) == (1.0, 1.0)


@each_row("rate", [0.5, 8.0, None])
def test_hits_are_counted_over_as_many_requests_as_come(rate: float | None) -> None:
    """Nine in ten counts of a cache that hits as often as the model says are in its range."""
    i = replace(inputs(64, 0.0, 1.0, ()), rate_per_second=rate)
    low, high = hit_range(i)
    hits, counted = 1 - i.miss_ratio, round(counted_requests(i))
    chance = random.Random(5)
    seen = [sum(chance.random() < hits for _ in range(counted)) / counted for _ in range(400)]
    assert sum(low <= one <= high for one in seen) >= 0.9 * len(seen)
    rarer = hit_range(replace(i, rate_per_second=1.0))
    assert rarer[0] <= low <= high <= rarer[1]


def test_many_misses_of_one_size_are_sure() -> None:
    less, more = time_factors(inputs(100_000, 0.0, 2000.0, ()))
    assert 0.95 < less < 1 < more < 1.05


def test_without_misses_nothing_is_left_to_chance() -> None:
    i = inputs(89, 0.7, 4.0, MANY_SMALL)
    assert time_factors(replace(i, page_cache_bytes=1e12)) == (1.0, 1.0)


def test_misses_are_spread_over_all_files_or_few() -> None:
    assert miss_overlap(zipf_classes(50, 0.0), 10) == pytest.approx(1 / 50)
    skewed = miss_overlap(zipf_classes(50, 1.2), 10)
    assert 1 / 50 < skewed < 0.1
