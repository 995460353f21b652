"""The cost of cold reads on the event loop to other requests, and the cost of offloading them.

A worker is one loop. Without thread pools a page-cache miss holds the loop for one read:

- At a known request rate with which the loop keeps up, other requests wait as in an M/G/1 queue
  whose service times are the cold reads; loops share the disks' heads (``open_reads``).
- If clients wait for their answers (a closed loop of N transfers), the loop is nearly always
  blocked. One turn serves one chunk of every active transfer, so it takes as long as its cold
  chunks together, and a hot file of k chunks needs k turns.

With thread pools the loop only hands reads over, at a cost per read, and hot requests proceed at
memory speed as long as a thread is free for them (``pool``). Disks, link or memory then bound what
the server can send (``find_ceiling``).

Calibration (nginx 1.22.1, one worker, measured by hand): hot mean 0.9-1.0 s without pools
where 20 cold transfers share a disk of 80 MB/s and 400 reads/s; 18-20 µs of CPU for a 1-KB
request and 36-38 µs with a pool. The source's own host (A2-A7) is a test, not a calibration.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.open_reads import crowded_hold, open_reads
from nginx_tune.decide.model.pool import CACHE_SHARE_FOR_COLD
from nginx_tune.decide.model.reads import Pieces, piece_sizes
from nginx_tune.decide.model.sending import (
    ENCRYPTED_BYTES_PER_SECOND,
    MEMORY_BYTES_PER_SECOND,
    first_reads,
    turn_wait,
    way_bound,
)
from nginx_tune.decide.model.waiting import LoopWait, loop_wait, peak_under_way

OFFLOAD_SECONDS = 18e-6
"""Time to hand one read to a thread and back, as measured with 1-KB requests."""
REQUEST_CPU_SECONDS = 19e-6
"""CPU time of one small static request, as measured."""
DISK_READ_CPU_SECONDS = 37e-6
"""CPU time that a read from the disk takes in addition to a read from memory: 35 to 40 µs for 24 KB
of ext4 on a virtio disk, kernel 6.18."""
SEND_CPU_BYTES_PER_SECOND = 12e9
"""Cached bytes sent per second of CPU time. Measured: 100-KB requests take 4-12 µs more."""
SCHEDULING_TAIL_SECONDS = 2e-3
"""99th percentile of an answer from memory on a busy host whose loops never block, as measured."""
BUSY_HOST_SECONDS = 0.3e-3
"""Mean time of an answer on a busy host whose loops never block. Measured: 0.26-0.46 ms."""
MARGIN = 3.5
"""Multiple of the CPU time of offloading from which pools pay, if blocking costs other requests as
much. The factor exceeds 1 because a response waits longer than that CPU time: a thread must wake
up, then the loop. Source: cells drawn at random, all in memory or nearly: hot answers took 50 to 60
us longer for one read (drawn-4201-008, -014), three times ``OFFLOAD_SECONDS``."""
ENCRYPTED_MARGIN = 4.5
"""``MARGIN`` if the worker encrypts: each buffer returns to the loop before the next read begins.
Source: drawn-4201-009, 400 us for five reads over TLS."""
_SATURATED = 0.95


@dataclass(frozen=True)
class Prediction:
    """The model's expectation for one worker's clients, without and with thread pools."""

    hit_ratio: float
    reads_per_request: float
    """Number of times that one cold object blocks the loop, without pools."""
    tasks_per_request: float
    hold_seconds: float
    """Time for which one cold read blocks the loop, including contention for the disk."""
    blocked_ratio: float
    """Share of the time that a loop without pools spends in disk reads."""
    wait_off_seconds: float
    """Mean wait of one event behind cold reads, without pools."""
    turn_wait_seconds: float
    """Mean wait behind large answers that are sent in one turn, without their reads."""
    turn_p99_seconds: float
    """99th percentile of the wait behind such turns, including their reads."""
    hot_off_seconds: float
    """Mean time of one memory-resident request, without pools."""
    hot_on_seconds: float
    cold_ratio: float
    """Ratio of the cold bytes per second with pools to those without."""
    cold_lost_ratio: float
    """Factor on ``cold_ratio`` for evicted read-ahead, which must be read again.

    It is the useful share of the bytes that are read with pools, divided by the share without."""
    cold_transfers: float
    """Concurrent transfers of all workers that miss the page cache, with pools."""
    cold_peak: float
    """Peak of ``cold_transfers``, exceeded in less than a thousandth of the time."""
    closed_loop: bool
    """True if clients wait for their answers, so that faster answers bring more requests."""
    others_per_request: float = 0.0
    """Number of requests that read no file, for each request that does."""
    limit_seconds: float | None = None
    limit_share: float | None = None
    only_quantity: bool = False
    margin: float = MARGIN
    """The ``gain`` from which pools pay."""

    @property
    def gain(self) -> float:
        """Ratio of one response's wait behind cold reads to the cost of offloading its reads."""
        waits = self.wait_off_seconds * self.reads_per_request
        return waits / (OFFLOAD_SECONDS * self.tasks_per_request)

    @property
    def pools_pay(self) -> bool:
        """True if offloading costs clearly less than blocking, or ends long waits of others."""
        return self.gain > self.margin or self._others_feel

    @property
    def _others_feel(self) -> bool:
        return self.turns_are_felt or self.reads_are_felt or self.is_late

    @property
    def is_late(self) -> bool:
        """True if cold reads delay more answers from memory than an objective allows.

        The share of late answers is the share of time that a loop is blocked. A late answer waits
        for one read, or for two in a row.
        """
        limit = self.limit_seconds
        if limit is None:
            return False
        if self.limit_share is None:
            return self.hot_on_seconds <= limit < self.hot_off_seconds
        return self.blocked_ratio > self.limit_share and limit < 1.5 * self.hold_seconds

    @property
    def turns_are_felt(self) -> bool:
        """True if the wait behind large answers exceeds the time of a request on a busy host.

        Either the mean wait or its 99th percentile must be longer.
        """
        return not self.only_quantity and (
            self.turn_wait_seconds > BUSY_HOST_SECONDS
            or self.turn_p99_seconds > SCHEDULING_TAIL_SECONDS
        )

    @property
    def reads_are_felt(self) -> bool:
        """True if the wait of requests without a file behind cold reads exceeds their own time.

        The waits of all requests must also exceed the cost of offloading by the margin.
        """
        others = self.wait_off_seconds * self.others_per_request
        weighed = self.gain + others / (OFFLOAD_SECONDS * self.tasks_per_request)
        return (
            not self.only_quantity
            and self.wait_off_seconds > BUSY_HOST_SECONDS
            and weighed > self.margin
        )

    @property
    def only_others(self) -> bool:
        """True if pools pay only for requests that read no file, not for those that do."""
        return self._others_feel and self.gain <= self.margin


