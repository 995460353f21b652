from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nginx_tune.decide.model_blocking import BlockingInputs, cpu_ratio, predict
from nginx_tune.decide.model_cache import zipf_classes
from nginx_tune.decide.model_disk import TYPICAL, DiskModel, disks_together
from nginx_tune.decide.model_waiting import waiting_p99_seconds, waiting_seconds

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30

LAB = BlockingInputs(
    workers=1,
    page_cache_bytes=192 * MEBIBYTE,
    dataset_bytes=GIBIBYTE,
    object_bytes=4 * MEBIBYTE,
    classes=zipf_classes(256.0, 0.0),
    disk=DiskModel(1 / 400, 80e6, heads=1, spread=0.6),
    read_bytes=512 << 10,
    concurrency=24,
    cold_concurrency=20,
)
"""LAB-NOTES §1."""

SOURCE = BlockingInputs(
    workers=16,
    page_cache_bytes=45e9,
    dataset_bytes=256e9,
    object_bytes=4 * MEBIBYTE,
    classes=zipf_classes(61_000.0, 0.0),
    disk=disks_together([TYPICAL["hdd"]] * 4),
    read_bytes=512 << 10,
    concurrency=250,
    cold_concurrency=200,
    link_bytes_per_second=1.25e9,
)
"""SOURCES A2, A4."""


def simulate_waits(rate: float, mean: float, spread: float, arrivals: int) -> list[float]:
    """Waits in an M/G/1 queue with gamma service times, by Lindley's recursion."""
    rng = random.Random(3)
    shape, wait, waits = 1 / spread**2, 0.0, []
    for _ in range(arrivals):
        waits.append(wait)
        service = rng.gammavariate(shape, mean / shape)
        wait = max(0.0, wait + service - rng.expovariate(rate))
    return waits


@pytest.mark.parametrize(("utilisation", "spread"), [(0.2, 0.6), (0.5, 1.0), (0.7, 2.0)])
def test_victims_wait_as_in_a_simulated_queue(utilisation: float, spread: float) -> None:
    hold = 0.012
    waits = simulate_waits(utilisation / hold, hold, spread, 200_000)
    mean = sum(waits) / len(waits)
    p99 = sorted(waits)[int(0.99 * len(waits))]
    assert waiting_seconds(utilisation, hold, spread) == pytest.approx(mean, rel=0.12)
    assert waiting_p99_seconds(utilisation, hold, spread) == pytest.approx(p99, rel=0.3)


def simulate_loop(cold: int, hot: int, hold: float, copy: float, chunks: int) -> float:
    """Mean time of a hot request when one loop serves every transfer a chunk a turn."""
    clock, times = 0.0, []
    started, left = [0.0] * hot, [chunks] * hot
    for _ in range(200):
        for _ in range(cold):
            clock += hold
        for number in range(hot):
            clock += copy
            left[number] -= 1
            if left[number] == 0:
                times.append(clock - started[number])
                started[number], left[number] = clock, chunks
    return sum(times) / len(times)


def test_a_blocked_loop_serves_a_hot_file_a_chunk_a_turn() -> None:
    p = predict(LAB)
    copy = (512 << 10) / 3e9
    simulated = simulate_loop(20, 4, p.hold_seconds, copy, int(p.reads_per_request))
    assert p.hot_off_seconds == pytest.approx(simulated, rel=0.05)


def test_the_lab_experiment_is_foreseen() -> None:
    """LAB-NOTES §1: hot 4.0-4.5 a second without pools, 913-1081 with them."""
    p = predict(LAB)
    assert p.pools_pay
    assert 4 / p.hot_off_seconds == pytest.approx(4.25, rel=0.5)
    assert 4 / p.hot_on_seconds == pytest.approx(1000, rel=0.5)


def test_the_experiment_of_the_source_is_foreseen() -> None:
    """A5, A6: constant load 8.08 a second and 7.42 s, then 250.57 a second and 226 ms."""
    p = predict(SOURCE)
    assert p.pools_pay
    assert 50 / p.hot_off_seconds == pytest.approx(8.08, rel=0.5)
    assert p.hot_off_seconds == pytest.approx(7.42, rel=0.5)
    assert 50 / p.hot_on_seconds == pytest.approx(250.57, rel=0.5)
    assert p.hot_off_seconds / p.hot_on_seconds == pytest.approx(33, rel=0.5)


def test_data_that_fits_never_blocks() -> None:
    """A8."""
    p = predict(replace(LAB, page_cache_bytes=2 * GIBIBYTE))
    assert (p.hit_ratio, p.wait_off_seconds, p.blocked_ratio) == (1.0, 0.0, 0.0)
    assert not p.pools_pay


def test_a_known_rate_that_the_disk_bears_is_a_queue_and_not_a_closed_loop() -> None:
    slow = replace(LAB, rate_per_second=1.0, concurrency=None, cold_concurrency=None)
    p = predict(slow)
    assert not p.closed_loop
    assert 0 < p.blocked_ratio < 0.95
    assert p.cold_transfers == pytest.approx(0.0625, rel=1)


def test_flash_with_few_small_requests_gains_nothing() -> None:
    """C6: small files on SSDs."""
    flash = replace(
        LAB,
        disk=TYPICAL["nvme"],
        object_bytes=30_000,
        classes=zipf_classes(35_000.0, 0.8),
        page_cache_bytes=0.8 * GIBIBYTE,
        rate_per_second=200,
        concurrency=None,
        cold_concurrency=None,
    )
    assert not predict(flash).pools_pay


@pytest.mark.parametrize(
    ("object_bytes", "reads", "low", "high"),
    [(1024, 1, 1.5, 2.5), (100_000, 1, 1.3, 2.1), (4 * MEBIBYTE, 8, 1.05, 1.8)],
)
def test_offloading_hits_costs_what_was_measured(
    object_bytes: float, reads: float, low: float, high: float
) -> None:
    """LAB-NOTES §2."""
    assert low <= cpu_ratio(reads, object_bytes) <= high
