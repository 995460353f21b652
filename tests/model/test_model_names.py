"""Names that are forgotten, and cold files that are shared, against a simulated cache."""

import random
from collections import OrderedDict
from dataclasses import replace

import pytest
from rows import each_row
from test_model_simulated import MEBIBYTE, inputs

from nginx_tune.decide.model.cache import PopularityClass, cold_overlap, zipf_classes
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import BlockingInputs, CacheAge, usable_objects
from nginx_tune.decide.model.names import (
    cold_name_ratio,
    least_name_reads,
    name_reads,
    shared_descriptor_seconds,
)


def simulate_names(
    files: int, resident: int, classes: tuple[PopularityClass, ...]
) -> tuple[float, float]:
    """Share of requests that read an inode's block, and chance that two meet at a cold file.

    One LRU list of files and blocks of sixteen inodes; a file that is there needs no inode.
    """
    rng = random.Random(67)
    weights = [c.probability_each for c in classes for _ in range(round(c.objects))]
    block_of = [number // 16 for number in range(files)]
    rng.shuffle(block_of)
    cache: OrderedDict[tuple[str, int], None] = OrderedDict()
    held = reads = 0
    overlap, requests = 0.0, 60_000
    for number, item in enumerate(rng.choices(range(files), weights=weights, k=requests)):
        counted = number >= requests // 2
        if ("file", item) not in cache:
            block = ("block", block_of[item])
            reads += counted and block not in cache
            cache[block] = None
            cache.move_to_end(block)
            overlap += counted * weights[item]
            held += 1
        cache["file", item] = None
        cache.move_to_end(("file", item))
        while held > resident:
            held -= cache.popitem(last=False)[0][0] == "file"
    return reads / (requests / 2), overlap / (requests / 2)


@each_row("resident", [20, 100, 500])
@each_row("exponent", [0.0, 0.6])
def test_names_are_forgotten_and_cold_files_shared_as_simulated(
    resident: int, exponent: float
) -> None:
    files = 2000
    classes = zipf_classes(float(files), exponent)
    bytes_each = 64 * MEBIBYTE  # beside which an inode takes nothing
    i = inputs(
        ModelDisk(0.008, 120e6, heads=1, spread=0.6),
        classes=classes,
        object_bytes=float(bytes_each),
        dataset_bytes=float(files * bytes_each),
        page_cache_bytes=resident * bytes_each / 0.9,
    )
    cold_names, overlap = simulate_names(files, resident, classes)
    assert cold_name_ratio(i) == pytest.approx(cold_names, rel=0.2, abs=0.02)
    assert cold_overlap(classes, usable_objects(i)) == pytest.approx(overlap, rel=0.1)


def simulate_directories(files: int, in_each: int, resident: int) -> float:
    """Blocks read for a name: the inode's, and of a forgotten directory its entries and its inode.

    Files are asked for evenly; a directory is remembered as long as one of its files is there.
    """
    rng = random.Random(73)
    cache: OrderedDict[tuple[str, int], None] = OrderedDict()
    there: dict[int, int] = {}
    reads, requests = 0, 40_000
    inode_of = list(range(files + files // in_each))
    rng.shuffle(inode_of)
    blocks: dict[int, int] = {}

    def look_up(inode: int) -> int:
        return 0 if blocks.get(inode_of[inode] // 16) else 1

    for number in range(requests):
        item = rng.randrange(files)
        directory = item // in_each
        if ("file", item) not in cache:
            found = look_up(item)
            if not there.get(directory):
                found += 1 + look_up(files + directory)
            reads += found if number >= requests // 2 else 0
            there[directory] = there.get(directory, 0) + 1
            block = inode_of[item] // 16
            blocks[block] = blocks.get(block, 0) + 1
        cache["file", item] = None
        cache.move_to_end(("file", item))
        while len(cache) > resident:
            gone = cache.popitem(last=False)[0][1]
            there[gone // in_each] -= 1
            blocks[inode_of[gone] // 16] -= 1
    return reads / (requests / 2)


@each_row("in_each", [1, 4, 50])
@each_row("resident", [20, 200])
def test_forgotten_directories_are_read_as_simulated(in_each: int, resident: int) -> None:
    files = 4000
    each = 64 * MEBIBYTE
    i = inputs(
        ModelDisk(0.008, 120e6, heads=1, spread=0.6),
        classes=zipf_classes(float(files), 0.0),
        object_bytes=float(each),
        dataset_bytes=float(files * each),
        page_cache_bytes=resident * each / 0.9,
        directories=files / in_each,
    )
    simulated = simulate_directories(files, in_each, resident)
    assert name_reads(i) == pytest.approx(simulated, rel=0.25, abs=0.05)
    assert name_reads(replace(i, directories=None)) == cold_name_ratio(i)


def test_names_that_somebody_has_looked_up_are_not_read() -> None:
    i = inputs(ModelDisk(0.008, 120e6, heads=1, spread=0.6), directories=1000.0)
    assert name_reads(i) > 0
    assert name_reads(replace(i, names_take_memory=False)) == 0
    assert 0 < least_name_reads(i) < name_reads(i)
    assert least_name_reads(replace(i, directories=None)) == 0


def test_an_empty_cache_has_forgotten_all_names() -> None:
    """Scenario cold-open: the data fits, and nobody has asked for any of it yet."""
    i = inputs(
        ModelDisk(0.008, 120e6, heads=1, spread=0.6),
        page_cache_bytes=2000 * MEBIBYTE,
        directories=1000.0,
    )
    assert name_reads(i) == 0
    assert name_reads(replace(i, asked=CacheAge(10.0))) > 2.5
    assert replace(i, asked=CacheAge(10.0, once=True)).miss_ratio == 1
    assert name_reads(replace(i, asked=CacheAge(10.0, began_full=True))) == 0


def simulate_shared_readers(i: BlockingInputs, transfers: int) -> float:
    """Mean time a transfer loses: each turn but the first positions again when it meets another.

    Every reader goes on and on, at one speed, through files chosen evenly; half are in memory.
    """
    rng = random.Random(71)
    files = int(i.objects)
    lost = 0.0
    for _ in range(40_000):
        mine = rng.randrange(files)
        if rng.random() < usable_objects(i) / files:
            continue
        met = sum(rng.randrange(files) == mine for _ in range(transfers - 1))
        lost += met * (i.turns_per_miss - 1) * i.disk.latency_seconds
    return lost / 40_000


@each_row("transfers", [4, 20])
def test_readers_of_one_cold_file_lose_as_simulated(transfers: int) -> None:
    i = inputs(
        ModelDisk(0.008, 120e6, heads=1, spread=0.6),
        classes=zipf_classes(100.0, 0.0),
        dataset_bytes=100.0 * 4 * MEBIBYTE,
        object_bytes=4.0 * MEBIBYTE,
        page_cache_bytes=50.0 * 4 * MEBIBYTE / 0.9,
        turn_bytes=256.0 * 1024,
    )
    simulated = simulate_shared_readers(i, transfers)
    assert shared_descriptor_seconds(i, float(transfers)) == pytest.approx(simulated, rel=0.25)
    assert shared_descriptor_seconds(i, 1.0) == 0.0
    assert shared_descriptor_seconds(replace(i, object_bytes=1000.0), float(transfers)) == 0.0
