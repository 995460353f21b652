"""Cold reads of several loops that share the heads of the disks, at a known request rate."""

import math

from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import mean_pieces

_MOST_FILES = 128
"""Smallest number of concurrent files up to which the sum is computed, unless its terms vanish."""
_NEGLIGIBLE = 1e-9


def open_reads(i: BlockingInputs, reads_per_second: float) -> tuple[float, float]:
    """Time for which one cold read holds its loop, and the share of time that loops are blocked.

    The first read of a file positions the disk; later reads continue there, unless something else
    was read in between. A loop turns to another transfer after ``longest_hold_bytes``. A long read
    takes several read-ahead windows, and after each window the disk may read for another loop. A
    head that serves two loops moves back and forth between their files, so both take longer, and
    more files overlap. The number of concurrent files is a birth-death process; each file is on a
    random loop (``_spread``) and a random head. If the number grows without bound, all loops are
    blocked. Stalls are not included.

    Source: M/M(n)/1, Kleinrock, Queueing Systems 1 (1975), 3.2, held against a simulated disk in
            tests/model/test_model_simulated.py.
    """
    reads, turns, heads = i.holds_per_miss, i.turns_per_miss, max(1.0, i.disk.heads)
    on_end = _on_end(i)
    files_per_second = reads_per_second / reads
    latency = i.disk.moving_latency_seconds
    transfer = reads * i.hold_bytes / i.disk.bytes_per_second
    if files_per_second <= 0:
        return (latency + transfer) / reads, 0.0
    bound = i.disk.bound_of(reads * i.hold_bytes, reads)
    fastest = min(min(i.workers, heads) / (latency + transfer), bound)
    if files_per_second >= fastest:
        return i.workers / reads_per_second, 1.0
    most = max(_MOST_FILES, 4 * math.ceil(min(i.workers, heads)))
    weight = total = 1.0
    active_loops = 0.0
    for files in range(1, most + 1):
        active, loop_apart, elsewhere = _spread(files, i.workers)
        head_apart = (1 - elsewhere / heads) ** (files - 1)
        positions = 1 + (on_end - 1) * (1 - loop_apart * head_apart)
        positions += (turns - on_end) * (1 - head_apart)
        per_second = min(min(active, heads) / (latency * positions + transfer), bound)
        weight *= files_per_second / per_second
        total += weight
        if math.isinf(total) or (files == most and files_per_second >= per_second):
            return i.workers / reads_per_second, 1.0
        active_loops += weight * active
        if weight < _NEGLIGIBLE * total and files_per_second < per_second:
            break
    blocked = active_loops / total / i.workers
    return blocked * i.workers / reads_per_second, blocked


def crowded_hold(i: BlockingInputs) -> float:
    """Time for which one cold read blocks its loop while all loops read without a pause.

    It is the limit of ``open_reads`` for many files: a head that serves several loops moves to
    another file after each turn. So no read that the disk keeps up with takes longer.
    """
    reads, heads = i.holds_per_miss, max(1.0, i.disk.heads)
    positions = i.turns_per_miss if i.workers > 1 else _on_end(i)
    transfer = i.object_bytes / i.disk.bytes_per_second
    files_per_second = min(
        min(i.workers, heads) / (i.disk.moving_latency_seconds * positions + transfer),
        i.disk.bound_of(i.object_bytes, reads),
    )
    return i.workers / (files_per_second * reads)


def _on_end(i: BlockingInputs) -> float:
    """Number of pieces of one cold object; after each, the loop turns to other transfers."""
    return min(i.holds_per_miss, mean_pieces(i.object_bytes, i.sizes, i.longest_hold_bytes))


def apart_ratio(i: BlockingInputs, files_per_second: float) -> float:
    """Share of time that each loop is blocked while no two files overlap.

    Once two files overlap, the head's movement between them may take so long that more files arrive
    than are finished. From then on files always overlap. A measurement of some seconds sees one of
    the two states by chance.
    Source: drawn-6151-009, files of 9 MB over TLS from one disk to two loops: 0.13 in each of four
            blocks, 0.97 in the long run.
    """
    each = i.disk.moving_latency_seconds + i.object_bytes / i.disk.bytes_per_second
    return min(1.0, files_per_second * each / i.workers)


def _spread(files: int, loops: int) -> tuple[float, float, float]:
    """The distribution of concurrent files over the loops, each on the loop of its connection.

    Shape: the mean number of loops with a file, the chance that a file has its loop to itself, and
    the chance that another file is on another loop.

    Workers do not share a listen queue evenly: the kernel wakes the last waiter first, and a
    keepalive connection stays with its worker (source rows B2 and B3). Every division counts as
    equally likely.

    Source: Bose-Einstein statistics, Feller, An Introduction to Probability Theory 1 (1968), II.5
            and V.2 (Polya's urn).
    """
    active = loops * files / (loops + files - 1)
    elsewhere = (loops - 1) / (loops + 1)
    if files == 1:
        return active, 1.0, elsewhere
    alone = loops * (loops - 1) / ((loops + files - 1) * (loops + files - 2))
    return active, alone, elsewhere
