"""The model's predictions of a cell beside what its blocks without pools showed.

Pure: a run's document in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Scenario, ScenarioRun

HIT_RATIO = "page_cache.hit_ratio"
BLOCKED_RATIO = "server.loop_blocked_ratio without pools"
WITHOUT_POOLS = ("baseline", "stock-again")
"""Arms that read on the loop; both are stock."""


class Compared(NamedTuple):
    """One predicted quantity and its measured value; null for what one side does not have."""

    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """How far the prediction is from what was measured, as a share of that."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


def compare_hits(run: ScenarioRun, scenario: Scenario) -> Compared:
    """The share of requests that the page cache answers.

    Measured: bytes that no disk was read for, over bytes served; files of a cell are of one size,
    so that is a share of requests too. Where clients wait for answers nobody can say beforehand
    how often the hot file is asked for: prediction and measurement are then of the random
    requests alone.
    """
    counted = _counted_classes(scenario)
    read = served = 0.0
    for block in _without_pools(run.measurements):
        if block.server.disk_read_bytes is None:
            continue
        read += block.server.disk_read_bytes
        served += sum(block.classes[name].bytes for name in counted if name in block.classes)
    return _compared(run, HIT_RATIO, 1 - read / served if served else None)


def compare_blocked(run: ScenarioRun) -> Compared:
    """The share of time that loops without pools stand in a disk read.

    Measured: by the kernel's account of the wait where it keeps one, else by how often samples
    saw the loops' threads wait for a disk.
    """
    shares = [
        share
        for block in _without_pools(run.measurements)
        if (share := _blocked_share(block)) is not None
    ]
    return _compared(run, BLOCKED_RATIO, math.fsum(shares) / len(shares) if shares else None)


def _blocked_share(block: Measurement) -> float | None:
    server = block.server
    if not server.workers or not block.duration_seconds:
        return None
    if server.block_io_delay_seconds is None:
        return server.state_d_ratio
    return min(1.0, server.block_io_delay_seconds / block.duration_seconds / len(server.workers))


def _counted_classes(scenario: Scenario) -> Sequence[str]:
    reading = [one for one in scenario.classes if one.source != "memory"]
    if all(one.arrivals.rate_per_second is not None for one in reading):
        return [one.name for one in reading]
    return [one.name for one in reading if one.source == "random"]


def _without_pools(measurements: Iterable[Measurement]) -> list[Measurement]:
    return [block for block in measurements if block.arm in WITHOUT_POOLS]


def _compared(run: ScenarioRun, metric: str, measured: float | None) -> Compared:
    for decision in run.prediction.decisions:
        for one in decision.predicted:
            if one.metric == metric:
                return Compared(one.expected, one.low, one.high, measured)
    return Compared(None, None, None, measured)