def predict(i: BlockingInputs) -> Prediction:
    """The model's prediction for these inputs."""
    miss = i.miss_ratio
    reads = i.holds_per_miss
    read_bytes = i.hold_bytes
    hold = i.disk.read_seconds(read_bytes)
    copy = read_bytes / MEMORY_BYTES_PER_SECOND
    in_flight = (i.concurrency or 0.0) / i.workers
    cold = _cold_per_turn(i, miss)
    closed_hold = hold * max(1.0, min(i.workers, cold * i.workers) / i.disk.heads_for(read_bytes))
    cold = min(cold, _accepted_per_loop(i, miss, closed_hold) * miss)
    turn = cold * closed_hold
    waits_for_answers = i.rate_per_second is None
    bound = way_bound(i, reads * (turn + in_flight * copy))
    missing = miss
    if bound is not None:
        i = replace(i, rate_per_second=bound)
        missing = min(1.0, cold / in_flight) if waits_for_answers else miss
    open_hold, utilisation = open_reads(i, (i.rate_per_second or 0.0) * missing * reads)
    ahead = first_reads(i, i.rate_per_second or 0.0, missing, is_bound=bound is not None)
    if ahead is not None:
        open_hold, utilisation = ahead
    saturates = i.rate_per_second is not None and utilisation >= _SATURATED
    open_loop = i.rate_per_second is not None and not saturates
    if open_loop:
        hold_seen = open_hold
        blocked, wait = _open_wait(i, utilisation, open_hold, missing)
        if in_flight:
            wait = min(wait, turn)
    elif saturates and not in_flight:  # the queue grows without bound
        hold_seen, blocked = closed_hold, 1.0
        full = max(closed_hold, crowded_hold(i))
        wait = _open_wait(i, _SATURATED, full, missing).mean_seconds
    else:
        hold_seen, wait = closed_hold, turn
        blocked = turn / (turn + in_flight * copy) if turn else 0.0
    window_seconds = i.disk.read_seconds(i.disk_read_bytes)
    transfers = cold_transfers(i, miss, i.disk_reads_per_miss, window_seconds)
    hot_copy = reads * copy + i.tasks_per_request * OFFLOAD_SECONDS
    shared = _shared_send_seconds(i, transfers if bound is None else 0.0)
    turns = turn_wait(i, i.tasks_per_request * OFFLOAD_SECONDS)
    return Prediction(
        hit_ratio=1.0 - miss,
        reads_per_request=reads,
        tasks_per_request=i.tasks_per_request,
        hold_seconds=hold_seen,
        blocked_ratio=min(1.0, blocked),
        wait_off_seconds=wait,
        turn_wait_seconds=turns.mean_seconds,
        turn_p99_seconds=turns.p99_seconds,
        # Memory and link are shared, with or without pools.
        hot_off_seconds=BUSY_HOST_SECONDS + turns.mean_seconds + max(reads * (wait + copy), shared),
        hot_on_seconds=BUSY_HOST_SECONDS + max(hot_copy, shared),
        cold_ratio=_cold_ratio(i, transfers) if miss else 1.0,
        cold_lost_ratio=(1 + lost_windows(i, cold * i.workers)) / (1 + lost_windows(i, transfers)),
        cold_transfers=transfers,
        cold_peak=_cold_peak(i, miss, transfers),
        closed_loop=waits_for_answers or not open_loop,
        others_per_request=i.others_per_second / (i.rate_per_second or math.inf),
        limit_seconds=i.limit_seconds,
        limit_share=i.limit_share,
        only_quantity=i.only_quantity,
        margin=ENCRYPTED_MARGIN if i.encrypts else MARGIN,
    )


