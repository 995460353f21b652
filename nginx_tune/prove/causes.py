"""What a window over a server shows: named, with the figures it stands on and what is not known.

Load average, iowait and the size of processes are no evidence: all three rise when thread pools
help. What counts is the main threads: a worker's loop serves nobody while it waits for a disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.measurement import LoopTurn, ServerMeasurement, WorkerUse
from nginx_tune.documents.observation import Cause, CauseEvidence
from nginx_tune.documents.units import bytes_text, number_text, seconds_text
from nginx_tune.prove.histogram import decode_histogram
from nginx_tune.prove.latency import Sample, read_statistic

BLOCKED_RATIO = 0.05
"""From this share of its time on a loop that waits for disks is named: an arrival in twenty finds
it blocked, which is where a p95 begins."""
_CLEAR_OF_ERROR = 2.0
"""Standard errors by which a sampled share must lie above zero."""
_SATURATED = 0.9
_CONTENDED = 0.2
_LONG_WAIT_SECONDS = 0.01
_UNEVEN = 2.0
_FEWEST_CONNECTIONS = 20
_LEAST_SECONDS = 1.0

Method = Literal["sched_switch", "taskstats", "stat", "samples"]


class Blocked(NamedTuple):
    """Share of the workers' time in which their main threads waited for disks."""

    ratio: float
    worst: float
    """Of the worker that waited most."""
    error: float | None
    method: Method


def find_causes(
    server: ServerMeasurement, *, duration_seconds: float, unknown: Sequence[Unknown] = ()
) -> list[Cause]:
    """The causes that the figures show, lost requests first; one entry when they show none.

    Errors: UsageError for a malformed histogram.
    """
    if duration_seconds < _LEAST_SECONDS or not server.workers:
        short = f"{number_text(duration_seconds)} s" if server.workers else "no worker was seen"
        return [_not_enough([f"the window: {short}"])]
    find: list[Callable[[], Cause | None]] = [
        lambda: _read_errors(server),
        lambda: _pool_overflow(server),
        lambda: _exhausted(server),
        lambda: _accept_overflow(server),
        lambda: _blocked_on_disk(server, duration_seconds),
        lambda: _queue_wait(server),
        lambda: _cpu_saturated(server, duration_seconds),
        lambda: _cpu_contention(server, duration_seconds),
        lambda: _uneven(server),
    ]
    causes = [cause for look in find if (cause := look()) is not None]
    if causes:
        return causes
    blocked = measure_blocked(server, duration_seconds)
    if blocked is None:
        reasons = [one.reason for one in unknown if one.path.endswith("/loop_turn_seconds")]
        return [_not_enough(reasons or ["how long the main threads waited for disks"])]
    return [
        Cause(
            id="nothing-found",
            summary=f"main threads waited for disks {_percent(blocked)} of the time: "
            "nothing in this window holds the loops up",
            confidence="medium" if blocked.method == "samples" else "high",
            evidence=_blocking_evidence(server, blocked, duration_seconds),
            not_known=["what a busier hour would show"],
        )
    ]


def measure_blocked(server: ServerMeasurement, duration_seconds: float) -> Blocked | None:
    """How long main threads waited for disks, by the surest of the methods that told."""
    workers = server.workers
    turns = server.loop_turn_seconds
    if turns is not None and turns.traced_ratio:
        seconds = duration_seconds * turns.traced_ratio
        # A wait that began before the window ends in it, so a share can come out above 1.
        shares = [min(1.0, (worker.loop_blocked_seconds or 0.0) / seconds) for worker in workers]
        return Blocked(_mean(shares), max(shares), None, "sched_switch")
    waited = [worker.block_io_delay_seconds for worker in workers]
    known = [seconds / duration_seconds for seconds in waited if seconds is not None]
    if len(known) == len(workers):
        method: Method = "stat" if server.block_io_delay_method == "stat" else "taskstats"
        return Blocked(_mean(known), max(known), None, method)
    sampled = [worker for worker in workers if worker.state_d_ratio is not None]
    if not sampled:
        return None
    shares = [worker.state_d_ratio or 0.0 for worker in sampled]
    worst = max(sampled, key=lambda worker: worker.state_d_ratio or 0.0)
    return Blocked(_mean(shares), max(shares), worst.state_d_error, "samples")


def arrival_wait_seconds(turns: LoopTurn, *, workers: int, duration_seconds: float) -> float | None:
    """How long an event that arrives at a random moment waits for its loop, on average.

    A turn of t seconds meets t seconds' worth of arrivals, who wait half of it: the sum of half
    the squares over all time.
    Source: mean residual life of a renewal process.
    """
    if not turns.histogram or not workers or not turns.traced_ratio:
        return None
    histogram = decode_histogram(turns.histogram)
    middle = histogram.layout.middle_value
    squares = math.fsum((middle(i) / 1e9) ** 2 * n for i, n in histogram.counts.items())
    return squares / 2 / (workers * duration_seconds * turns.traced_ratio)


