"""How long cold reads hold loops that share the disks' heads, where requests come by themselves."""

from __future__ import annotations

import math

from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.sizes import mean_pieces

_MOST_FILES = 128
"""Files under way at once that are reckoned with, at least."""
_NEGLIGIBLE = 1e-9


def open_reads(i: BlockingInputs, reads_per_second: float) -> tuple[float, float]:
    """Time that one cold read holds its loop, and the share of time that each loop stands in them.

    The first read of a file positions the disk; those that follow go on where it stands, unless
    something else was read in between. A loop turns to another of its transfers after what it reads
    on end (``longest_hold_bytes``). Another loop comes in after each turn of the read-ahead, of
    which a long read takes several: a head that serves two loops goes to and fro between their
    files, both take longer, and so more of them overlap. The number of files under way is a
    birth-death process; each is on some loop (``_spread``) and some head by chance. Loops are all
    blocked where it grows without end. Stalls of the disk are left out.

    Source: M/M(n)/1, Kleinrock, Queueing Systems 1 (1975), 3.2, held against a simulated disk in
            tests/model/test_model_simulated.py.
    """
    reads, turns, heads = i.holds_per_miss, i.turns_per_miss, max(1.0, i.disk.heads)
    on_end = min(reads, mean_pieces(i.object_bytes, i.sizes, i.longest_hold_bytes))
    files_per_second = reads_per_second / reads
    latency = i.disk.moving_latency_seconds
    transfer = reads * i.hold_bytes / i.disk.bytes_per_second
    if files_per_second <= 0:
        return (latency + transfer) / reads, 0.0
    fastest = min(i.workers, heads) / (latency + transfer)
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
        per_second = min(active, heads) / (latency * positions + transfer)
        weight *= files_per_second / per_second
        total += weight
        if math.isinf(total) or (files == most and files_per_second >= per_second):
            return i.workers / reads_per_second, 1.0
        active_loops += weight * active
        if weight < _NEGLIGIBLE * total and files_per_second < per_second:
            break
    blocked = active_loops / total / i.workers
    return blocked * i.workers / reads_per_second, blocked


def apart_ratio(i: BlockingInputs, files_per_second: float) -> float:
    """Share of time that each loop stands in cold reads while no two files are under way at once.

    So it is until two of them meet, and where going to and fro between them takes so long that more
    come than leave, it is never so again. Which of both some seconds are is chance.
    Source: drawn-6151-009, files of 9 MB over TLS from one disk to two loops: 0.13 in each of four
            blocks, 0.97 in the long run.
    """
    each = i.disk.moving_latency_seconds + i.object_bytes / i.disk.bytes_per_second
    return min(1.0, files_per_second * each / i.workers)


def _spread(files: int, loops: int) -> tuple[float, float, float]:
    """How so many files under way lie on the loops, each on that of its connection.

    The mean number of loops that have any, the chance that a file has its loop to itself, and the
    chance that another one is elsewhere. Workers that share a listen queue do not share it evenly:
    the kernel wakes first who came last to wait, and a kept connection stays where it is (B2, B3).
    Who gets how much cannot be known beforehand, so every division counts as much as any other.

    Source: Bose-Einstein statistics, Feller, An Introduction to Probability Theory 1 (1968), II.5
            and V.2 (Polya's urn).
    """
    active = loops * files / (loops + files - 1)
    elsewhere = (loops - 1) / (loops + 1)
    if files == 1:
        return active, 1.0, elsewhere
    alone = loops * (loops - 1) / ((loops + files - 1) * (loops + files - 2))
    return active, alone, elsewhere