def _open_wait(i: BlockingInputs, utilisation: float, hold: float, miss: float) -> LoopWait:
    """Waits at an open request rate.

    Only the first read of a cold object may meet a stall; the object's other reads follow it.
    """
    arrivals = (i.rate_per_second or 0.0) * miss / i.workers
    usual = i.disk.read_seconds(i.hold_bytes)
    found = _holds_found(i)
    return loop_wait(
        utilisation,
        hold / usual * i.disk.read_seconds(found.mean_bytes),
        i.disk.spread_of(found.mean_bytes, moving=True),
        sizes_spread=found.spread,
        stalls=i.disk.stalls,
        reads_per_second=arrivals,
    )


def _holds_found(i: BlockingInputs) -> Pieces:
    """The pieces that block the loop, weighted by their time: long pieces delay more requests.

    Source: drawn-4201-028, with one file of 2.4 MB for seven of 7 to 180 KB: answers from memory
    waited 0.5 ms behind reads; with the mean size, the model gives an eighth of that.
    """
    return piece_sizes(
        i.object_bytes,
        i.sizes,
        i.longest_hold_bytes,
        latency_bytes=i.disk.latency_seconds * i.disk.bytes_per_second,
    )


def predict_measured(i: BlockingInputs, blocked_ratio: float) -> Prediction:
    """The prediction from the share of blocked time that was measured on the running server.

    The measured share replaces rate, popularity and cache; the time of one read still comes from
    the model of the disk.
    """
    base = predict(i)
    hold = i.disk.read_seconds(i.hold_bytes)
    bounded = min(blocked_ratio, _SATURATED)
    found = _holds_found(i)
    wait = loop_wait(
        bounded,
        i.disk.read_seconds(found.mean_bytes),
        i.disk.spread_of(found.mean_bytes),
        sizes_spread=found.spread,
    ).mean_seconds
    copy = i.hold_bytes / MEMORY_BYTES_PER_SECOND
    return replace(
        base,
        hold_seconds=hold,
        blocked_ratio=blocked_ratio,
        wait_off_seconds=wait,
        hot_off_seconds=BUSY_HOST_SECONDS
        + max(base.reads_per_request * (wait + copy), _shared_send_seconds(i, base.cold_transfers)),
        closed_loop=False,
    )


