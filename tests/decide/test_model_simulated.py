"""The model's queues against the simulator, in situations that no constant was fitted to."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from simulation import Clock, Station, gamma, mean, poisson, quantile

from nginx_tune.decide.model_blocking import (
    BlockingInputs,
    predict,
    predict_measured,
    usable_objects,
)
from nginx_tune.decide.model_cache import (
    PopularityClass,
    cold_overlap,
    curve_classes,
    hit_ratio,
    zipf_classes,
)
from nginx_tune.decide.model_ceiling import find_ceiling
from nginx_tune.decide.model_disk import DiskModel, disk_model
from nginx_tune.decide.model_names import cold_name_ratio
from nginx_tune.decide.model_waiting import Stalls, loop_wait, peak_under_way
from nginx_tune.documents.curve import Curve, CurvePoint
from nginx_tune.documents.facts import Disk

MEBIBYTE = 1 << 20


def inputs(disk: DiskModel, **other: object) -> BlockingInputs:
    parts: dict[str, object] = {
        "workers": 1,
        "page_cache_bytes": 500 * MEBIBYTE,
        "dataset_bytes": 1000.0 * MEBIBYTE,
        "object_bytes": float(MEBIBYTE),
        "classes": zipf_classes(1000.0, 0.0),
        "disk": disk,
        "read_bytes": 512.0 * 1024,
    }
    return BlockingInputs(**{**parts, **other})  # type: ignore[arg-type]


def simulate_victims(blocked: float, hold: float, spread: float, workers: int) -> list[float]:
    """Waits of events that need no disk, on loops that stand in reads this share of the time."""
    clock, rng = Clock(), random.Random(31)
    loops = [Station(clock, 1) for _ in range(workers)]
    waits: list[float] = []

    def victim() -> None:
        since, loop = clock.now, rng.choice(loops)

        def served(done: Callable[[], None]) -> None:
            waits.append(clock.now - since)
            done()

        loop.take(served)

    poisson(
        clock,
        rng,
        workers * blocked / hold,
        lambda: rng.choice(loops).work(gamma(rng, hold, spread), lambda: None),
    )
    poisson(clock, rng, 20.0 / hold, victim)
    clock.run(2000 * hold)
    return waits


@pytest.mark.parametrize(("blocked", "spread"), [(0.05, 0.6), (0.3, 0.6), (0.2, 1.5)])
@pytest.mark.parametrize("workers", [1, 4])
def test_victims_of_a_measured_share_wait_as_simulated(
    blocked: float, spread: float, workers: int
) -> None:
    disk = DiskModel(0.005, 100e6, heads=workers, spread=spread)
    p = predict_measured(inputs(disk, workers=workers, rate_per_second=1.0), blocked)
    waits = simulate_victims(blocked, p.hold_seconds, spread, workers)
    assert p.wait_off_seconds == pytest.approx(mean(waits), rel=0.25)
    tail = p.memory_p99_off_seconds - p.memory_p99_on_seconds
    assert tail == pytest.approx(quantile(waits, 0.99), rel=0.45)


def simulate_bytes(disk: DiskModel, link: float, miss: float, clients: int) -> float:
    """Bytes a second of clients that ask on and on: a miss takes the disk, all take the link."""
    clock, rng = Clock(), random.Random(37)
    heads, wire = Station(clock, int(disk.heads)), Station(clock, 1)
    window, sent = 512.0 * 1024, 0.0

    def ask() -> None:
        def transfer() -> None:
            wire.work(window / link, finish)

        if rng.random() < miss:
            heads.work(gamma(rng, disk.read_seconds(window), disk.spread), transfer)
        else:
            transfer()

    def finish() -> None:
        nonlocal sent
        sent += window
        ask()

    for _ in range(clients):
        ask()
    clock.run(40)
    return sent / 40


@pytest.mark.parametrize(
    ("link", "name"), [(1.25e9, "the disks"), (12.5e6, "the network link")], ids=["10G", "100M"]
)
@pytest.mark.parametrize("heads", [1, 8])
def test_the_ceiling_is_what_a_simulated_server_comes_to(
    link: float, name: str, heads: int
) -> None:
    disk = DiskModel(0.008, 120e6, heads=heads, spread=0.6)
    i = inputs(disk, link_bytes_per_second=link, concurrency=100.0)
    p = predict(i)
    ceiling = find_ceiling(i, p)
    assert ceiling.name == name
    simulated = simulate_bytes(disk, link, 1 - p.hit_ratio, 100)
    assert ceiling.bytes_per_second == pytest.approx(simulated, rel=0.06)


def simulate_curve(curve: list[tuple[float, float]], capacity: float) -> float:
    """Hit ratio of an LRU list under the popularity of a learnt curve, objects of one byte."""
    rng = random.Random(41)
    cache: dict[int, None] = {}
    hits = total = 0
    edges = [(0.0, 0.0), *[(share, size) for share, size in curve]]
    for number in range(60_000):
        chance = rng.random()
        low, high = next((a, b) for a, b in pairwise(edges) if chance <= b[0])
        item = rng.randrange(int(low[1]), int(high[1]))
        if number >= 30_000:
            total += 1
            hits += item in cache
        cache.pop(item, None)
        cache[item] = None
        if len(cache) > capacity:
            del cache[next(iter(cache))]
    return hits / total


@pytest.mark.parametrize("capacity", [50, 300, 1500])
def test_the_hit_ratio_of_a_learnt_curve_is_that_of_a_simulated_cache(capacity: int) -> None:
    """50, 90 and 99 % of the requests on ever more bytes, as learn says it."""
    curve = [(0.5, 40.0), (0.9, 400.0), (0.99, 2000.0), (1.0, 5000.0)]
    classes = curve_classes(curve, 1.0, 5000.0)
    assert hit_ratio(classes, float(capacity)) == pytest.approx(
        simulate_curve(curve, capacity), abs=0.02
    )


def simulate_loops(
    disk: DiskModel, workers: int, objects_per_second: float, reads: int, turns: int
) -> float:
    """Share of time that loops stand in reads of one disk that positions where it has to.

    A loop makes a file's reads one after the other, and between them those of its other
    transfers; each read comes from the disk in some turns, between which other loops' come.
    """
    clock, rng = Clock(), random.Random(43)
    head = Station(clock, 1)
    loops = [Station(clock, 1) for _ in range(workers)]
    last, arrived, blocked = 0, 0, 0.0
    transfer = WINDOW / turns / disk.bytes_per_second

    def turn(number: int, left: int, then: Callable[[], None]) -> None:
        def on_disk(free: Callable[[], None]) -> None:
            nonlocal last
            start = 0.0 if last == number else gamma(rng, disk.latency_seconds, disk.spread)
            last = number

            def finish() -> None:
                free()
                if left > 1:
                    turn(number, left - 1, then)
                else:
                    then()

            clock.after(start + transfer, finish)

        head.take(on_disk)

    def read_on(number: int, loop: Station, left: int) -> None:
        def on_loop(done: Callable[[], None]) -> None:
            since = clock.now

            def finish() -> None:
                nonlocal blocked
                blocked += clock.now - since
                done()
                if left > 1:
                    read_on(number, loop, left - 1)

            turn(number, turns, finish)

        loop.take(on_loop)

    def arrive() -> None:
        nonlocal arrived
        arrived += 1
        read_on(arrived, rng.choice(loops), reads)

    poisson(clock, rng, objects_per_second, arrive)
    clock.run(300)
    return blocked / 300 / workers


WINDOW = 512.0 * 1024


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(
    ("reads", "turns", "rate"),
    [(1, 1, 40.0), (2, 1, 20.0), (8, 1, 8.0), (2, 2, 15.0), (8, 2, 3.0), (2, 4, 6.0)],
)
def test_loops_stand_in_reads_as_long_as_simulated(
    workers: int, reads: int, turns: int, rate: float
) -> None:
    """Files of one to eight reads in one to four turns, at rates that one head bears."""
    disk = DiskModel(0.008, 160e6, heads=1, spread=0.3)
    i = inputs(
        disk,
        workers=workers,
        page_cache_bytes=1.0,
        object_bytes=reads * WINDOW,
        turn_bytes=WINDOW / turns,
        rate_per_second=rate,
    )
    simulated = simulate_loops(disk, workers, rate, reads, turns)
    assert predict(i).blocked_ratio == pytest.approx(simulated, rel=0.25)


def simulate_stalls(
    stalls: Stalls, reads_per_second: float, read: float
) -> tuple[float, list[float]]:
    """Share of time that one loop stands, and waits of events on it, where the disk stalls."""
    clock, rng = Clock(), random.Random(53)
    loop = Station(clock, 1)
    stands_until, waits, blocked = 0.0, [], 0.0
    between = stalls.seconds / stalls.ratio - stalls.seconds

    def stall() -> None:
        nonlocal stands_until
        stands_until = clock.now + stalls.seconds
        clock.after(stalls.seconds + rng.expovariate(1 / between), stall)

    def on_loop(done: Callable[[], None]) -> None:
        since, left = clock.now, gamma(rng, read, stalls.spread_between)

        def look() -> None:
            """Work goes on in small steps outside of stalls."""
            nonlocal left, blocked
            if clock.now < stands_until:
                clock.after(stands_until - clock.now, look)
            elif left > 0:
                step = min(left, read / 4)
                left -= step
                clock.after(step, look)
            else:
                blocked += clock.now - since
                done()

        look()

    def victim() -> None:
        since = clock.now

        def served(done: Callable[[], None]) -> None:
            waits.append(clock.now - since)
            done()

        loop.take(served)

    clock.after(rng.expovariate(1 / between), stall)
    poisson(clock, rng, reads_per_second, lambda: loop.take(on_loop))
    poisson(clock, rng, 50.0, victim)
    clock.run(1500)
    return blocked / 1500, waits


@pytest.mark.parametrize(
    ("ratio", "seconds", "rate"), [(0.2, 0.3, 4.0), (0.05, 0.1, 30.0), (0.1, 1.0, 1.0)]
)
def test_a_loop_stands_through_stalls_as_simulated(
    ratio: float, seconds: float, rate: float
) -> None:
    """Few reads a second or many in each stall, and rare stalls."""
    stalls, read = Stalls(ratio, seconds, 0.5), 0.0006
    loop = loop_wait(rate * read, read, 0.5, stalls=stalls, reads_per_second=rate)
    blocked, waits = simulate_stalls(stalls, rate, read)
    assert loop.blocked_ratio == pytest.approx(blocked, rel=0.15)
    assert loop.mean_seconds == pytest.approx(mean(waits), rel=0.2)
    assert loop.p99_seconds == pytest.approx(quantile(waits, 0.99), rel=0.2, abs=read)


def test_a_measured_disk_that_stalls_blocks_loops_for_most_of_its_stalls() -> None:
    """The probe's point: 0.4 ms a read, and all that the mean has more is 0.25 s long."""
    moving, stalled = 0.0004, 0.2
    point = CurvePoint(
        depth=1,
        reads_per_second=(1 - stalled) / moving,
        p50_seconds=moving,
        p99_seconds=1.05 * moving,
        p999_seconds=1.1 * moving,
        max_seconds=0.25,
    )
    curve = Curve(read_bytes=131_072, points=[point], sequential_bytes_per_second=400e6)
    disk = disk_model(Disk(name="d", class_="ssd", curve=curve))
    assert disk.stalls is not None
    assert disk.stalls.ratio == pytest.approx(stalled, rel=0.05)
    assert disk.spread_moving < 0.2 < disk.spread
    small = inputs(disk, object_bytes=131_072.0, page_cache_bytes=1.0, rate_per_second=20.0)
    p = predict(small)
    simulated, _ = simulate_stalls(disk.stalls, 20.0, moving)
    assert p.blocked_ratio == pytest.approx(simulated, rel=0.15)
    assert predict(replace(small, disk=replace(disk, stalls=None))).blocked_ratio < 0.02


