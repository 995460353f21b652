"""Worker processes under load: imbalance, waits for disks, and interference by other work.

A connection stays with the worker that accepted it. So with keepalive the *connections* are
distributed, not the requests, and a small p-value of requests may only mean few connections. The
test is Pearson's chi-square against equal shares.

CPU time that neither the probe nor the server used is interference, which lengthens latencies. It
affects both variants alike, so it degrades a measurement but discards no run.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.documents.measured_class import ClassMeasurement, Imbalance
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text

FEWEST_CONNECTIONS = 5
"""The mean number per worker below which workers cannot be compared: by chance alone, some worker
often has no connection or twice its share."""

_FEW_CONNECTIONS = "few_connections"


def imbalance_of(counts: Iterable[float]) -> Imbalance | None:
    """The imbalance of a count per worker, idle ones included; None for fewer than two workers."""
    shares = [float(count) for count in counts]
    total = math.fsum(shares)
    if len(shares) < 2 or total <= 0:  # noqa: PLR2004  # one worker has all
        return None
    mean = total / len(shares)
    squares = math.fsum((share - mean) ** 2 for share in shares)
    statistic = squares / mean
    return Imbalance(
        workers=len(shares),
        max_to_mean=max(shares) / mean,
        variation=math.sqrt(squares / len(shares)) / mean,
        chi_square=statistic,
        p_value=chi_square_tail(statistic, len(shares) - 1),
    )


def chi_square_tail(statistic: float, degrees: int) -> float:
    """The probability that a chi-square variable exceeds ``statistic``.

    Source: the recurrence Q(a + 1, z) = Q(a, z) + z^a e^-z / Γ(a + 1) of the incomplete gamma
    function, from Q(1/2, z) = erfc(√z) or Q(1, z) = e^-z; Abramowitz and Stegun 6.5.22.
    """
    if statistic <= 0:
        return 1.0
    half = statistic / 2
    order = 0.5 if degrees % 2 else 1.0
    tail = math.erfc(math.sqrt(half)) if degrees % 2 else math.exp(-half)
    while order < degrees / 2:
        tail += math.exp(order * math.log(half) - half - math.lgamma(order + 1))
        order += 1
    return min(tail, 1.0)


def with_worker_ids(measurement: Measurement, ids: Mapping[str, str]) -> Measurement:
    """The measurement with its workers' ids replaced by their ids outside of the sandbox."""
    classes = {
        name: msgspec.structs.replace(
            part,
            workers={ids.get(pid, pid): count for pid, count in part.workers.items()},
            worker_shares={ids.get(pid, pid): share for pid, share in part.worker_shares.items()},
        )
        for name, part in measurement.classes.items()
    }
    return msgspec.structs.replace(measurement, classes=classes)


def with_imbalance(measurement: Measurement, workers: Iterable[int] = ()) -> Measurement:
    """The measurement with the imbalance of each class whose answers name their worker.

    ``workers``: ids of all worker processes, so that idle ones count. Open loops with too few
    connections to compare workers are flagged.
    """
    idle = {str(pid): 0 for pid in workers}
    classes = {name: _of_class(part, idle) for name, part in measurement.classes.items()}
    others = [flag for flag in measurement.flags if not flag.startswith(_FEW_CONNECTIONS)]
    few = [flag for name, part in classes.items() for flag in _few_connections(name, part)]
    return msgspec.structs.replace(measurement, classes=classes, flags=[*others, *few])


def _few_connections(name: str, part: ClassMeasurement) -> list[str]:
    """The flag of an open-loop class with too few connections to compare workers, if any.

    A closed loop has as many connections as its users, as requested.
    """
    dealt, is_open = part.worker_connections, part.lateness_seconds.count > 0
    if dealt is None or not is_open:
        return []
    connections = sum(share.connections for share in part.worker_shares.values())
    return few_connections(name, connections, dealt.workers)


