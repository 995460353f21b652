"""The model's predictions of a cell beside what its blocks without pools showed.

Pure: a run's document in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nginx_tune.documents.lab import LabData
from nginx_tune.documents.measured_server import ServerSecond
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.measure.proof.gates import too_few_answers

HIT_RATIO = "page_cache.hit_ratio"
BLOCKED_RATIO = "server.loop_blocked_ratio without pools"
_PAGE = 4096
WITHOUT_POOLS = ("baseline", "stock-again")
"""Arms that read on the loop; both are stock."""


class Compared(NamedTuple):
    """One predicted quantity and its measured value; null for what one side does not have."""

    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None

    @property
    def inside(self) -> bool | None:
        """Whether the measured value lies in the predicted range; None where one side lacks."""
        if self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float | None:
        """How far the prediction is from what was measured, as a share of that."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


def compare_all(run: ScenarioRun, scenario: Scenario) -> list[Compared]:
    """Everything that was predicted of stock, and of the recommendation over stock.

    A run that was kept may have a value of blocks too short for it, which is left out.
    """
    stock = _without_pools(run.measurements)
    ratios = [
        Compared(one.expected, one.low, one.high, None if is_short else one.measured)
        for one in run.predictions
        if one.metric.startswith("ratio(")
        for is_short in [too_few_answers(stock, one.metric.removeprefix("ratio("))]
    ]
    return [compare_hits(run, scenario), compare_blocked(run, scenario), *ratios]


def compare_hits(run: ScenarioRun, scenario: Scenario) -> Compared:
    """The share of requests that the page cache answers.

    Measured: bytes that no disk was read for, over bytes served, each file in whole pages; files
    of a cell are of one size, so that is a share of requests too. Where clients wait for answers
    nobody can say beforehand how often the hot file is asked for, and the prediction is of the
    random requests: it is put together with the hot ones, which the model has in memory, in the
    proportion in which both were answered. Blocks with cold names begin with nothing in the page
    cache, which a prediction of the long run is not about. Bytes say nothing of requests where
    sizes differ, nor of a site that asks an origin, nor where a block has fewer than two answers
    for each client that waits for one: much of what is read is of answers that come after it.
    """
    lab = scenario.lab
    is_mixed = any(len(set(one.sizes.values())) > 1 for one in lab.data)
    if lab.cold_names or is_mixed or lab.topology == "proxy":
        return Compared(None, None, None, None)
    reading = [one for one in scenario.classes if one.source != "memory"]
    known = all(one.arrivals.rate_per_second is not None for one in reading)
    waiting = sum(one.arrivals.users or 0 for one in reading)
    read = served = resident = 0.0
    for block in _without_pools(run.measurements):
        seconds = _load_seconds(block)
        if any(second.disk_read_bytes is None for second in seconds) or not seconds:
            continue
        if sum(block.classes[one.name].requests for one in reading) < 2 * waiting:
            continue
        read += sum(second.disk_read_bytes or 0 for second in seconds) / len(seconds)
        for one in reading:
            rate = block.classes[one.name].bytes_per_second
            served += rate
            resident += 0.0 if known or one.source == "random" else rate
    if not served:
        return _compared(run, HIT_RATIO, None)
    # Over a slow way to the clients more is read ahead in the counted time than is sent in it.
    measured = max(0.0, 1 - read / (served * _in_pages(scenario.lab.data)))
    return _with_resident(_compared(run, HIT_RATIO, measured), resident / served)


def _with_resident(one: Compared, share: float) -> Compared:
    """The prediction for all requests, of which a share is answered from memory in any case."""

    def mixed(hits: float | None) -> float | None:
        return None if hits is None else share + (1 - share) * hits

    return Compared(mixed(one.predicted), mixed(one.low), mixed(one.high), one.measured)


def _load_seconds(block: Measurement) -> list[ServerSecond]:
    """The whole seconds in which load was measured: the server is watched to the last answer."""
    return [one for one in block.server.series if one.second + 1 <= block.duration_seconds]


def _in_pages(data: Sequence[LabData]) -> float:
    """Bytes that files take in the page cache over their own."""
    sizes = [size for one in data for size in one.sizes.values() or [one.file_bytes] * one.files]
    return sum(math.ceil(size / _PAGE) * _PAGE for size in sizes) / sum(sizes)


def compare_blocked(run: ScenarioRun, scenario: Scenario) -> Compared:
    """The share of time that loops without pools stand in a disk read.

    Blocks with cold names stand mostly in the first open() of each name, as a host does that has
    just been started; the prediction is of the long run.
    Measured: by the kernel's account of the wait where it keeps one, else by how often samples
    saw the loops' threads wait for a disk.
    """
    shares = [
        share
        for block in _without_pools(run.measurements)
        if (share := _blocked_share(block)) is not None
    ]
    measured = math.fsum(shares) / len(shares) if shares else None
    if scenario.lab.cold_names:
        return Compared(None, None, None, measured)
    return _compared(run, BLOCKED_RATIO, measured)


def _blocked_share(block: Measurement) -> float | None:
    seconds = _load_seconds(block)
    workers = len(block.server.workers)
    if not seconds or not workers:
        return None
    delays = [
        one.block_io_delay_seconds for one in seconds if one.block_io_delay_seconds is not None
    ]
    if len(delays) == len(seconds):
        return min(1.0, math.fsum(delays) / len(seconds) / workers)
    seen = [one.state_d_ratio for one in seconds if one.state_d_ratio is not None]
    return math.fsum(seen) / len(seen) if seen else None


def _without_pools(measurements: Iterable[Measurement]) -> list[Measurement]:
    return [block for block in measurements if block.variant in WITHOUT_POOLS]


def _compared(run: ScenarioRun, metric: str, measured: float | None) -> Compared:
    for decision in run.prediction.decisions:
        for one in decision.predicted:
            if one.metric == metric:
                return Compared(one.expected, one.low, one.high, measured)
    return Compared(None, None, None, measured)
