"""Thread pools as one plan: the verdict, the number of threads, and separate pools.

Four decisions (thread-pools, thread-pool-size, per-disk-pools, aio-write) are made from this plan,
so they cannot contradict each other. Pools that plausible values of assumed inputs would rule out
are only proposed, with the command that measures the inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from nginx_tune.decide.bindings import cpu_seconds_each, handshake_seconds, most_at_best
from nginx_tune.decide.model.blocking import (
    REQUEST_CPU_SECONDS,
    Prediction,
)
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.pool import (
    DEFAULT_THREADS,
    MAX_THREADS_ALL_WORKERS,
    PER_DISK_THREADS,
    SMALLEST_DISK_POOL,
    SMALLEST_POOL,
    PoolLoad,
    PoolSize,
    size_cold_pool,
    size_hot_pool,
    size_pool,
)
from nginx_tune.decide.model.reads import USUAL_READ_AHEAD_BYTES
from nginx_tune.decide.pool_judgement import PoolJudgement, judge_pools
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import Independence, judge_independence

SINGLE_POOL = "io-pool-single-many-disks"
"""The audit rule against a single pool for several disks."""
PoolMode = Literal["off", "shared", "hot_and_cold", "per_disk"]


@dataclass(frozen=True)
class PoolPlan:
    """The pools of every worker."""

    judgement: PoolJudgement
    mode: PoolMode
    independence: Independence
    size: PoolSize | None = None
    threads: int = 0
    """Threads of the only pool, of the pool for cold locations, or of each disk's pool."""
    hot_threads: int = 0
    load_known: bool = True
    """False if the peak of cold transfers follows from an assumed concurrency."""
    proposed: PoolPlan | None = None
    """Pools that would pay if the assumed inputs are right; this plan is then off."""

    @property
    def on(self) -> bool:
        """True if any location offloads its reads."""
        return self.mode != "off"

    @property
    def hot_reads_proceed(self) -> bool:
        """True if hot reads find a free thread during the peak of cold transfers."""
        if self.mode == "hot_and_cold":
            return True
        return self.size is None or self.threads > self.size.cold_per_worker


def plan_pools(s: Situation) -> PoolPlan:
    """The plan for this situation."""
    judgement = judge_pools(s)
    independence = _disks_apart(s)
    if judgement.needs_measurement:
        proposed = _pools(s, judgement, independence)
        return PoolPlan(judgement, "off", independence, proposed=proposed)
    if judgement.verdict != "enable":
        return PoolPlan(judgement, "off", independence)
    return _pools(s, judgement, independence)


def _disks_apart(s: Situation) -> Independence:
    """Independence of the disks, which makes a pool for each disk useful.

    Disks are not independent if a request searches them in turn: lookups run in the event loop, and
    a slow disk with cold directory entries blocks it with any pools.
    """
    found = judge_independence(s.data_paths)
    if not share_one_pool(s):
        return found
    if s.site.roots_apart:
        known = "the roots belong to different locations, for which plan writes one pool"
        reason = known if found.provenance == "measured" else found.reason
        return found._replace(independent=False, reason=reason)
    reason = (
        f"requests search the {len(s.data_paths)} disks in turn, in the event loop; [site] "
        "root_prefixes assigns URLs to disks"
    )
    return Independence(independent=False, provenance="declared", reason=reason)


def share_one_pool(s: Situation) -> bool:
    """True for roots on independent disks whose URLs are not known, so that all share a pool."""
    if s.kind == "cache" or s.site.root_prefixes:
        return False
    return judge_independence(s.data_paths).independent


def _cpu_seconds(s: Situation, i: BlockingInputs, p: Prediction) -> float:
    """CPU time per second for the load, limited by what disks, memory and link can carry."""
    requests = most_at_best(i, p).bytes_per_second / i.object_bytes
    if s.rate.value is not None:
        requests = min(requests, s.rate.value)
    others = i.others_per_second * REQUEST_CPU_SECONDS
    return requests * cpu_seconds_each(s) + others + handshake_seconds(s, s.rate.value or 0.0)


