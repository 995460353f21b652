"""Where the way to the clients is slow: a link that all share, or clients that take little.

A loop then reads as fast as clients take, however many there are. And, whether the way is full or
not, it hardly waits for what it reads: the kernel has asked for a file's next window when the loop
comes to it, and the disk has all the time that the clients take for the window before. Only the
first read of a file, which nobody asked for beforehand, holds the loop, in a queue with those that
run ahead.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.decide.model.inputs import BlockingInputs


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


def asked_of_way(i: BlockingInputs) -> float | None:
    """What requests that come by themselves ask of the way, over what it carries; above 1 too much.

    More and more of them are then under way, until clients give up or connections run out: there
    is no state that a loop or the page cache comes to. None where requests wait for answers, or
    nothing is known of the way.
    Source: drawn-8842-034, a link of 200 Mbit/s asked for a third more than it carries: memory
            answered 0.43 of the requests for 0.53 to 0.68, and loops stood 0.25 of the time for
            0.03 to 0.07.
    """
    way = i.way_bytes_per_second
    if way is None or i.rate_per_second is None:
        return None
    return i.rate_per_second * i.object_bytes / way


def first_reads(
    i: BlockingInputs, requests_per_second: float, missing: float, *, is_bound: bool
) -> FirstReads | None:
    """What holds the loops where clients take so little that the read-ahead keeps before them.

    ``is_bound``: whether the way is what bounds the requests. It needs not be: a link that is used
    now and then still takes each file more slowly than the disk gives it.

    None where the read-ahead does not keep before: the disk then takes longer for a window than
    the clients. It goes on where it stands, unless it has read something else in between.
    Source: Linux mm/readahead.c, page_cache_async_ra(): the window after this one is asked for
            when this one's first pages are touched; the queue as in M/M/1. Measured: 20-MB files
            over 200 Mbit/s from a hard disk, loops stood 4.7 % of the time; 45-MB files over such
            a link, 1.0 % where files read on end would be 2.7 (drawn-4201-000).
    """
    taken = _taken_bytes_per_second(i, requests_per_second, is_bound=is_bound)
    if taken is None or not i.turn_bytes or taken >= i.disk.bytes_per_second:
        return None
    misses = requests_per_second * missing
    busy = misses * i.turns_per_miss * i.disk.read_seconds(i.object_bytes / i.turns_per_miss)
    busy /= max(1.0, i.disk.heads)
    if busy >= 1:
        return None
    hold = i.disk.read_seconds(i.disk_read_bytes) / (1 - busy)
    ahead_bytes = i.turn_bytes / 2
    next_seconds = ahead_bytes / i.disk.bytes_per_second + busy * i.disk.latency_seconds
    if next_seconds / (1 - busy) > ahead_bytes / taken:
        return None
    return FirstReads(hold, min(1.0, misses * hold / i.workers))


def _taken_bytes_per_second(
    i: BlockingInputs, requests_per_second: float, *, is_bound: bool
) -> float | None:
    """What the way takes of one file; None where nothing is known of it.

    A way that bounds is shared by all clients. One that does not by those that are under way:
    by processor sharing rho / (1 - rho), and one of them at least.
    """
    way = i.way_bytes_per_second
    if is_bound and way is not None:
        return way / (i.concurrency or 1.0)
    if i.rate_per_second is None or i.disk_reads_per_miss <= 1:  # the first read is all there is
        return None
    taken = [] if i.client_bytes_per_second is None else [i.client_bytes_per_second]
    if i.link_bytes_per_second is not None:
        used = requests_per_second * i.object_bytes / i.link_bytes_per_second
        others = used / (1 - used) if used < 1 else 1.0
        taken.append(i.link_bytes_per_second / max(1.0, others))
    return min(taken, default=None)
