"""Metrics made of several numbers of a measurement: shares and quotients.

Over several blocks the numbers are added before they are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nginx_tune.documents.measurement import Measurement
from nginx_tune.prove.latency import Reading

_FIRST_ERROR_STATUS = 400


def read_busiest_worker_ratio(blocks: Sequence[Measurement]) -> Reading:
    """Share of the connections that the busiest worker served, by its rank in each block.

    Every block starts new processes, so what is added is the largest number of each.
    """
    if not blocks or not all(block.server.served_connections for block in blocks):
        return Reading(None, "the connections of the workers were not counted")
    most = sum(max(block.server.served_connections.values()) for block in blocks)
    return Reading(most / sum(sum(block.server.served_connections.values()) for block in blocks))


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


RATIOS: dict[str, Callable[[Sequence[Measurement]], Reading]] = {
    "server.busiest_worker_ratio": read_busiest_worker_ratio,
    "server.pool_overflow_per_truncated": read_overflow_per_truncated,
}
COUNTS: dict[str, Callable[[Sequence[Measurement]], Reading]] = {
    "total.error_statuses": read_error_statuses,
}