def few_connections(name: str, connections: int, workers: int) -> list[str]:
    """The flag for too few connections to compare this many workers, if it applies."""
    if workers < 2 or connections >= FEWEST_CONNECTIONS * workers:  # noqa: PLR2004  # nothing to compare
        return []
    flag = (
        f"{_FEW_CONNECTIONS}: {name}: too few connections to compare {workers} workers: "
        f"{connections} (fewer than {FEWEST_CONNECTIONS} each)"
    )
    return [flag]


def _of_class(part: ClassMeasurement, idle: dict[str, int]) -> ClassMeasurement:
    if not part.workers:
        return part
    connections = {pid: share.connections for pid, share in part.worker_shares.items()}
    return msgspec.structs.replace(
        part,
        worker_requests=imbalance_of({**idle, **part.workers}.values()),
        worker_connections=imbalance_of({**idle, **connections}.values()),
    )


WorkerMethod = Literal["sched_switch", "taskstats", "stat", "samples"]


class Blocked(NamedTuple):
    """The share of time in which the workers' main threads waited for disks."""

    ratio: float
    worst: float
    """The share of the worker that waited most."""
    error: float | None
    method: WorkerMethod


def measure_blocked(server: ServerMeasurement, duration_seconds: float) -> Blocked | None:
    """The share of time that main threads waited for disks, by the best method available."""
    workers = server.workers
    turns = server.loop_turn_seconds
    if turns is not None and turns.traced_ratio:
        seconds = duration_seconds * turns.traced_ratio
        # A wait that began before the window ends in it, so a share can come out above 1.
        shares = [min(1.0, (worker.loop_blocked_seconds or 0.0) / seconds) for worker in workers]
        return Blocked(mean(shares), max(shares), None, "sched_switch")
    waited = [worker.block_io_delay_seconds for worker in workers]
    known = [seconds / duration_seconds for seconds in waited if seconds is not None]
    if len(known) == len(workers):
        method: WorkerMethod = "stat" if server.block_io_delay_method == "stat" else "taskstats"
        return Blocked(mean(known), max(known), None, method)
    sampled = [worker for worker in workers if worker.state_d_ratio is not None]
    if not sampled:
        return None
    shares = [worker.state_d_ratio or 0.0 for worker in sampled]
    worst = max(sampled, key=lambda worker: worker.state_d_ratio or 0.0)
    return Blocked(mean(shares), max(shares), worst.state_d_error, "samples")


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return math.fsum(values) / len(values)


MOST_FOREIGN_RATIO = 0.1
"""The share of the host's CPU time above which a result is degraded."""
_LEAST_WATCHED_RATIO = 0.8
"""The share of the measured time for which the server must have been watched."""


def with_interference(measurement: Measurement, server_cpu_seconds: float | None) -> Measurement:
    """The measurement with the CPU share of other work, flagged if it is too large.

    ``server_cpu_seconds``: CPU time of the server on the probe's host in the measured time. 0 for a
    server on another host; None if unknown, and then nothing is flagged.
    """
    generator = measurement.generator
    busy, everything = generator.host_busy_seconds, generator.host_cpu_seconds
    if server_cpu_seconds is None or busy is None or not everything:
        return measurement
    foreign = max(busy - generator.cpu_seconds - server_cpu_seconds, 0.0) / everything
    flags = list(measurement.flags)
    if foreign > MOST_FOREIGN_RATIO:
        flags.append(
            f"foreign_cpu: processes other than the probe and the server used "
            f"{percent_text(foreign, 2)} of the host's CPU time"
        )
    return msgspec.structs.replace(
        measurement,
        generator=msgspec.structs.replace(generator, foreign_cpu_ratio=foreign),
        flags=flags,
    )


def with_late_watch(measurement: Measurement, watched_seconds: float) -> Measurement:
    """The measurement, flagged if the server was watched for too little of the time.

    On a busy host the watch may begin long after the warm-up. CPU time and loop turns then cover
    only a part of the run, but requests the whole. The flag discards the run.
    """
    measured = measurement.duration_seconds
    if watched_seconds >= _LEAST_WATCHED_RATIO * measured:
        return measurement
    flag = f"late_watch: the server was watched for {watched_seconds:.2f} s of {measured:.2f} s"
    return msgspec.structs.replace(measurement, flags=[*measurement.flags, flag])
