"""Threads for a worker's pool, and the effect of one slow disk on readers of the other disks.

Every file read of a location with ``aio threads`` goes through a first-in, first-out queue, even a
page-cache hit (ngx_linux_sendfile_thread(), ngx_thread_read()). With as many cold transfers as
threads, each hot read waits for a disk read, and the gain of the pool is lost. With 32 threads, a
hot file was served 5.3 times a second beside 40 cold transfers, and a thousand times beside 20. So
a worker needs more threads than concurrent cold transfers or, if these are too many, a separate
pool for the hot locations.

A pool does not distinguish disks: reads of a slow disk gradually occupy its threads, and reads of
the other disks wait for a thread. With a pool for each disk, reads only wait for their own disk
(source row A16).

Source of the model of a shared pool: asymptotic bounds of closed queueing networks (Denning and
        Buzen, The Operational Analysis of Queueing Network Models, ACM Computing Surveys 10(3),
        1978): a disk with N readers that each wait W for a thread finishes at most
        min(mu, N / (W + s)) reads a second. W is such that the threads in use fill the pool.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_THREADS = 32
DEFAULT_QUEUE = 65536
"""Queue of the pool ``default``. Source: ngx_thread_pool_init_conf(); source row A13."""
PER_DISK_THREADS = 16
"""Threads of a disk's own pool (source row A16)."""
MAX_THREADS = 128
"""Maximum number of threads of a pool in one worker. With more threads, switching and page-cache
churn cost more than waiting. With one worker, 160 threads served 2.5 requests a second, and no pool
4."""
MAX_THREADS_ALL_WORKERS = 2048
"""Maximum number of threads of all workers, since each has an 8-MiB virtual stack and counts
against the cgroup's pids.max."""
CACHE_SHARE_FOR_COLD = 0.5
"""Largest share of the page cache for the read-ahead windows of concurrent cold reads, which would
otherwise evict hot files."""
SMALLEST_POOL = 4
SMALLEST_DISK_POOL = 2
"""Minimum number of threads of a disk's own pool in each worker."""
THREADS_PER_KNEE = 16
"""Threads of all workers for each concurrent read of the disks above which the audit reports the
pool. 512 threads on four disks performed well (source rows A6 and A16)."""
_STEP = 16


@dataclass(frozen=True)
class PoolLoad:
    """The load of the pool of one worker."""

    cold_transfers: float
    """Peak of concurrent transfers, of all workers."""
    workers: int
    window_bytes: float
    """Page cache of one cold read in progress: its chunk or the disk's read-ahead window."""
    page_cache_bytes: float


@dataclass(frozen=True)
class PoolSize:
    """Threads for one worker."""

    needed: int
    """Number of threads that is enough for one worker's peak of cold transfers and hot reads."""
    limit: int
    """Largest useful number of threads."""
    limit_reason: str
    cold_per_worker: float

    @property
    def fits(self) -> bool:
        """True if one pool can be large enough."""
        return self.needed <= self.limit

    @property
    def threads(self) -> int:
        """Threads of a single pool, within the limit."""
        return min(self.needed, self.limit)


def peak_per_worker(transfers: float, workers: int) -> float:
    """Transfers of the busiest worker when connections are distributed at random.

    The number is the mean plus two standard deviations of the binomial distribution; with one
    worker, all transfers.
    """
    mean = transfers / workers
    return min(transfers, mean + 2 * math.sqrt(mean * (1 - 1 / workers)))


def size_pool(load: PoolLoad, *, smallest: int = DEFAULT_THREADS, pools: int = 1) -> PoolSize:
    """Threads for a pool that hot and cold reads share; every worker has ``pools`` such pools.

    Shape: ``smallest`` (or the limit, if lower), or more in steps of 16: a quarter above the peak
           of cold transfers, so that hot reads find a free thread.
    """
    cold = peak_per_worker(load.cold_transfers, load.workers)
    with_room = cold + max(4.0, cold / 4)
    limit, reason = _limit(load, pools)
    # The usual size is not a requirement: below it, few transfers need fewer threads.
    usual = min(smallest, limit)
    needed = max(smallest, _STEP * math.ceil(with_room / _STEP)) if with_room > usual else usual
    return PoolSize(needed=needed, limit=limit, limit_reason=reason, cold_per_worker=cold)


def _limit(load: PoolLoad, pools: int) -> tuple[int, str]:
    bounds = [
        (MAX_THREADS, "past it thread switching and cache churn cost more than waiting"),
        (
            MAX_THREADS_ALL_WORKERS // (load.workers * pools),
            f"{MAX_THREADS_ALL_WORKERS} over all workers",
        ),
    ]
    # On average, half of a window was sent already, and may be evicted.
    window = load.window_bytes / 2
    by_cache = CACHE_SHARE_FOR_COLD * load.page_cache_bytes / window / load.workers
    if peak_per_worker(load.cold_transfers, load.workers) > by_cache:
        # Only threads with a cold read take page cache.
        reason = "more cold reads at once would push the hot files out of the page cache"
        bounds.append((int(min(by_cache, MAX_THREADS)), reason))
    limit, reason = min(bounds)
    return max(SMALLEST_POOL if pools == 1 else SMALLEST_DISK_POOL, limit), reason


def size_cold_pool(size: PoolSize, disk_heads: float, workers: int) -> int:
    """Threads of a pool for cold locations only: enough to keep the disk busy.

    Reads in progress per worker by Little's law, doubled so that the kernel's and the drive's
    queues can reorder reads.
    """
    busy = math.ceil(2 * disk_heads / workers)
    return max(SMALLEST_POOL, min(size.limit, max(busy, PER_DISK_THREADS)))


def size_hot_pool(hot_transfers: float, workers: int) -> int:
    """Threads of a pool for hot locations only, where no read waits for a disk."""
    wanted = math.ceil(peak_per_worker(hot_transfers, workers) / 4)
    return max(SMALLEST_POOL, min(DEFAULT_THREADS, wanted))


_BISECTIONS = 60


class DiskReaders(NamedTuple):
    """One disk and its readers; each reader starts its next read after the previous read."""

    readers: float
    read_seconds: float
    """Time of one read on the idle disk."""
    reads_per_second: float
    """Greatest rate of the disk."""

    def rate(self, wait_seconds: float) -> float:
        """Reads a second if each read first waits ``wait_seconds`` for a thread."""
        return min(self.reads_per_second, self.readers / (wait_seconds + self.read_seconds))


def responses_apart(disks: Sequence[DiskReaders]) -> list[float]:
    """Mean response time in seconds by disk, if every disk has enough threads of its own."""
    return [disk.readers / disk.rate(0.0) for disk in disks]


def responses_shared(disks: Sequence[DiskReaders], threads: float) -> list[float]:
    """Mean response time in seconds by disk, with one pool of ``threads`` for all disks."""
    wait = _wait_for_a_thread(disks, threads)
    return [disk.readers / disk.rate(wait) for disk in disks]


def _wait_for_a_thread(disks: Sequence[DiskReaders], threads: float) -> float:
    def in_use(wait: float) -> float:
        return sum(disk.readers - disk.rate(wait) * wait for disk in disks)

    if in_use(0.0) <= threads:
        return 0.0
    low, high = 0.0, sum(d.readers / d.reads_per_second + d.read_seconds for d in disks)
    while in_use(high) > threads and high < 1e12:  # noqa: PLR2004  # a pool far too small
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if in_use(middle) > threads:
            low = middle
        else:
            high = middle
    return (low + high) / 2