def _pools(s: Situation, judgement: PoolJudgement, independence: Independence) -> PoolPlan:
    if s.prediction is None or s.blocking_inputs is None:
        return PoolPlan(judgement, "off", independence)
    load_known = s.concurrency.provenance != "assumed" and (
        s.cold_concurrency.value is not None or s.dataset_bytes.provenance != "assumed"
    )
    apart = independence.independent and s.workers <= most_workers(len(s.data_paths))
    mode: PoolMode = "per_disk" if apart else "shared"
    disks = len(s.data_paths) if mode == "per_disk" else 1
    size = _size(s, s.blocking_inputs, s.prediction, disks=disks, load_known=load_known)
    # One large pool works only while the hot files stay in memory. Once a hot file is evicted, its
    # reads compete with all cold ones, and it does not return to memory (thread-pools-cold-heavy:
    # with 128 threads and 100 cold transfers the throughput was 31 times as high, or a tenth).
    default_fits = size.fits and size.needed <= DEFAULT_THREADS
    two_fit = 2 * SMALLEST_POOL * s.workers <= MAX_THREADS_ALL_WORKERS
    if mode == "per_disk" or default_fits or not s.site.hot_locations or not two_fit:
        threads = size.threads
        return PoolPlan(judgement, mode, independence, size, threads, load_known=load_known)
    hot = max(0.0, (s.concurrency.value or 0.0) - s.prediction.cold_transfers)
    return PoolPlan(
        judgement,
        "hot_and_cold",
        independence,
        size,
        *_within_all(
            size_cold_pool(size, s.disk.heads, s.workers), size_hot_pool(hot, s.workers), s.workers
        ),
        load_known=load_known,
    )


def most_workers(disks: int) -> int:
    """Maximum number of workers that can have a pool for each disk, by the limit on all threads."""
    return MAX_THREADS_ALL_WORKERS // (disks * SMALLEST_DISK_POOL)


_THREADS_EACH = 8
"""Threads per disk from which more workers are better than more threads: half of the number in
source row A16; the factor of a half is chosen. With more workers, a name lookup, which no thread
can do, blocks a smaller part of the loops."""
_CPU_ROOM = 4.0
"""Ratio of the CPU time that workers are given to the computed CPU time. It leaves room for peaks,
compression, cache fills and other requests, and is chosen, not measured."""


def workers_for_disks(s: Situation) -> int | None:
    """A number of workers below that of the CPUs, for a host limited by its disks, or None.

    Every worker has a pool for each disk, and all threads share one limit. Workers that the CPU
    load does not need only reduce the threads for each disk.
    """
    disks = len(s.data_paths)
    few = MAX_THREADS_ALL_WORKERS // (max(1, disks) * _THREADS_EACH)
    if s.kind == "proxy" or s.stays.workers or disks < 2 or s.workers <= few:  # noqa: PLR2004
        return None
    apart = _disks_apart(s)
    if not apart.independent or apart.provenance != "measured":
        return None
    if judge_pools(s).verdict != "enable":
        return None
    if s.blocking_inputs is None or s.prediction is None:
        return None
    needed = math.ceil(_CPU_ROOM * _cpu_seconds(s, s.blocking_inputs, s.prediction))
    wanted = max(1, few, needed)
    return wanted if wanted < s.workers else None


def _within_all(cold: int, hot: int, workers: int) -> tuple[int, int]:
    """Threads of two pools, reduced to the limit on all threads."""
    most = MAX_THREADS_ALL_WORKERS // workers
    if cold + hot <= most:
        return cold, hot
    cold = max(SMALLEST_POOL, min(cold, most - min(hot, most // 2)))
    return cold, max(SMALLEST_POOL, min(hot, most - cold))


def _size(
    s: Situation, inputs: BlockingInputs, prediction: Prediction, *, disks: int, load_known: bool
) -> PoolSize:
    """Size of a pool; it is at most the usual size if the concurrency is only assumed."""
    read_ahead = s.read_ahead_bytes or USUAL_READ_AHEAD_BYTES
    window = min(inputs.object_bytes, max(read_ahead, inputs.read_bytes))
    load = PoolLoad(
        cold_transfers=prediction.cold_peak / disks if load_known else 0.0,
        workers=s.workers,
        window_bytes=max(4096.0, window),
        page_cache_bytes=inputs.page_cache_bytes / disks,
    )
    # The disks' knee does not limit the threads: hot reads overtake reads that wait in the disk
    # instead of the pool, and idle threads cost nothing.
    smallest = PER_DISK_THREADS if disks > 1 else DEFAULT_THREADS
    return size_pool(load, smallest=smallest, pools=disks)
