"""How much of their time the main threads of workers waited for disks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from nginx_tune.documents.measured_server import ServerMeasurement

Method = Literal["sched_switch", "taskstats", "stat", "samples"]


class Blocked(NamedTuple):
    """Share of the workers' time in which their main threads waited for disks."""

    ratio: float
    worst: float
    """Of the worker that waited most."""
    error: float | None
    method: Method


def measure_blocked(server: ServerMeasurement, duration_seconds: float) -> Blocked | None:
    """How long main threads waited for disks, by the surest of the methods that told."""
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
        method: Method = "stat" if server.block_io_delay_method == "stat" else "taskstats"
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
