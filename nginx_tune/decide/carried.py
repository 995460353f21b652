"""The request rate that a host carries, and the times of its answers, with their ranges.

Each figure is computed three times: with the expected inputs, and with all assumed inputs at their
worse and at their better ends. The model's own errors widen the range.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from nginx_tune.decide.model.answers import AnswerGoal, Server, best_server
from nginx_tune.decide.model.inputs import BlockingInputs, room_range
from nginx_tune.decide.pool_plan import corners
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.sizing import SizeRange

WIDEST = 10.0
"""Largest ratio of a range's ends with which it counts as a prediction."""
_TIME_FACTOR = 1.4
"""Error of a predicted response time, as a factor (as ``pool_forecast`` has for reads)."""
_DISK_FACTOR = 1.2
"""Assumed error in the reads per second of a measured or declared disk, as a factor."""
_CPU_FACTOR = 1.5
"""Assumed error of an unmeasured CPU time per request, as a factor."""


P99 = AnswerGoal("p99", math.inf)
"""The statistic of answers where there is no objective."""


class RangeEnd(enum.Enum):
    """An end of the range of assumed inputs and model errors."""

    EXPECTED = enum.auto()
    WORSE = enum.auto()
    BETTER = enum.auto()


Servers = Mapping[RangeEnd, Server]
"""A host's model at each end of its range of inputs."""


def sent_ratio(s: Situation, object_bytes: float) -> float:
    """Ratio of the bytes sent to the sizes of the requested objects."""
    sizes = s.workload.sizes
    if sizes.sent_mean_bytes is not None:
        return min(1.0, sizes.sent_mean_bytes / object_bytes) or 1.0
    return sizes.sent_ratio or 1.0


def servers(s: Situation, i: BlockingInputs) -> Servers:
    """The host of a situation with these model inputs, at each end of its range."""
    return {end: server_at(s, i, end) for end in RangeEnd}


def server_at(s: Situation, i: BlockingInputs, end: RangeEnd) -> Server:
    """The host of a situation with these model inputs, at one end of its range."""
    if end is RangeEnd.EXPECTED:
        return _server(s, i)
    easier, harder = corners(_with_inputs(s, i), i) or (i, i)
    moved = room_range(easier)[1] if end is RangeEnd.BETTER else room_range(harder)[0]
    factor = 1.0 if end is RangeEnd.WORSE else -1.0
    if s.disk.provenance != "assumed":
        moved = replace(moved, disk=moved.disk.scaled(_DISK_FACTOR**factor))
    usual = _server(s, moved)
    if usual.cpu_seconds is not None:
        return usual
    return replace(usual, cpu_seconds=usual.request_cpu_seconds * _CPU_FACTOR**factor)


def _server(s: Situation, i: BlockingInputs) -> Server:
    measured = s.workload.cpu_per_request.mean_seconds
    return Server(i, pools=True, cpu_seconds=measured, sent_ratio=sent_ratio(s, i.object_bytes))


def _with_inputs(s: Situation, i: BlockingInputs) -> Situation:
    """The situation with these model inputs."""
    moved = replace(s)
    moved.__dict__.update(s.__dict__)
    moved.__dict__["blocking_inputs"] = i
    return moved


def goal_at(goal: AnswerGoal | None, end: RangeEnd) -> AnswerGoal | None:
    """The goal, with a limit made stricter or looser by the model's error."""
    if goal is None or end is RangeEnd.EXPECTED:
        return goal
    factor = _TIME_FACTOR if end is RangeEnd.BETTER else 1 / _TIME_FACTOR
    return goal._replace(seconds=goal.seconds * factor)


class Carried(NamedTuple):
    """The highest rate, in requests a second, at which a host keeps up and meets a goal."""

    server: Server
    """The host, with thread pools or without, whichever carries more."""
    worst: tuple[Server, float]
    """The host at the worse end of its range, and its rate."""
    per_second: float
    range: SizeRange


def carried(host: Servers, goal: AnswerGoal | None) -> Carried:
    """The highest rate of a host."""
    found = {end: best_server(server, goal_at(goal, end)) for end, server in host.items()}
    server, expected = found[RangeEnd.EXPECTED]
    low = min(expected, found[RangeEnd.WORSE][1])
    high = max(expected, found[RangeEnd.BETTER][1])
    return Carried(server, found[RangeEnd.WORSE], expected, _rounded(low, expected, high))


def seconds_at(host: Servers, goal: AnswerGoal, rate: float) -> SizeRange | None:
    """The goal's statistic at a rate; None where the host may not keep up with it."""
    found = {}
    for end, server in host.items():
        times = [
            answers.seconds(goal.statistic, hits=goal.hits)
            for pools in (True, False)
            if (answers := replace(server, pools=pools).answers_at(rate)) is not None
        ]
        if not times or not math.isfinite(min(times)):
            return None
        found[end] = min(times)
    expected = found[RangeEnd.EXPECTED]
    return _rounded(
        min(found[RangeEnd.BETTER] / _TIME_FACTOR, expected),
        expected,
        max(found[RangeEnd.WORSE] * _TIME_FACTOR, expected),
    )


def _rounded(low: float, expected: float, high: float) -> SizeRange:
    low, expected, high = (float(f"{value:.4g}") for value in (low, expected, high))
    return SizeRange(low=low, expected=expected, high=high)


def is_prediction(found: SizeRange) -> bool:
    """True unless the range is too wide (``WIDEST``); a rate of 0 is a prediction."""
    return found.high <= WIDEST * found.low
