"""Where the way to the clients is slow: a link that all share, or clients that take little.

A loop then reads as fast as clients take, however many there are. And it hardly waits for what it
reads: the kernel has asked for a file's next window when the loop comes to it, and the disk has
all the time that the clients take for the window before. Only the first read of a file, which
nobody asked for beforehand, holds the loop, in a queue with those that run ahead.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.model.inputs import BlockingInputs


class FirstReads(NamedTuple):
    """Of loops that wait for the first read of a file alone."""

    hold_seconds: float
    utilisation: float
    """Share of time that each loop stands in them."""


def way_bound(i: BlockingInputs, loop_seconds: float) -> float | None:
    """Requests a second where the way to the clients bounds them; None where something else does.

    ``loop_seconds`` is what a request takes on a loop without pools whose clients wait for
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


def first_reads(i: BlockingInputs, requests_per_second: float, missing: float) -> FirstReads | None:
    """What holds the loops where clients take so little that the read-ahead keeps before them.

    None where it does not: the disk then takes longer for a window than the clients.
    Source: Linux mm/readahead.c, page_cache_async_ra(): the window after this one is asked for
            when this one's first pages are touched; the queue as in M/M/1. Measured: 20-MB files
            over 200 Mbit/s from a hard disk, loops stood 4.7 % of the time.
    """
    way = i.way_bytes_per_second
    if way is None or not i.concurrency or not i.turn_bytes:
        return None
    misses = requests_per_second * missing
    busy = misses * i.turns_per_miss * i.disk.read_seconds(i.object_bytes / i.turns_per_miss)
    left = 1 - busy / max(1.0, i.disk.heads)
    if left <= 0:
        return None
    hold = i.disk.read_seconds(i.disk_read_bytes) / left
    ahead_seconds = i.turn_bytes / 2 / (way / i.concurrency)
    if hold > ahead_seconds:
        return None
    return FirstReads(hold, min(1.0, misses * hold / i.workers))