def _blocked_on_disk(server: ServerMeasurement, seconds: float) -> Cause | None:
    blocked = measure_blocked(server, seconds)
    if blocked is None or blocked.worst < BLOCKED_RATIO:
        return None
    if blocked.error is not None and blocked.worst < _CLEAR_OF_ERROR * blocked.error:
        return None
    pools = any((worker.threads or 1) > 1 for worker in server.workers)
    count = len(server.workers)
    who = "the worker's main thread" if count == 1 else f"the main threads of {count} workers"
    said = [f"{who} waited for disks {_percent(blocked)} of the window"]
    turns = server.loop_turn_seconds
    if turns is not None:
        said.append(f"loop turns {_tail(turns)}longest {seconds_text(turns.max)}")
    if server.block_io_delay_seconds is not None:
        delay = server.block_io_delay_seconds / seconds / count
        said.append(f"block-I/O delay {number_text(delay)} s/s per worker")
    reads = sum(disk.read_bytes_per_second or 0.0 for disk in server.disks)
    if reads:
        said.append(f"{bytes_text(reads)}/s read from the disks")
    advice = (
        "pools are running, so what blocks is what they do not take: open(), stat(), "
        "temporary files, logs, or a location without aio threads"
        if pools
        else "thread pools would take these reads off the loop"
    )
    not_known = ["which call waited: reads of bodies, or open() and stat(), which no pool takes"]
    if blocked.method == "samples":
        not_known.append("how long single turns were: nothing traced them")
    return Cause(
        id="loop-blocked-on-disk",
        summary=f"{', '.join(said)}; {advice}",
        confidence="medium" if blocked.method == "samples" or pools else "high",
        evidence=_blocking_evidence(server, blocked, seconds),
        not_known=not_known,
        next_command="nginx-tune recommend --observation FILE",
    )


def _tail(turns: LoopTurn) -> str:
    """The highest quantile with turns enough beyond it."""
    for name in ("p99", "p90", "p50"):
        value = _measured(turns, name)
        if value is not None:
            return f"{name} {seconds_text(value)}, "
    return ""


def _percent(blocked: Blocked) -> str:
    error = "" if blocked.error is None else f" ± {blocked.error * 100:.1g}"
    worst = f" (worst: {blocked.worst * 100:.3g} %)" if blocked.worst > 1.2 * blocked.ratio else ""
    return f"{blocked.ratio * 100:.3g}{error} %{worst}"


def _blocking_evidence(
    server: ServerMeasurement, blocked: Blocked, seconds: float
) -> list[CauseEvidence]:
    found = [_figure("server.state_d_ratio", server.state_d_ratio, "ratio")]
    turns = server.loop_turn_seconds
    if turns is not None:
        wait = arrival_wait_seconds(turns, workers=len(server.workers), duration_seconds=seconds)
        found += [
            _figure("server.loop_turn_seconds.blocked_ratio", turns.blocked_ratio, "ratio"),
            _figure("server.loop_turn_seconds.p50", turns.p50, "seconds"),
            _figure("server.loop_turn_seconds.p99", _measured(turns, "p99"), "seconds"),
            _figure("server.loop_turn_seconds.max", turns.max, "seconds"),
            _figure("mean wait of an arrival for its loop", wait, "seconds"),
        ]
    found.append(_figure("server.block_io_delay_seconds", server.block_io_delay_seconds, "seconds"))
    found.append(_figure("server.refaults", server.refaults, "pages"))
    for disk in server.disks:
        found.append(_figure(f"{disk.name} read await", disk.read_await_seconds, "seconds"))
        found.append(_figure(f"{disk.name} utilisation", disk.utilisation_ratio, "ratio"))
    found.append(_figure(f"blocked share by {blocked.method}", blocked.ratio, "ratio"))
    return [one for one in found if one is not None]


def _read_errors(server: ServerMeasurement) -> Cause | None:
    if not server.read_errors:
        return None
    return Cause(
        id="disk-read-errors",
        summary=f"{server.read_errors:,} calls failed with an input/output error (EIO): a disk "
        "does not give what it holds, and clients get bodies cut short or no reply",
        confidence="high",
        evidence=_figures(("server.read_errors", server.read_errors, "lines")),
        not_known=["which disk: the error log names files, the kernel's log the device"],
        next_command="dmesg --level=err",
    )


def _pool_overflow(server: ServerMeasurement) -> Cause | None:
    if not server.pool_overflow:
        return None
    pools = ", ".join(f'"{name}" {n:,}' for name, n in server.pool_overflow_by_pool.items())
    return Cause(
        id="pool-queue-overflow",
        summary=f"{server.pool_overflow:,} tasks were refused by full pool queues ({pools}): each "
        "is a body cut short behind a status of 200, or an empty reply",
        confidence="high",
        evidence=_figures(("server.pool_overflow", server.pool_overflow, "lines")),
        not_known=["whether the log was complete: some builds drop lines past 1,000 a second"],
        next_command="nginx-tune recommend --observation FILE",
    )


