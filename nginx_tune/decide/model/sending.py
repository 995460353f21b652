"""Waits behind answers that are being sent: large answers from memory, and slow links.

Without sendfile, a file is read through buffers and sent until the socket is full
(``SOCKET_BYTES``). A client on the server's own network that receives as fast as nginx sends gets
the whole file in one turn of the loop: no ``sendfile_max_chunk`` ends it, since each pass has only
two buffers. A thread pool ends the turn after every buffer, and with sendfile a chunk ends it.

If the way to the clients is slow (a shared link, or slow clients), a loop reads only as fast as
they receive. The loop then hardly waits for reads: the kernel reads a file's next window while the
previous window is sent. Only the first read of a file blocks the loop, in a queue with the
read-ahead of other files.

Source: ngx_output_chain(), ngx_http_write_filter(); a cell drawn at random, files of 20 MB among
        small ones over TLS, all in memory: small answers took 1.1 to 1.8 ms, 0.4 ms with pools.
"""

from typing import NamedTuple

from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import SizeGroup
from nginx_tune.decide.model.waiting import one_in_a_hundred

MEMORY_BYTES_PER_SECOND = 3e9
"""Cached bytes a second that one worker sends: 913-1081 x 4 MiB/s as measured, minus a margin for
the second core that pool threads used in that measurement."""
ENCRYPTED_BYTES_PER_SECOND = 1.2e9
"""Cached bytes a second over TLS, AES-256-GCM with AES-NI: 2 ms of CPU time for 2.6 MB, nginx
1.22.1."""
_PASS_BYTES_PER_SECOND = 14e9
"""Cached bytes a second that passes of ``sendfile()`` send without a pause. Source:
drawn-5309-039 under Reno, chunks of 128k to 2m: 13 to 14.6 GB/s."""
_BEARABLE = 0.7
"""Share of its time that a loop spends on sending and on the cost of pools, beyond which CPU time
is short, and pools would use more of it."""

_FULL = 0.99
"""Used share of a link's capacity from which it counts as full."""


def send_seconds(i: BlockingInputs, size_bytes: float) -> float:
    """CPU time in seconds to send ``size_bytes``."""
    return size_bytes / (ENCRYPTED_BYTES_PER_SECOND if i.encrypts else MEMORY_BYTES_PER_SECOND)


class TurnWait(NamedTuple):
    """The wait of other events behind answers that are sent in one turn."""

    mean_seconds: float
    p99_seconds: float


NO_TURNS = TurnWait(0.0, 0.0)


def turn_wait(i: BlockingInputs, offload_seconds: float) -> TurnWait:
    """Waits of one event behind answers that are sent in one turn; 0 if not known.

    The mean includes the time to send, but not the reads of the same turn, which count elsewhere;
    the 99th percentile is for whole turns. ``offload_seconds`` is the loop's time to offload one
    answer.
    Source: Pollaczek-Khinchine, W = lambda * E[S^2] / (2 * (1 - rho)), where S = send + read; of
            S^2, only send^2 and the product count here. An event meets a turn of S with
            probability lambda * S, and waits for its rest. drawn-7717-014, -031, drawn-5309-005:
            the 99th percentile of small answers was 5.6, 5.5 and 4.6 ms, with pools 2.2, 0.5 and
            0.6.
    """
    if not i.clients_keep_pace or not i.goes_on_bytes or not i.rate_per_second:
        return NO_TURNS
    if _sockets_fill(i, i.rate_per_second):
        return NO_TURNS
    each = i.rate_per_second / i.workers
    used = each * send_seconds(i, i.object_bytes)
    if used + each * offload_seconds > _BEARABLE:
        return NO_TURNS
    miss = i.miss_ratio
    squares, turns = 0.0, []
    for group in i.sizes or (SizeGroup(1.0, 1.0),):
        sends, reads = _send_and_read_seconds(i, group.over_mean * i.object_bytes)
        per_second = each * group.share
        squares += per_second * (sends**2 + 2 * miss * sends * reads)
        turns += [(per_second * (1 - miss), sends), (per_second * miss, sends + reads)]

    def longer(seconds: float) -> float:
        return sum(rate * max(0.0, turn - seconds) for rate, turn in turns)

    longest = max(turn for _, turn in turns)
    return TurnWait(squares / (2 * (1 - used)), one_in_a_hundred(longer, longest))


def _sockets_fill(i: BlockingInputs, requests_per_second: float) -> bool:
    """True if the way to the clients is full or slower than a loop: full sockets end the turns."""
    way = i.way_bytes_per_second
    if way is None:
        return False
    sends = i.object_bytes / send_seconds(i, i.object_bytes)
    return way < sends or requests_per_second * i.object_bytes >= _FULL * way


def _send_and_read_seconds(i: BlockingInputs, size_bytes: float) -> tuple[float, float]:
    pieces = max(1.0, size_bytes / i.longest_hold_bytes)
    reads = pieces * i.disk.latency_seconds + size_bytes / i.disk.bytes_per_second
    return send_seconds(i, size_bytes), reads