def simulate_peak(rate: float, seconds: float, heads: int, stalls: Stalls | None) -> list[int]:
    """Transfers under way at random moments, each taking a head of a disk that may stall."""
    clock, rng = Clock(), random.Random(59)
    disk = Station(clock, heads)
    under_way, seen = 0, []

    def arrive() -> None:
        nonlocal under_way
        under_way += 1
        disk.work(rng.expovariate(1 / seconds), leave)

    def leave() -> None:
        nonlocal under_way
        under_way -= 1

    def stall() -> None:
        for _ in range(heads):
            disk.work(stalls.seconds, lambda: None) if stalls else None
        clock.after(stalls.seconds + rng.expovariate(stalls.per_second), stall) if stalls else None

    if stalls:
        clock.after(1.0, stall)
    poisson(clock, rng, rate, arrive)
    poisson(clock, rng, 100.0, lambda: seen.append(under_way))
    clock.run(600)
    return seen


@pytest.mark.parametrize(
    ("rate", "seconds", "heads", "stalls"),
    [
        (15.0, 0.04, 1, None),
        (30.0, 0.02, 1, None),
        (400.0, 0.01, 8, None),
        (200.0, 0.001, 8, Stalls(0.1, 0.2, 1.0)),
    ],
)
def test_the_peak_is_passed_in_a_thousandth_of_the_time(
    rate: float, seconds: float, heads: int, stalls: Stalls | None
) -> None:
    seen = simulate_peak(rate, seconds, heads, stalls)
    peak = peak_under_way(rate, seconds, float(heads), stalls)
    assert sum(count > peak for count in seen) / len(seen) < 0.003
    assert peak <= 1.5 * quantile([float(count) for count in seen], 0.999) + 2


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


@pytest.mark.parametrize("resident", [20, 100, 500])
@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_names_are_forgotten_and_cold_files_shared_as_simulated(
    resident: int, exponent: float
) -> None:
    files = 2000
    classes = zipf_classes(float(files), exponent)
    bytes_each = 64 * MEBIBYTE  # beside which an inode takes nothing
    i = inputs(
        DiskModel(0.008, 120e6, heads=1, spread=0.6),
        classes=classes,
        object_bytes=float(bytes_each),
        dataset_bytes=float(files * bytes_each),
        page_cache_bytes=resident * bytes_each / 0.9,
    )
    cold_names, overlap = simulate_names(files, resident, classes)
    assert cold_name_ratio(i) == pytest.approx(cold_names, rel=0.2, abs=0.02)
    assert cold_overlap(classes, usable_objects(i)) == pytest.approx(overlap, rel=0.1)
