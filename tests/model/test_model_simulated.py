"""The model's queues against the simulator, in situations that no constant was fitted to."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from rows import each_row
from simulation import Clock, Station, divided, gamma, mean, poisson
from tiers import draws

from nginx_tune.decide.model.blocking import find_ceiling, predict, predict_measured
from nginx_tune.decide.model.cache import curve_classes, hit_ratio, zipf_classes
from nginx_tune.decide.model.disk import ModelDisk, disks_together
from nginx_tune.decide.model.inputs import BlockingInputs

MEBIBYTE = 1 << 20


def inputs(disk: ModelDisk, **other: object) -> BlockingInputs:
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

    poisson(
        clock,
        rng,
        workers * blocked / hold,
        lambda: rng.choice(loops).work(gamma(rng, hold, spread), lambda: None),
    )
    poisson(clock, rng, 20.0 / hold, lambda: rng.choice(loops).visit(waits))
    clock.run(2000 * hold)
    return waits


@pytest.mark.long
def test_victims_wait_for_the_few_reads_of_a_slow_disk_as_simulated() -> None:
    """Cell 14: a mean read of 0.5 ms holds the loop for 7 % of the time, and others wait 3 ms."""
    slow, fast = (
        ModelDisk(0.08, 16e6, heads=1, spread=0.5),
        ModelDisk(0.0002, 400e6, heads=8, spread=0.1),
    )
    both = disks_together([slow, fast], [1.3, 324.0])
    size = 21_116.0
    i = inputs(
        both,
        page_cache_bytes=1e4 * size,
        dataset_bytes=2e4 * size,
        object_bytes=size,
        classes=zipf_classes(2e4, 0.0),
        rate_per_second=325.3,
    )
    p = predict(i)
    clock, rng = Clock(), random.Random(32)
    loop = Station(clock, 1)
    waits: list[float] = []

    for disk, rate in ((slow, 1.3), (fast, 324.0)):
        hold, spread = disk.read_seconds(size), disk.spread

        def read(hold: float = hold, spread: float = spread) -> None:
            loop.work(gamma(rng, hold, spread), lambda: None)

        poisson(clock, rng, rate * (1 - p.hit_ratio), read)
    poisson(clock, rng, 200.0, lambda: loop.visit(waits))
    clock.run(draws(1200, 3000))
    assert p.wait_off_seconds == pytest.approx(mean(waits), rel=0.15)
    assert p.pools_pay


@each_row(("blocked", "spread"), [(0.05, 0.6), (0.3, 0.6), (0.2, 1.5)])
@each_row("workers", [1, 4])
def test_victims_of_a_measured_share_wait_as_simulated(
    blocked: float, spread: float, workers: int
) -> None:
    disk = ModelDisk(0.005, 100e6, heads=workers, spread=spread)
    p = predict_measured(inputs(disk, workers=workers, rate_per_second=1.0), blocked)
    waits = simulate_victims(blocked, p.hold_seconds, spread, workers)
    assert p.wait_off_seconds == pytest.approx(mean(waits), rel=0.25)


def simulate_bytes(disk: ModelDisk, link: float, miss: float, clients: int) -> float:
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


@each_row(
    ("link", "name"), [(1.25e9, "the disks"), (12.5e6, "the network link")], ids=["10G", "100M"]
)
@each_row("heads", [1, 8])
def test_the_ceiling_is_what_a_simulated_server_comes_to(
    link: float, name: str, heads: int
) -> None:
    disk = ModelDisk(0.008, 120e6, heads=heads, spread=0.6)
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


@each_row("capacity", [50, 300, 1500])
def test_the_hit_ratio_of_a_learnt_curve_is_that_of_a_simulated_cache(capacity: int) -> None:
    """50, 90 and 99 % of the requests on ever more bytes, as learn says it."""
    curve = [(0.5, 40.0), (0.9, 400.0), (0.99, 2000.0), (1.0, 5000.0)]
    classes = curve_classes(curve, 1.0, 5000.0)
    assert hit_ratio(classes, float(capacity)) == pytest.approx(
        simulate_curve(curve, capacity), abs=0.02
    )


def simulate_loops(
    disk: ModelDisk, workers: int, objects_per_second: float, reads: int, turns: int
) -> float:
    """Share of time that loops stand in reads of one disk that positions where it has to.

    A loop makes a file's reads one after the other, and between them those of its other
    transfers; each read comes from the disk in some turns, between which other loops' come. Which
    loop has how many of the connections is drawn anew every two seconds, each division as likely.
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

    loop = divided(clock, rng, workers, every=2)

    def arrive() -> None:
        nonlocal arrived
        arrived += 1
        read_on(arrived, loops[loop()], reads)

    poisson(clock, rng, objects_per_second, arrive)
    seconds = draws(150, 300)
    clock.run(seconds)
    return blocked / seconds / workers


WINDOW = 512.0 * 1024


@each_row("workers", [1, 2, 4])
@each_row(
    ("reads", "turns", "rate"),
    [(1, 1, 40.0), (2, 1, 20.0), (8, 1, 8.0), (2, 2, 15.0), (8, 2, 3.0), (2, 4, 6.0)],
)
def test_loops_stand_in_reads_as_long_as_simulated(
    workers: int, reads: int, turns: int, rate: float
) -> None:
    """Files of one to eight reads in one to four turns, at rates that one head bears."""
    disk = ModelDisk(0.008, 160e6, heads=1, spread=0.3)
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