def _exhausted(server: ServerMeasurement) -> Cause | None:
    lines = server.connections_exhausted or 0
    dropped = server.stub_status.dropped if server.stub_status else 0
    if not lines and not dropped:
        return None
    return Cause(
        id="connections-exhausted",
        summary=f"{max(lines, dropped):,} connections were accepted and closed at once: a worker "
        "had none of its worker_connections left",
        confidence="high",
        evidence=_figures(
            ("server.connections_exhausted", lines, "lines"),
            ("server.stub_status.dropped", dropped, "connections"),
        ),
        next_command="nginx-tune recommend --observation FILE",
    )


def _accept_overflow(server: ServerMeasurement) -> Cause | None:
    dropping = [one for one in server.listeners if one.drops]
    if not dropping:
        return None
    drops = sum(one.drops or 0 for one in dropping)
    where = ", ".join(f"{one.address}:{one.port}" for one in dropping)
    return Cause(
        id="accept-queue-overflow",
        summary=f"the kernel dropped {drops:,} connection attempts at {where}: the accept queue "
        "was full, and those clients try again a second later",
        confidence="high" if server.listen_overflows else "medium",
        evidence=_figures(
            ("server.listen_overflows", server.listen_overflows, "events"),
            ("server.listen_drops", server.listen_drops, "events"),
            *((f"longest queue at {one.port}", one.accept_queue_max, "") for one in dropping),
            *((f"backlog at {one.port}", one.backlog, "") for one in dropping),
        ),
        not_known=["how many clients it was: one that tries again is counted again"],
        next_command="nginx-tune recommend --observation FILE",
    )


def _queue_wait(server: ServerMeasurement) -> Cause | None:
    wait = server.pool_queue_wait_seconds
    if wait is None or wait.p99 is None or wait.p99 < _LONG_WAIT_SECONDS:
        return None
    return Cause(
        id="pool-queue-wait",
        summary=f"tasks wait for a pool thread: p50 {seconds_text(wait.p50)}, p99 "
        f"{seconds_text(wait.p99)}; hot reads queue behind cold ones there",
        confidence="high",
        evidence=_figures(
            ("server.pool_queue_wait_seconds.p50", wait.p50, "seconds"),
            ("server.pool_queue_wait_seconds.p99", wait.p99, "seconds"),
        ),
        next_command="nginx-tune recommend --observation FILE",
    )


def _cpu_saturated(server: ServerMeasurement, seconds: float) -> Cause | None:
    shares = [(w.main_thread_cpu_seconds or 0.0) / seconds for w in server.workers]
    busy = [share for share in shares if share >= _SATURATED]
    if not busy:
        return None
    return Cause(
        id="cpu-saturated",
        summary=f"{len(busy)} of {len(shares)} workers computed {max(busy) * 100:.0f} % of the "
        "window: their loops are busy, not blocked",
        confidence="high",
        evidence=_figures(("busiest main thread's share of a CPU", max(busy), "ratio")),
        not_known=["what it was spent on: TLS, compression, copying"],
    )


def _cpu_contention(server: ServerMeasurement, seconds: float) -> Cause | None:
    shares = [(w.run_queue_seconds or 0.0) / seconds for w in server.workers]
    if max(shares) < _CONTENDED:
        return None
    return Cause(
        id="cpu-contention",
        summary=f"main threads were ready to run and had no CPU {_mean(shares) * 100:.0f} % of "
        f"the window (worst: {max(shares) * 100:.0f} %)",
        confidence="high",
        evidence=_figures(("server.run_queue_seconds", server.run_queue_seconds, "seconds")),
        not_known=["whose threads took the CPU: other workers', pools' or other programs'"],
    )


def _uneven(server: ServerMeasurement) -> Cause | None:
    workers = [w for w in server.workers if w.connection_ratio is not None]
    held = sum(w.connections or 0.0 for w in workers)
    if len(workers) < 2 or held < _FEWEST_CONNECTIONS:  # noqa: PLR2004
        return None
    busiest: WorkerUse = max(workers, key=lambda w: w.connection_ratio or 0.0)
    share = busiest.connection_ratio or 0.0
    if share * len(workers) < _UNEVEN:
        return None
    return Cause(
        id="uneven-workers",
        summary=f"one worker holds {share * 100:.0f} % of {held:,.0f} connections, "
        f"an even share is {100 / len(workers):.0f} %",
        confidence="medium",
        evidence=_figures(("busiest worker's share of connections", share, "ratio")),
        not_known=["whether its connections are also the busier ones"],
    )


def _not_enough(lacking: list[str]) -> Cause:
    return Cause(
        id="not-enough-evidence",
        summary="too little could be measured to name a cause",
        confidence="low",
        not_known=lacking,
        next_command="nginx-tune doctor",
    )


def _measured(turns: LoopTurn, name: str) -> float | None:
    return read_statistic([Sample(turns)], name).value


def _figures(*items: tuple[str, float | None, str]) -> list[CauseEvidence]:
    return [one for item in items if (one := _figure(*item)) is not None]


def _figure(metric: str, value: float | None, unit: str) -> CauseEvidence | None:
    return None if value is None else CauseEvidence(metric=metric, value=float(value), unit=unit)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
