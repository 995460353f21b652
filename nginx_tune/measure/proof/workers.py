"""Worker processes under load: how evenly work is spread, how long they wait, who else was at work.

A connection stays with the worker that took it, so of kept connections it is the *connections*
that are dealt, not the requests: a small p-value of requests alone may only say that there were
few connections. Source of the comparison: a multinomial with equal chances, Pearson's chi-square.

CPU time that neither the probe nor the server used is interference: others' work makes latencies
longer that are taken for the server's. It falls on both variants of a comparison alike, so it
degrades a measurement, and discards no run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.documents.measured_class import ClassMeasurement, Imbalance
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text

FEWEST_CONNECTIONS = 5
"""For each worker, on average, where workers are to be compared: of fewer, dealt by equal chances,
a worker often has none, or twice its share."""

_FEW_CONNECTIONS = "few_connections"


def imbalance_of(counts: Iterable[float]) -> Imbalance | None:
    """The imbalance of counts, one of each worker, idle ones too; None for fewer than two."""
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
    """The chance that a chi-square variable passes ``statistic``.

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
    """The measurement with other ids for its workers: those that its server is known by here."""
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
    """The measurement with the imbalance of each class whose workers are told.

    ``workers`` are the process ids that there are, so that idle ones count. Open loops with too
    few connections for the workers to be compared are flagged.
    """
    idle = {str(pid): 0 for pid in workers}
    classes = {name: _of_class(part, idle) for name, part in measurement.classes.items()}
    others = [flag for flag in measurement.flags if not flag.startswith(_FEW_CONNECTIONS)]
    few = [flag for name, part in classes.items() for flag in _few_connections(name, part)]
    return msgspec.structs.replace(measurement, classes=classes, flags=[*others, *few])


def _few_connections(name: str, part: ClassMeasurement) -> list[str]:
    """The note of a class that had too few connections, when it had.

    What a worker gets of a few connections is chance, whichever worker has most of them. A closed
    loop has as many as it has users: there it is what was asked for.
    """
    dealt, is_open = part.worker_connections, part.lateness_seconds.count > 0
    if dealt is None or not is_open:
        return []
    connections = sum(share.connections for share in part.worker_shares.values())
    return few_connections(name, connections, dealt.workers)


def few_connections(name: str, connections: int, workers: int) -> list[str]:
    """The flag that so many are too few for so many workers, when they are."""
    if workers < 2 or connections >= FEWEST_CONNECTIONS * workers:  # noqa: PLR2004  # nothing to compare
        return []
    flag = (
        f"{_FEW_CONNECTIONS}: {name}: {connections} connections over {workers} workers are too few "
        f"for the workers to be compared (fewer than {FEWEST_CONNECTIONS} each)"
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
    """Share of the workers' time in which their main threads waited for disks."""

    ratio: float
    worst: float
    """The share of the worker that waited most."""
    error: float | None
    method: WorkerMethod


def measure_blocked(server: ServerMeasurement, duration_seconds: float) -> Blocked | None:
    """The time that main threads waited for disks, by the surest of the methods that told."""
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
    """Arithmetic."""
    return math.fsum(values) / len(values)


MOST_FOREIGN_RATIO = 0.1
"""Share of the host's CPU time above which a result is degraded."""
_LEAST_WATCHED_RATIO = 0.8
"""Share of the measured time below which what was counted at the server is not of that time."""


def with_interference(measurement: Measurement, server_cpu_seconds: float | None) -> Measurement:
    """The measurement with the share of others, and a flag where that is too much.

    ``server_cpu_seconds`` is what the server used on the probe's host in the measured time: 0
    when it is on another host, None when it cannot be told (then nothing is judged).
    """
    generator = measurement.generator
    busy, everything = generator.host_busy_seconds, generator.host_cpu_seconds
    if server_cpu_seconds is None or busy is None or not everything:
        return measurement
    foreign = max(busy - generator.cpu_seconds - server_cpu_seconds, 0.0) / everything
    flags = list(measurement.flags)
    if foreign > MOST_FOREIGN_RATIO:
        flags.append(
            f"foreign_cpu: others than the probe and the server used {percent_text(foreign, 2)} of "
            "the host's CPU time"
        )
    return msgspec.structs.replace(
        measurement,
        generator=msgspec.structs.replace(generator, foreign_cpu_ratio=foreign),
        flags=flags,
    )


def with_late_watch(measurement: Measurement, watched_seconds: float) -> Measurement:
    """The measurement with a flag where the server was watched for too little of its time.

    A busy host can have the watch begin long after the probe's warm-up, or at its end: the CPU time
    and the turns that it then sees are those of a part, and the requests those of the whole. Unlike
    others' work this spoils one run alone, which is discarded for it.
    """
    measured = measurement.duration_seconds
    if watched_seconds >= _LEAST_WATCHED_RATIO * measured:
        return measurement
    flag = f"late_watch: the server was watched for {watched_seconds:.2f} s of {measured:.2f} s"
    return msgspec.structs.replace(measurement, flags=[*measurement.flags, flag])
