"""Threads for a worker's pool, and the effect of one slow disk on the readers of the others.

Every file read of a location with ``aio threads`` is queued, page-cache hits too
(ngx_linux_sendfile_thread(), ngx_thread_read()), first in, first out. With as many cold transfers
as threads, each hot read waits for a disk read, and the gain of the pool is lost: 40 cold transfers
on 32 threads left the hot file at 5.3 requests a second, 20 on 32 gave a thousand. So a worker
needs more threads than concurrent cold transfers or, if that is too many, a separate pool for the
hot locations.

A pool does not distinguish disks: reads of a slow one gradually occupy its threads, and reads of
the others wait for a thread. With a pool for each disk they wait for their own disk only (the
sources, A16).

Source of the model of a shared pool: asymptotic bounds of closed queueing networks (Denning and
        Buzen, The Operational Analysis of Queueing Network Models, ACM Computing Surveys 10(3),
        1978): a disk with N readers that each wait W for a thread finishes at most
        min(mu, N / (W + s)) reads a second. W is such that the threads in use fill the pool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_THREADS = 32
DEFAULT_QUEUE = 65536
"""``aio threads`` alone. Source: ngx_thread_pool_init_conf(); row A13 of the sources."""
PER_DISK_THREADS = 16
"""Source: row A16 of the sources."""
MAX_THREADS = 128
"""Per pool and worker: with more, thread switching and page-cache churn cost more than waiting
(seen with one worker: 160 threads served 2.5 requests a second where no pool served 4)."""
MAX_THREADS_ALL_WORKERS = 2048
"""Each thread has an 8-MiB virtual stack and counts against the cgroup's pids.max."""
CACHE_SHARE_FOR_COLD = 0.5
"""Largest share of the page cache for the windows of running cold reads. With more, these evict the
hot files that they should not delay."""
SMALLEST_POOL = 4
SMALLEST_DISK_POOL = 2
"""Least threads of a disk's own pool in each worker; all workers together have many times that."""
THREADS_PER_KNEE = 16
"""Threads of all workers for each read that the disks serve at once. With more, the audit asks for
a reason. The source did well with 512 threads on four disks (the sources, A6, A16)."""
_STEP = 16


@dataclass(frozen=True)
class PoolLoad:
    """The load of the pool of one worker."""

    cold_transfers: float
    """Peak of concurrent transfers, of all workers."""
    workers: int
    window_bytes: float
    """Page cache that one running cold read takes: its chunk or the disk's read-ahead."""
    page_cache_bytes: float


@dataclass(frozen=True)
class PoolSize:
    """Threads for one worker."""

    needed: int
    """Threads that exceed one worker's peak of cold transfers."""
    limit: int
    """Most threads that still help here."""
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
    """Transfers of the busiest worker when connections spread by chance.

    Mean and two standard deviations of the binomial distribution; with one worker, all of them.
    """
    mean = transfers / workers
    return min(transfers, mean + 2 * math.sqrt(mean * (1 - 1 / workers)))


def size_pool(load: PoolLoad, *, smallest: int = DEFAULT_THREADS, pools: int = 1) -> PoolSize:
    """Threads for a pool that hot and cold reads share; every worker has ``pools`` of them.

    Shape: ``smallest`` (or the limit, if lower), or steps of 16 above it, with a quarter more than
           the cold peak so that hot reads find a thread.
    """
    cold = peak_per_worker(load.cold_transfers, load.workers)
    with_room = cold + max(4.0, cold / 4)
    limit, reason = _limit(load, pools)
    # The usual size is not a requirement: if the limit is lower, few transfers need fewer threads.
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
    # On average half of a window has been sent already, and its pages may be evicted.
    window = load.window_bytes / 2
    by_cache = CACHE_SHARE_FOR_COLD * load.page_cache_bytes / window / load.workers
    if peak_per_worker(load.cold_transfers, load.workers) > by_cache:
        # Threads without a cold read use no page cache: the limit is on cold reads.
        reason = "more cold reads at once would push the hot files out of the page cache"
        bounds.append((int(min(by_cache, MAX_THREADS)), reason))
    limit, reason = min(bounds)
    return max(SMALLEST_POOL if pools == 1 else SMALLEST_DISK_POOL, limit), reason


def size_cold_pool(size: PoolSize, disk_heads: float, workers: int) -> int:
    """Threads of a pool for cold locations only: enough to keep the disk busy.

    Little's law at the disk: reads in progress per worker, doubled so that the elevator and the
    drive's own queue have a choice.
    """
    busy = math.ceil(2 * disk_heads / workers)
    return max(SMALLEST_POOL, min(size.limit, max(busy, PER_DISK_THREADS)))


def size_hot_pool(hot_transfers: float, workers: int) -> int:
    """Threads of a pool for hot locations only, whose reads do not wait for a disk."""
    wanted = math.ceil(peak_per_worker(hot_transfers, workers) / 4)
    return max(SMALLEST_POOL, min(DEFAULT_THREADS, wanted))


_BISECTIONS = 60


class DiskReaders(NamedTuple):
    """One disk and its readers; each reader starts its next read when the last one is done."""

    readers: float
    read_seconds: float
    """Time of one read on the idle disk."""
    reads_per_second: float
    """Greatest rate of the disk."""

    def rate(self, wait_seconds: float) -> float:
        """Reads a second if each first waits that long for a thread."""
        return min(self.reads_per_second, self.readers / (wait_seconds + self.read_seconds))


def responses_apart(disks: Sequence[DiskReaders]) -> list[float]:
    """Mean response time for each disk's readers, if every disk has enough threads of its own."""
    return [disk.readers / disk.rate(0.0) for disk in disks]


def responses_shared(disks: Sequence[DiskReaders], threads: float) -> list[float]:
    """Mean response time for each disk's readers, with one pool of ``threads`` for all disks."""
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
