"""Disks that stand still, and the peak of what is under way, against the simulator."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from rows import each_row
from simulation import Clock, Station, gamma, mean, poisson, quantile
from test_model_simulated import inputs
from tiers import draws

from nginx_tune.decide.model.blocking import predict
from nginx_tune.decide.model.disk import ModelDisk, disk_model, disks_together
from nginx_tune.decide.model.waiting import Stalls, loop_wait, peak_under_way
from nginx_tune.documents.facts import Disk
from nginx_tune.documents.facts_storage import Curve, CurvePoint


def simulate_stalls(
    stalls: Stalls, reads_per_second: float, read: float
) -> tuple[float, list[float]]:
    """Share of time that one loop stands, and waits of events on it, where the disk stalls.

    Reads that are none of the share of the disk that stalls go to one that never does.
    """
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
        meets = rng.random() < stalls.share

        def look() -> None:
            """Work goes on in small steps outside of stalls."""
            nonlocal left, blocked
            if meets and clock.now < stands_until:
                clock.after(stands_until - clock.now, look)
            elif left > 0:
                step = min(left, read / 4)
                left -= step
                clock.after(step, look)
            else:
                blocked += clock.now - since
                done()

        look()

    clock.after(rng.expovariate(1 / between), stall)
    poisson(clock, rng, reads_per_second, lambda: loop.take(on_loop))
    poisson(clock, rng, 50.0, lambda: loop.visit(waits))
    # Of many reads a second a shorter time tells as much.
    seconds = draws(1500 if reads_per_second < 100 else 400, 1500)
    clock.run(seconds)
    return blocked / seconds, waits


@each_row(("ratio", "seconds", "rate"), [(0.2, 0.3, 4.0), (0.05, 0.1, 30.0), (0.1, 1.0, 1.0)])
def test_a_loop_stands_through_stalls_as_simulated(
    ratio: float, seconds: float, rate: float
) -> None:
    """Few reads a second or many in each stall, and rare stalls."""
    stalls, read = Stalls(ratio, seconds, 0.5), 0.0006
    loop = loop_wait(rate * read, read, 0.5, stalls=stalls, reads_per_second=rate)
    blocked, waits = simulate_stalls(stalls, rate, read)
    assert loop.blocked_ratio == pytest.approx(blocked, rel=0.15)
    assert loop.mean_seconds == pytest.approx(mean(waits), rel=0.2)


@pytest.mark.long
@each_row(("share", "rate"), [(0.03, 400.0), (0.25, 120.0), (0.5, 8.0)])
def test_one_disk_of_several_stalls_by_its_own_clock(share: float, rate: float) -> None:
    """drawn-5309-021: one request in thirty meets stalls, which come as often as on any disk."""
    stalls, read = Stalls(1 / 6, 0.2, 0.5, share), 0.0003
    loop = loop_wait(rate * read, read, 0.5, stalls=stalls, reads_per_second=rate)
    blocked, waits = simulate_stalls(stalls, rate, read)
    assert loop.blocked_ratio == pytest.approx(blocked, rel=0.15)
    assert loop.mean_seconds == pytest.approx(mean(waits), rel=0.2)


def test_stalls_of_several_disks_are_met_by_their_own_reads() -> None:
    quiet = ModelDisk(0.0002, 400e6, heads=8, spread=0.5)
    stalling = replace(quiet, latency_seconds=0.0012, stalls=Stalls(1 / 6, 0.2, 0.5))
    both = disks_together([stalling, quiet], [1.0, 9.0]).stalls
    assert both == Stalls(pytest.approx(1 / 6), 0.2, 0.5, pytest.approx(0.1))
    each = disks_together([stalling] * 3, [1.0, 1.0, 2.0])
    assert each.stalls is not None
    assert each.stalls.per_second == pytest.approx(3 / 6 / 0.2)
    assert each.stalls.share == pytest.approx(1 / 3)
    assert each.moving_latency_seconds == pytest.approx(0.001)
    assert disks_together([quiet, quiet]).stalls is None


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
    clock.run(draws(300, 600))
    return seen


@each_row(
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
