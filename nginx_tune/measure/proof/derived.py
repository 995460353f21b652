"""Metrics made of several numbers of a measurement: shares and quotients.

Over several blocks the numbers are added before they are divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.measure.proof.latency import LatencySample, Reading, read_statistic, sample_of

_FIRST_ERROR_STATUS = 400


class Derived(NamedTuple):
    """How such a metric is read."""

    unit: Unit
    read: Callable[[Sequence[Measurement]], Reading]
    better_when: BetterWhen = "lower"


def read_busiest_worker_ratio(blocks: Sequence[Measurement]) -> Reading:
    """Share of the connections that the busiest worker served, by its rank in each block.

    Every block starts new processes, so what is added is the largest number of each.
    """
    if not blocks or not all(block.server.served_connections for block in blocks):
        return Reading(None, "the connections of the workers were not counted")
    most = sum(max(block.server.served_connections.values()) for block in blocks)
    return Reading(most / sum(sum(block.server.served_connections.values()) for block in blocks))


def read_busiest_worker_request_ratio(blocks: Sequence[Measurement]) -> Reading:
    """Share of the good answers that the busiest worker gave, by its rank in each block.

    With connections that are kept a worker's share is decided when they are opened, and stays.
    """
    told = [
        sum((Counter(part.workers) for part in block.classes.values()), Counter())
        for block in blocks
    ]
    if not told or not all(told):
        return Reading(None, "the answers did not tell their worker")
    return Reading(sum(max(c.values()) for c in told) / sum(c.total() for c in told))


def read_busiest_worker_cpu_ratio(blocks: Sequence[Measurement]) -> Reading:
    """Share of the workers' CPU time that the busiest of them used, by its rank in each block."""
    used = [[worker.cpu_seconds for worker in block.server.workers] for block in blocks]
    known = [[seconds for seconds in each if seconds is not None] for each in used]
    if not known or any(len(a) < len(b) for a, b in zip(known, used, strict=True)):
        return Reading(None, "the CPU time of the workers was not read")
    total = sum(map(sum, known))
    if not total:
        return Reading(None, "the workers used no CPU time")
    return Reading(sum(map(max, known)) / total)


def read_overflow_per_truncated(blocks: Sequence[Measurement]) -> Reading:
    """Lines on a pool's overflow in the error log, for each body that was cut short."""
    lines = [block.server.pool_overflow for block in blocks]
    cut = sum(part.truncated for block in blocks for part in block.classes.values())
    if not lines or None in lines:
        return Reading(None, "the error log was not read")
    if not cut:
        return Reading(None, "no body was cut short")
    return Reading(sum(line or 0 for line in lines) / cut)


def read_error_statuses(blocks: Sequence[Measurement]) -> Reading:
    """Answers whose status says error: all that a look at statuses alone can see."""
    if not blocks or not all(block.classes for block in blocks):
        return Reading(None, "no valid block")
    return Reading(
        float(
            sum(
                count
                for block in blocks
                for part in block.classes.values()
                for status, count in part.statuses.items()
                if int(status) >= _FIRST_ERROR_STATUS
            )
        )
    )


def read_loop_turn_per_ttfb(blocks: Sequence[Measurement], name: str, statistic: str) -> Reading:
    """A statistic of the loop turns by the same one of a class's time to first byte.

    Near 1, what a client waits for is the turn that the loop was in when its request came.
    """
    turns, waits = [], []
    for block in blocks:
        part, turn = block.classes.get(name), block.server.loop_turn_seconds
        if part is None or turn is None:
            lacking = f"no class '{name}'" if part is None else "no loop turns"
            return Reading(None, f"block {block.block} has {lacking}")
        turns.append(LatencySample(turn))
        waits.append(sample_of(part, "ttfb_seconds"))
    turn_reading, wait = read_statistic(turns, statistic), read_statistic(waits, statistic)
    if turn_reading.value is None or not wait.value:
        return turn_reading if turn_reading.value is None else wait
    return Reading(turn_reading.value / wait.value)


def read_open_per_blocked(blocks: Sequence[Measurement]) -> Reading:
    """Time that main threads were in open(), by the time that their loops waited for disks."""
    inside, blocked = 0.0, 0.0
    for block in blocks:
        opens, turns = block.server.open_seconds, block.server.loop_turn_seconds
        if opens is None:
            return Reading(None, "the calls of open() were not counted")
        if turns is None or turns.blocked_seconds is None or not turns.traced_ratio:
            return Reading(None, "the loop turns were not traced")
        inside += (opens.mean or 0.0) * opens.count
        blocked += turns.blocked_seconds / turns.traced_ratio
    if not blocked:
        return Reading(None, "no loop waited for a disk" if blocks else "no valid block")
    return Reading(inside / blocked)


def read_pool_threads(blocks: Sequence[Measurement]) -> Reading:
    """Threads of a worker's pools: all but its main one; of the worker with the most."""
    counted = [[w.threads for w in block.server.workers] for block in blocks]
    known = [[number for number in numbers if number is not None] for numbers in counted]
    if not known or not all(known):
        return Reading(None, "the threads of the workers were not counted")
    return Reading(float(max(map(max, known)) - 1))


def read_virtual_bytes(blocks: Sequence[Measurement]) -> Reading:
    """Address space of a worker, mean."""
    sizes = [w.virtual_bytes for block in blocks for w in block.server.workers]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return Reading(None, "the address space of the workers was not read")
    return Reading(sum(known) / len(known))


def read_disk_reads_per_open(blocks: Sequence[Measurement]) -> Reading:
    """Reads that calls of open() asked of disks, by these calls."""
    if not blocks or not all(block.server.open_disk_reads for block in blocks):
        return Reading(None, "the disk reads of open() were not counted")
    return Reading(
        sum(int(n) * count for block in blocks for n, count in block.server.open_disk_reads.items())
        / sum(sum(block.server.open_disk_reads.values()) for block in blocks)
    )


def read_most_disk_reads(blocks: Sequence[Measurement]) -> Reading:
    """The most reads that one call of open() asked of disks."""
    if not blocks or not all(block.server.open_disk_reads for block in blocks):
        return Reading(None, "the disk reads of open() were not counted")
    return Reading(float(max(int(n) for block in blocks for n in block.server.open_disk_reads)))


DERIVED: dict[str, Derived] = {
    "server.busiest_worker_ratio": Derived("ratio", read_busiest_worker_ratio),
    "server.busiest_worker_request_ratio": Derived("ratio", read_busiest_worker_request_ratio),
    "server.busiest_worker_cpu_ratio": Derived("ratio", read_busiest_worker_cpu_ratio),
    "server.pool_overflow_per_truncated": Derived("ratio", read_overflow_per_truncated),
    "server.open_per_blocked": Derived("ratio", read_open_per_blocked),
    "total.error_statuses": Derived("count", read_error_statuses),
    "server.pool_threads": Derived("count", read_pool_threads, "neither"),
    "server.virtual_bytes": Derived("bytes", read_virtual_bytes, "neither"),
    "server.disk_reads_per_open": Derived("ratio", read_disk_reads_per_open),
    "server.most_disk_reads_of_an_open": Derived("count", read_most_disk_reads),
}