def cold_transfers(i: BlockingInputs, miss: float, reads: float, hold: float) -> float:
    """Concurrent transfers of all workers that miss the page cache, when pools let them overlap.

    If the disk keeps up, they follow from the rate by Little's law. Otherwise clients wait for the
    disk, and nearly all transfers in flight are cold.
    """
    if miss <= 0:
        return 0.0
    if i.cold_concurrency is not None:
        return i.cold_concurrency
    heads = i.disk.heads_for(i.disk_read_bytes)
    if i.rate_per_second is not None:
        disk_use = i.rate_per_second * miss * reads * hold / heads
        if disk_use < _SATURATED:
            outstanding = i.rate_per_second * miss * reads * hold / (1 - disk_use)
            return min(outstanding, i.concurrency or math.inf)
    if i.concurrency is None:
        return i.workers * heads
    cold_time = miss * hold * max(1.0, i.concurrency * miss / heads)
    hot_time = (1 - miss) * i.disk_read_bytes / MEMORY_BYTES_PER_SECOND
    return i.concurrency * cold_time / (cold_time + hot_time)


def _cold_peak(i: BlockingInputs, miss: float, transfers: float) -> float:
    """Peak of the cold transfers at a known rate when pools let them overlap.

    Overlapping reads take turns at a head, each for a read-ahead window, and every turn positions
    the head again. If the disk cannot keep up with that, only the number of clients limits the
    queue.
    """
    if i.cold_concurrency is not None or i.rate_per_second is None or miss <= 0:
        return transfers
    turns = i.turns_per_miss
    each = turns * i.disk.read_seconds(i.object_bytes / turns)
    heads = i.disk.heads_for(i.object_bytes / turns)
    peak = peak_under_way(i.rate_per_second * miss, each, heads, i.disk.stalls)
    bounded = min(peak, i.concurrency or math.inf)
    return max(transfers, bounded) if math.isfinite(bounded) else transfers


def _cold_per_turn(i: BlockingInputs, miss: float) -> float:
    """Cold chunks in one turn of one worker's loop."""
    if miss <= 0:
        return 0.0
    if i.cold_concurrency is not None:
        missing = miss if i.cold_by_popularity else 1.0
        return missing * i.cold_concurrency / i.workers
    return miss * (i.concurrency or 0.0) / i.workers


def _accepted_per_loop(i: BlockingInputs, miss: float, hold: float) -> float:
    """Transfers that a loop without pools has accepted after all clients arrived at once.

    It accepts one connection per turn (``multi_accept`` is off), and a turn takes as long as the
    reads of all accepted transfers. So n transfers are accepted after ``hold`` * n^2 / 2 seconds.
    Source: ngx_event_accept(); thread-pools-cold-heavy, where 100 clients arrived at once and the
            accepted ones got files in 0.8 s, not in five.
    """
    if i.since_seconds is None or miss <= 0 or hold <= 0:
        return math.inf
    return math.sqrt(2 * i.since_seconds / (miss * hold))


