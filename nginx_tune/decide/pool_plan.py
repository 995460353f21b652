"""Thread pools as one plan: whether, how many threads, and which pools stand apart.

Four decisions (thread-pools, thread-pool-size, per-disk-pools, aio-write) answer parts of one
question; they all read this plan, so they cannot contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nginx_tune.decide.model_blocking import (
    BlockingInputs,
    Prediction,
    miss_ratio,
    predict_measured,
)
from nginx_tune.decide.model_pool import (
    DEFAULT_THREADS,
    PER_DISK_THREADS,
    PoolLoad,
    PoolSize,
    size_cold_pool,
    size_hot_pool,
    size_pool,
)
from nginx_tune.decide.model_protocol import USUAL_READ_AHEAD_BYTES
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import Independence, judge_independence
from nginx_tune.documents.decisions import Verdict

PoolMode = Literal["off", "shared", "hot_and_cold", "per_disk"]


@dataclass(frozen=True)
class Judgement:
    """Whether thread pools pay, and why, in a clause that a comment can hold."""

    verdict: Verdict
    reason: str
    flips: str = ""
    """What outside the model would change it."""


@dataclass(frozen=True)
class PoolPlan:
    """The pools of every worker."""

    judgement: Judgement
    mode: PoolMode
    independence: Independence
    size: PoolSize | None = None
    threads: int = 0
    """Of the one pool, the cold pool, or each disk's pool."""
    hot_threads: int = 0
    load_known: bool = True
    """Whether the peak of cold transfers stands on more than an assumed concurrency."""

    @property
    def on(self) -> bool:
        """Whether any location offloads its reads."""
        return self.mode != "off"

    @property
    def hot_reads_proceed(self) -> bool:
        """Whether hot reads find a free thread while the cold peak is running."""
        if self.mode == "hot_and_cold":
            return True
        return self.size is None or self.threads > self.size.cold_per_worker


def plan_pools(s: Situation) -> PoolPlan:
    """The plan for this situation."""
    judgement = judge_pools(s)
    independence = judge_independence(s.data_paths)
    if judgement.verdict != "enable" or s.prediction is None or s.blocking_inputs is None:
        return PoolPlan(judgement, "off", independence)
    load_known = s.concurrency.provenance != "assumed" and (
        s.cold_concurrency.value is not None or s.dataset_bytes.provenance != "assumed"
    )
    mode: PoolMode = "per_disk" if independence.independent else "shared"
    disks = len(s.data_paths) if independence.independent else 1
    size = _size(s, s.blocking_inputs, s.prediction, disks=disks, load_known=load_known)
    # One large pool holds only while the hot files stay in memory: once one has left it, its
    # reads compete with all the cold ones, and it does not come back (thread-pools-cold-heavy:
    # 128 threads and 100 cold transfers gave 31 times as much, or a tenth).
    default_fits = size.fits and size.needed <= DEFAULT_THREADS
    if mode == "per_disk" or default_fits or not s.site.hot_locations:
        threads = size.threads
        return PoolPlan(judgement, mode, independence, size, threads, load_known=load_known)
    hot = max(0.0, (s.concurrency.value or 0.0) - s.prediction.cold_transfers)
    return PoolPlan(
        judgement,
        "hot_and_cold",
        independence,
        size,
        size_cold_pool(size, s.disk.heads, s.workers),
        size_hot_pool(hot, s.workers),
    )


def _size(
    s: Situation, inputs: BlockingInputs, prediction: Prediction, *, disks: int, load_known: bool
) -> PoolSize:
    """Threads of a pool; an assumed concurrency is no evidence for more than the usual size."""
    read_ahead = s.read_ahead_bytes or USUAL_READ_AHEAD_BYTES
    window = min(inputs.object_bytes, max(read_ahead, inputs.read_bytes))
    load = PoolLoad(
        cold_transfers=prediction.cold_peak / disks if load_known else 0.0,
        workers=s.workers,
        window_bytes=max(4096.0, window),
        page_cache_bytes=inputs.page_cache_bytes / disks,
    )
    # The disks' knee is no reason for fewer: what waits in a pool would wait in the disk as long,
    # and only there it lets hot reads pass. Threads that have nothing to do cost nothing.
    return size_pool(load, smallest=PER_DISK_THREADS if disks > 1 else DEFAULT_THREADS)


def judge_pools(s: Situation) -> Judgement:
    """Whether thread pools pay; hard reasons first, then the model."""
    ruled_out = _ruled_out(s)
    if ruled_out is not None:
        return ruled_out
    if s.blocking_inputs is None or s.prediction is None:
        return Judgement("not_enough_evidence", _missing(s))
    if s.rate.value is None and s.concurrency.value is None and s.seen.blocked.value is None:
        return Judgement("not_enough_evidence", "neither request rate nor concurrency is known")
    blocked = s.seen.blocked_without_pools
    if blocked is not None:
        share = f"loops stand in disk reads {blocked:.2%} of the time (measured)"
        if predict_measured(s.blocking_inputs, blocked).pools_pay:
            return Judgement("enable", share)
        return Judgement("disable", f"{share}, which costs less than offloading every read")
    cache, data = s.page_cache.text, s.dataset_bytes.text
    if miss_ratio(s.blocking_inputs) <= 0 and s.dataset_is_lower_bound:
        return Judgement("not_enough_evidence", "the scan of the data did not finish in its time")
    if miss_ratio(s.blocking_inputs) <= 0:
        return Judgement("disable", f"dataset fits in the page cache ({data} of {cache})")
    if s.prediction.pools_pay:
        return Judgement("enable", f"{data} of data, {cache} of page cache: misses hold the loop")
    return Judgement(
        "disable",
        f"waiting for misses costs less than offloading every read ({data} of data, {cache} of "
        "page cache)",
    )


def _ruled_out(s: Situation) -> Judgement | None:
    build = s.build
    if s.is_freebsd:
        return Judgement("not_applicable", "FreeBSD's own asynchronous I/O is good enough")
    if not s.is_linux:
        return Judgement("not_applicable", f"not measured on {s.facts.kernel.system}")
    if not build.at_least(1, 7, 11):
        return Judgement(
            "not_applicable",
            f"nginx {build.text} has no thread pools",
            flips="nginx is 1.7.11 or newer",
        )
    if build.lacks("--with-threads"):
        return Judgement(
            "not_applicable",
            "this nginx is built without --with-threads",
            flips="nginx is built with --with-threads",
        )
    if s.kind == "proxy":
        return Judgement(
            "not_applicable", "a proxy without a cache serves no files", flips="the kind is cache"
        )
    if build.version is not None and (1, 9, 13) <= build.version < (1, 11, 4):
        return Judgement(
            "not_applicable",
            f"nginx {build.text} can send wrong bodies with aio threads and sendfile",
            flips="nginx is 1.11.4 or newer",
        )
    if s.workload.http_version.value == "2" and not s.tls and not build.at_least(1, 21, 5):
        return Judgement(
            "not_applicable",
            f"nginx {build.text} can hang with cleartext HTTP/2, sendfile and aio",
            flips="nginx is 1.21.5 or newer",
        )
    return None


def _missing(s: Situation) -> str:
    if not s.dataset_bytes.value:
        return "the size of the data is not known"
    if s.page_cache.value is None:
        return "the size of the page cache is not known"
    return "the size of an object is not known"
