import random

from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.decide.model.pool import (
    MAX_THREADS,
    PoolLoad,
    PoolSize,
    peak_per_worker,
    size_cold_pool,
    size_hot_pool,
    size_pool,
)

MEBIBYTE = 1 << 20
ROOMY = 64 << 30


def pool(
    cold: float, *, workers: int = 1, window: float = MEBIBYTE, cache: float = ROOMY
) -> PoolSize:
    return size_pool(PoolLoad(cold, workers, window, cache))


def test_the_default_pool_carries_twenty_cold_transfers() -> None:
    size = pool(20)
    assert size.threads == 32
    assert size.fits
    assert size.threads > size.cold_per_worker


def test_forty_cold_transfers_need_more_than_the_default() -> None:
    """Measured: 40 cold transfers on 32 threads took the gain away."""
    size = pool(40)
    assert size.threads == 64
    assert size.fits


def test_more_cold_reads_than_the_cache_has_windows_for_do_not_fit_one_pool() -> None:
    """Measured: 100 cold transfers; more threads only churned the page cache."""
    size = pool(100, window=4 * MEBIBYTE, cache=192 * MEBIBYTE)
    assert not size.fits
    assert size.limit < 100
    assert "page cache" in size.limit_reason


def simulate_hot_reads(threads: int, cold: int, hold: float, turns: int = 4000) -> float:
    """Mean wait of a hot read in a first-in first-out pool over one disk.

    Every cold transfer posts its next read as soon as the last is done; the disk serves one
    read at a time. A hot read takes no time but a thread.
    """
    rng = random.Random(5)
    queue: list[str] = ["cold"] * cold
    busy: list[float] = []
    clock, disk_free, waits = 0.0, 0.0, []
    posted = 0.0
    for _ in range(turns):
        while queue and len(busy) < threads:
            kind = queue.pop(0)
            if kind == "hot":
                waits.append(clock - posted)
                continue
            disk_free = max(clock, disk_free) + hold * rng.uniform(0.5, 1.5)
            busy.append(disk_free)
        if "hot" not in queue:
            queue.append("hot")
            posted = clock
            continue
        clock = min(busy)
        busy.remove(clock)
        queue.append("cold")
    return sum(waits) / len(waits)


def test_the_sized_pool_lets_hot_reads_pass_and_a_smaller_one_does_not() -> None:
    size = pool(40)
    assert simulate_hot_reads(size.threads, 40, 0.009) == 0.0
    assert simulate_hot_reads(32, 40, 0.009) > 0.05


def test_a_cold_pool_keeps_the_disk_busy_and_a_hot_one_is_small() -> None:
    size = pool(100, window=4 * MEBIBYTE, cache=192 * MEBIBYTE)
    assert 4 <= size_cold_pool(size, disk_heads=1, workers=1) <= size.limit
    assert 4 <= size_hot_pool(50, 4) <= 32


def test_one_worker_has_all_transfers_and_many_share_them() -> None:
    assert peak_per_worker(40, 1) == 40
    assert 10 < peak_per_worker(40, 4) < 20


@given(
    cold=st.floats(0, 1e7),
    workers=st.integers(1, 512),
    window=st.floats(4096, 1e9),
    cache=st.floats(1e6, 1e13),
)
def test_every_pool_is_bounded(cold: float, workers: int, window: float, cache: float) -> None:
    size = pool(cold, workers=workers, window=window, cache=cache)
    assert 1 <= size.threads <= MAX_THREADS
    assert size.threads * workers <= max(2048, 4 * workers)


@each_row("cold", [0, 1, 24, 25, 100])
def test_a_pool_that_fits_has_a_thread_for_hot_reads(cold: int) -> None:
    size = pool(cold)
    assert not size.fits or size.threads >= cold + 4