def chunk_wait_seconds(i: BlockingInputs, chunk_bytes: float) -> float:
    """Mean wait of one event behind files in memory that leave by ``sendfile()``.

    Other events run after each ``chunk_bytes`` of a transfer, so an event waits for one pass of
    each transfer in progress. The wait is 0 if clients are slower than the loop, so that sockets
    are full, or if not known.
    Source: drawn-5309-039 under Reno, 64 transfers of 9 MB among small ones on one worker: small
            answers took 2.8 ms with 2m, 2.1 with 1m, 1.3 with 512k and 0.57 with 128k. At a
            known rate, Pollaczek-Khinchine for passes.
    """
    if not i.clients_keep_pace or not i.sendfile_bytes:
        return 0.0
    passes = seconds = squares = 0.0
    for group in i.sizes or (SizeGroup(1.0, 1.0),):
        size = group.over_mean * i.object_bytes
        counted = max(1.0, size / chunk_bytes)
        each = size / counted / _PASS_BYTES_PER_SECOND
        passes += group.share * counted
        seconds += group.share * counted * each
        squares += group.share * counted * each**2
    come_round = (i.concurrency or 0.0) / i.workers * seconds / passes
    per_second = (i.rate_per_second or 0.0) / i.workers
    used = per_second * seconds
    if not per_second:
        return come_round
    if used >= 1:  # at least one transfer is always in progress
        return come_round or seconds / passes
    waits = per_second * squares / (2 * (1 - used))
    return min(waits, come_round) if come_round else waits


def way_bound(i: BlockingInputs, loop_seconds: float) -> float | None:
    """Requests a second if the way to the clients is the bottleneck; None if it is not.

    ``loop_seconds`` is the time of a request on a loop without pools whose clients wait for
    answers.
    """
    way = i.way_bytes_per_second
    if way is None:
        return None
    most = way / i.object_bytes
    if i.rate_per_second is not None:
        return most if i.rate_per_second > most else None
    if not i.concurrency:
        return None
    return most if i.concurrency > most * (loop_seconds + i.think_seconds) else None


def asked_of_way(i: BlockingInputs) -> float | None:
    """Ratio of an open request rate's demand to the capacity of the way to the clients.

    Above 1, requests pile up until clients give up or connections run out: neither a loop nor the
    page cache has a steady state. None if clients wait for answers, or the capacity is not known.
    Source: drawn-8842-034, a demand of a third more than a link of 200 Mbit/s carries: memory
            answered 0.43 of the requests, predicted 0.53 to 0.68, and loops were blocked for 0.25
            of the time, predicted 0.03 to 0.07.
    """
    way = i.way_bytes_per_second
    if way is None or i.rate_per_second is None:
        return None
    return i.rate_per_second * i.object_bytes / way


def first_reads(
    i: BlockingInputs, requests_per_second: float, missing: float, *, is_bound: bool
) -> tuple[float, float] | None:
    """The time of a read, and the share of time in reads, if only each file's first read blocks.

    The clients are then so slow that read-ahead has each window in memory before they need it.
    ``is_bound`` is true if the way to the clients is the bottleneck; a link that is not full may
    still be slower than the disk.

    None if the disk takes longer to read a window than the clients take to receive one. The disk
    positions again only if it has read something else since the last window.
    Source: Linux mm/readahead.c, page_cache_async_ra(): the next window is requested when the first
            pages of this one are touched; the queue as in M/M/1. Measured: 20-MB files over 200
            Mbit/s from a hard disk blocked loops for 4.7 % of the time; 45-MB files over such a
            link for 1.0 %, where files read in one go would have blocked them for 2.7 %
            (drawn-4201-000).
    """
    taken = _taken_bytes_per_second(i, requests_per_second, is_bound=is_bound)
    if taken is None or not i.turn_bytes or taken >= i.disk.bytes_per_second:
        return None
    misses = requests_per_second * missing
    busy = misses * i.turns_per_miss * i.disk.read_seconds(i.object_bytes / i.turns_per_miss)
    busy /= i.disk.heads_for(i.object_bytes / i.turns_per_miss)
    if busy >= 1:
        return None
    hold = i.disk.read_seconds(i.disk_read_bytes) / (1 - busy)
    ahead_bytes = i.turn_bytes / 2
    next_seconds = ahead_bytes / i.disk.bytes_per_second + busy * i.disk.latency_seconds
    if next_seconds / (1 - busy) > ahead_bytes / taken:
        return None
    return hold, min(1.0, misses * hold / i.workers)


def _taken_bytes_per_second(
    i: BlockingInputs, requests_per_second: float, *, is_bound: bool
) -> float | None:
    """Bytes a second at which a client receives one file; None if not known.

    If the way to the clients is the bottleneck, all of them share it. Otherwise the transfers in
    progress share the link. Their number is rho / (1 - rho) by processor sharing, and at least 1.
    """
    way = i.way_bytes_per_second
    if is_bound and way is not None:
        return way / (i.concurrency or 1.0)
    if i.rate_per_second is None or i.disk_reads_per_miss <= 1:  # a file is a single read
        return None
    taken = [] if i.client_bytes_per_second is None else [i.client_bytes_per_second]
    if i.link_bytes_per_second is not None:
        used = requests_per_second * i.object_bytes / i.link_bytes_per_second
        others = used / (1 - used) if used < 1 else 1.0
        taken.append(i.link_bytes_per_second / max(1.0, others))
    return min(taken, default=None)
