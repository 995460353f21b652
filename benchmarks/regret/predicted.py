"""The model's predictions for a cell, beside the results of its runs without pools.

Pure: a run's document in, numbers out.
"""

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
"""Variants that read files in the loop; both are stock."""


class Compared(NamedTuple):
    """A predicted quantity and its measured value; None if one of them is missing."""

    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None

    @property
    def inside(self) -> bool | None:
        """True if the measured value is in the predicted range; None if either is missing."""
        if self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float | None:
        """The difference of prediction and measurement, as a share of the measurement."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


def compare_all(run: ScenarioRun, scenario: Scenario) -> list[Compared]:
    """All predictions for stock, and for the recommendation compared with stock.

    Values from runs that are too short for them are left out.
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

    Measured: the share of served bytes, each file in whole pages, that were not read from a disk.
    Files of a cell have one size, so this is a share of requests too. In a closed loop, the share
    of requests for the hot file is not known beforehand, and the prediction is for the random
    requests. It is combined with that for the hot ones, which the model has in memory, in the
    proportion of the answers to both. Runs with cold names begin with an empty page cache, while a
    prediction is for the long run. Left out are cells whose files differ in size, sites with an
    origin, and runs with fewer than two answers for each closed-loop client: much of what such a
    run reads is for later answers.
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
    # With a slow link to the clients, more is read ahead in the counted time than is sent in it.
    measured = max(0.0, 1 - read / (served * _in_pages(scenario.lab.data)))
    return _with_resident(_compared(run, HIT_RATIO, measured), resident / served)


def _with_resident(one: Compared, share: float) -> Compared:
    """The prediction for all requests, of which a share is always answered from memory."""

    def mixed(hits: float | None) -> float | None:
        return None if hits is None else share + (1 - share) * hits

    return Compared(mixed(one.predicted), mixed(one.low), mixed(one.high), one.measured)


def _load_seconds(block: Measurement) -> list[ServerSecond]:
    """The whole seconds with load; the server is watched until the last answer."""
    return [one for one in block.server.series if one.second + 1 <= block.duration_seconds]


def _in_pages(data: Sequence[LabData]) -> float:
    """The bytes that files take in the page cache, divided by their sizes."""
    sizes = [size for one in data for size in one.sizes.values() or [one.file_bytes] * one.files]
    return sum(math.ceil(size / _PAGE) * _PAGE for size in sizes) / sum(sizes)


def compare_blocked(run: ScenarioRun, scenario: Scenario) -> Compared:
    """The share of time in which loops without pools wait in a disk read.

    Runs with cold names wait mostly in the first open() of each name, as on a host that has just
    been started; the prediction is for the long run. Measured by the kernel's account of the wait
    if there is one, else by the share of samples with a loop's thread waiting for a disk.
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
