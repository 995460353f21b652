"""The plain numbers of a measurement that are metrics: their unit, and how blocks add up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nginx_tune.documents.verdict import BetterWhen, Unit

Combine = Callable[[list[float]], float]


def _average(values: list[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class PlainNumber:
    """How a plain number of a class, of all classes or of the server is read."""

    unit: Unit
    better_when: BetterWhen
    combine: Combine
    field: str
    """Dotted name inside its part of the document."""


CLASS_NUMBERS = {
    number.field: number
    for number in (
        PlainNumber("per_second", "higher", _average, "requests_per_second"),
        PlainNumber("bytes_per_second", "higher", _average, "bytes_per_second"),
        PlainNumber("count", "higher", math.fsum, "requests"),
        PlainNumber("bytes", "higher", math.fsum, "bytes"),
        PlainNumber("count", "higher", math.fsum, "intended"),
        PlainNumber("count", "lower", math.fsum, "truncated"),
        PlainNumber("count", "lower", math.fsum, "censored"),
        PlainNumber("count", "lower", math.fsum, "limited"),
        PlainNumber("count", "lower", math.fsum, "connections_opened"),
        PlainNumber("count", "lower", math.fsum, "retried"),
        PlainNumber("count", "lower", math.fsum, "stray"),
        PlainNumber("count", "lower", math.fsum, "syn_retries"),
        PlainNumber("count", "lower", math.fsum, "retransmits"),
        PlainNumber("count", "lower", math.fsum, "at_cap"),
        PlainNumber("count", "lower", max, "max_pending"),
    )
}

TOTALS = (
    "requests_per_second", "bytes_per_second", "requests", "bytes", "intended", "truncated",
    "censored", "limited", "connections_opened", "at_cap",
)  # fmt: skip

PART_NUMBERS = {
    "server": {
        number.field: number
        for number in (
            PlainNumber("count", "lower", math.fsum, "pool_overflow"),
            PlainNumber("count", "lower", math.fsum, "listen_overflows"),
            PlainNumber("count", "lower", math.fsum, "listen_drops"),
            PlainNumber("seconds", "lower", math.fsum, "block_io_delay_seconds"),
            PlainNumber("seconds", "lower", math.fsum, "cpu_seconds"),
            PlainNumber("seconds", "lower", _average, "cpu_seconds_per_request"),
            PlainNumber("ratio", "lower", _average, "loop_turn_seconds.blocked_ratio"),
            PlainNumber("seconds", "lower", math.fsum, "loop_turn_seconds.blocked_seconds"),
            PlainNumber("seconds", "lower", math.fsum, "loop_turn_seconds.busy_seconds"),
            PlainNumber("ratio", "lower", _average, "state_d_ratio"),
            PlainNumber("count", "neither", _average, "host_load"),
            PlainNumber("ratio", "neither", _average, "iowait_ratio"),
            PlainNumber("seconds", "lower", math.fsum, "run_queue_seconds"),
            PlainNumber("count", "lower", math.fsum, "operations_too_slow"),
            PlainNumber("count", "lower", math.fsum, "connections_exhausted"),
            PlainNumber("count", "lower", math.fsum, "read_errors"),
            PlainNumber("count", "lower", math.fsum, "open_seconds.count"),
            PlainNumber("count", "lower", math.fsum, "rename_seconds.count"),
            PlainNumber("count", "lower", math.fsum, "refaults"),
            PlainNumber("seconds", "lower", _average, "observer_cpu_seconds"),
            PlainNumber("bytes", "lower", math.fsum, "disk_read_bytes"),
            PlainNumber("bytes", "lower", math.fsum, "disk_written_bytes"),
            PlainNumber("bytes", "higher", _average, "resident_bytes_before"),
            PlainNumber("bytes", "higher", _average, "resident_bytes_after"),
        )
    },
    "generator": {
        number.field: number
        for number in (
            PlainNumber("seconds", "lower", math.fsum, "cpu_seconds"),
            PlainNumber("ratio", "lower", _average, "cpu_ratio"),
            PlainNumber("bytes", "lower", max, "max_rss_bytes"),
        )
    },
}