def lost_windows(i: BlockingInputs, transfers: float) -> float:
    """Share of the read-ahead that is evicted before it is sent, and is read again.

    Each transfer has a window in progress and one that is read ahead. Pages that were read once get
    about half of the page cache. Transfers take turns, so beyond that limit all read-ahead is lost.
    Source: thread-pools-cold-heavy: of 84 MB/s read 42 were sent with 100 transfers in 192 MiB, 84
            with 20 (thread-pools); the kernel counted as many pages read for a second time.
    """
    room = max(1.0, CACHE_SHARE_FOR_COLD * i.page_cache_bytes)
    crowding = 2 * min(i.read_bytes, i.object_bytes) * transfers / room
    return min(1.0, max(0.0, 2 * crowding - 1))


def _shared_send_seconds(i: BlockingInputs, cold: float) -> float:
    """Seconds that a hot request takes when all requests share memory bandwidth and link."""
    hot = max(0.0, (i.concurrency or 0.0) - cold)
    shared = i.workers * MEMORY_BYTES_PER_SECOND
    if i.way_bytes_per_second is not None:
        shared = min(shared, i.way_bytes_per_second)
    return hot * i.object_bytes / shared


def _cold_ratio(i: BlockingInputs, transfers: float) -> float:
    """Ratio of concurrent disk reads with pools to those without, at most one for each worker."""
    heads = i.disk.heads_for(i.disk_read_bytes)
    without = min(float(i.workers), heads, max(1.0, transfers))
    with_pools = min(max(transfers, 1.0), heads)
    return max(1.0, with_pools / without)


def cpu_ratio(
    tasks_per_request: float,
    object_bytes: float,
    *,
    of_files: float = 1.0,
    disk_reads: float = 0.0,
    encrypts: bool = False,
) -> float:
    """Ratio of the CPU time per request with pools to the time without.

    ``of_files`` of the requests are for files, each with ``disk_reads`` on average.
    """
    speed = ENCRYPTED_BYTES_PER_SECOND if encrypts else SEND_CPU_BYTES_PER_SECOND
    base = REQUEST_CPU_SECONDS + of_files * object_bytes / speed
    base += of_files * disk_reads * DISK_READ_CPU_SECONDS
    return (base + of_files * tasks_per_request * OFFLOAD_SECONDS) / base


BOUND_BY_DISKS = "the disks"
"""Name of the ceiling that comes from the disks."""


class Ceiling(NamedTuple):
    """The lowest bound on what the server can send."""

    name: str
    bytes_per_second: float


def find_ceiling(i: BlockingInputs, p: Prediction) -> Ceiling:
    """The bound that is reached first.

    If hot and cold clients are separate, hot clients do not wait for a disk, and fill the link or
    the memory bandwidth (source row A6: 9.5 of 10 Gbit/s, little of it from the disks). Otherwise
    the ratio of hits to misses is that of the requests, and the disks limit both.
    """
    send = Ceiling("copying from memory", i.workers * MEMORY_BYTES_PER_SECOND)
    if i.link_bytes_per_second is not None and i.link_bytes_per_second < send.bytes_per_second:
        send = Ceiling("the network link", i.link_bytes_per_second)
    miss = 1.0 - p.hit_ratio
    apart = i.cold_concurrency is not None and (i.concurrency or 0.0) > i.cold_concurrency
    if miss <= 0 or apart:
        return send
    read = i.disk_read_bytes
    disks = i.disk.reads_per_second(read) * read / miss
    return send if send.bytes_per_second <= disks else Ceiling(BOUND_BY_DISKS, disks)
