"""Metrics that are numbers of a measurement: their units, and how runs are combined.

A quotient of two numbers is computed from their sums over the runs.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nginx_tune.documents.measured_class import Http3Streams
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.measure.proof.latency import LatencySample, Reading, read_statistic, sample_of

Combine = Callable[[list[float]], float]


def _average(values: list[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class PlainNumber:
    """A plain number of a class, of all classes, of the server or of the probe."""

    unit: Unit
    better_when: BetterWhen
    combine: Combine
    field: str
    """The dotted name inside its part of the document."""


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

TOTALS = tuple(name for name, number in CLASS_NUMBERS.items() if number.combine is not max)
"""The numbers that add up over the classes."""

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


_FIRST_ERROR_STATUS = 400


class Derived(NamedTuple):
    """A metric computed from several numbers."""

    unit: Unit
    read: Callable[[Sequence[Measurement]], Reading]
    better_when: BetterWhen = "lower"


def read_busiest_worker_ratio(runs: Sequence[Measurement]) -> Reading:
    """The share of connections that each run's busiest worker served."""
    if not runs or not all(run.server.served_connections for run in runs):
        return Reading(None, "the connections of the workers were not counted")
    most = sum(max(run.server.served_connections.values()) for run in runs)
    return Reading(most / sum(sum(run.server.served_connections.values()) for run in runs))


def read_busiest_worker_request_ratio(runs: Sequence[Measurement]) -> Reading:
    """The share of good answers that each run's busiest worker gave.

    With keepalive, a worker's share is decided when connections are accepted.
    """
    counts = [
        sum((Counter(part.workers) for part in run.classes.values()), Counter()) for run in runs
    ]
    if not counts or not all(counts):
        return Reading(None, "the answers did not name their worker")
    return Reading(sum(max(c.values()) for c in counts) / sum(c.total() for c in counts))


def read_busiest_worker_cpu_ratio(runs: Sequence[Measurement]) -> Reading:
    """The share of the workers' CPU time that each run's busiest worker used."""
    used = [[worker.cpu_seconds for worker in run.server.workers] for run in runs]
    known = [[seconds for seconds in each if seconds is not None] for each in used]
    if not known or any(len(a) < len(b) for a, b in zip(known, used, strict=True)):
        return Reading(None, "the CPU time of the workers was not read")
    total = sum(map(sum, known))
    if not total:
        return Reading(None, "the workers used no CPU time")
    return Reading(sum(map(max, known)) / total)


def read_overflow_per_truncated(runs: Sequence[Measurement]) -> Reading:
    """Pool overflow lines in the error log per truncated body."""
    lines = [run.server.pool_overflow for run in runs]
    cut = sum(part.truncated for run in runs for part in run.classes.values())
    if not lines or None in lines:
        return Reading(None, "the error log was not read")
    if not cut:
        return Reading(None, "no body was truncated")
    return Reading(sum(line or 0 for line in lines) / cut)


def read_error_statuses(runs: Sequence[Measurement]) -> Reading:
    """Answers with a status of 400 or above: the only failures that statuses show."""
    if not runs or not all(run.classes for run in runs):
        return Reading(None, "no valid run")
    return Reading(
        float(
            sum(
                count
                for run in runs
                for part in run.classes.values()
                for status, count in part.statuses.items()
                if int(status) >= _FIRST_ERROR_STATUS
            )
        )
    )


def read_loop_turn_per_ttfb(runs: Sequence[Measurement], name: str, statistic: str) -> Reading:
    """A statistic of the loop turns, divided by that of a class's time to first byte.

    Near 1, clients wait for the loop turn in progress when their request arrives.
    """
    turns, waits = [], []
    for run in runs:
        part, turn = run.classes.get(name), run.server.loop_turn_seconds
        if part is None or turn is None:
            missing = f"class '{name}'" if part is None else "loop turns"
            return Reading(None, f"run {run.number} has no {missing}")
        turns.append(LatencySample(turn))
        waits.append(sample_of(part, "ttfb_seconds"))
    turn_reading, wait = read_statistic(turns, statistic), read_statistic(waits, statistic)
    if turn_reading.value is None or not wait.value:
        return turn_reading if turn_reading.value is None else wait
    return Reading(turn_reading.value / wait.value)


def read_open_per_blocked(runs: Sequence[Measurement]) -> Reading:
    """The main threads' time in open(), divided by the time their loops waited for disks."""
    inside, blocked = 0.0, 0.0
    for run in runs:
        opens, turns = run.server.open_seconds, run.server.loop_turn_seconds
        if opens is None:
            return Reading(None, "the calls of open() were not counted")
        if turns is None or turns.blocked_seconds is None or not turns.traced_ratio:
            return Reading(None, "the loop turns were not traced")
        inside += (opens.mean or 0.0) * opens.count
        blocked += turns.blocked_seconds / turns.traced_ratio
    if not blocked:
        return Reading(None, "no loop waited for a disk" if runs else "no valid run")
    return Reading(inside / blocked)


def read_pool_threads(runs: Sequence[Measurement]) -> Reading:
    """Maximum number of pool threads of a worker: all threads but its main thread."""
    counted = [[w.threads for w in run.server.workers] for run in runs]
    known = [[number for number in numbers if number is not None] for numbers in counted]
    if not known or not all(known):
        return Reading(None, "the threads of the workers were not counted")
    return Reading(float(max(map(max, known)) - 1))


def read_virtual_bytes(runs: Sequence[Measurement]) -> Reading:
    """The mean address space of a worker, in bytes."""
    sizes = [w.virtual_bytes for run in runs for w in run.server.workers]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return Reading(None, "the address space of the workers was not read")
    return Reading(sum(known) / len(known))


def read_disk_reads_per_open(runs: Sequence[Measurement]) -> Reading:
    """Disk reads per call of open()."""
    if not runs or not all(run.server.open_disk_reads for run in runs):
        return Reading(None, "the disk reads of open() were not counted")
    return Reading(
        sum(int(n) * count for run in runs for n, count in run.server.open_disk_reads.items())
        / sum(sum(run.server.open_disk_reads.values()) for run in runs)
    )


def read_most_disk_reads(runs: Sequence[Measurement]) -> Reading:
    """Maximum number of disk reads of one call of open()."""
    if not runs or not all(run.server.open_disk_reads for run in runs):
        return Reading(None, "the disk reads of open() were not counted")
    return Reading(float(max(int(n) for run in runs for n in run.server.open_disk_reads)))


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


class QuicNumber(NamedTuple):
    """A counter of QUIC connections."""

    unit: Unit
    better_when: BetterWhen
    field: str


QUIC_FIGURES: dict[str, QuicNumber] = {"lost_packets": QuicNumber("count", "lower", "lost_packets")}
"""The counters of QUIC connections, by their name in gates."""


def read_quic(runs: Sequence[Measurement], name: str, number: QuicNumber) -> Reading:
    """The sum of a QUIC counter of a class over all runs."""
    parts: list[Http3Streams] = []
    for run in runs:
        part = run.classes.get(name)
        if part is None or part.http3 is None:
            missing = f"class '{name}'" if part is None else f"HTTP/3 in class '{name}'"
            return Reading(None, f"run {run.number} has no {missing}")
        parts.append(part.http3)
    if not parts:
        return Reading(None, "no valid run")
    return Reading(math.fsum(getattr(part, number.field) for part in parts))
