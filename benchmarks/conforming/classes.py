"""Two request classes, of which one waits for a server that is blocked for two seconds."""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Literal

from conforming.rows import PLACE, Row, ground_truth, milliseconds, run_classes
from nginx_tune.documents.loadplan import Arrivals, LoadClass, Paths
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.statistics import signed_rank_interval

SECONDS = 4.0
HOLD: list[object] = ["--hold", "/cold", "--hold-from", 1.0, "--hold-for", 2.0]
COLD_RATE = 20.0
AT_ONCE_RATE = 1500.0
SERVED: list[object] = ["--delay", "constant:0.01", "--log"]
"""A known service time, from the request's arrival in the kernel. Compared with it, the time that
two CPUs add to an answer is below one percent, while an immediate answer would be mostly that."""
SERVED_RATE = 300.0
ROOM = 0.05

Run = Callable[[bool], tuple[float, Measurement]]
"""A quantile in milliseconds, and the whole measurement, with or without the block."""


def two_classes(options: argparse.Namespace) -> Iterator[Row]:
    """A class beside another that is blocked for two seconds, with separate and common pools."""
    at_once, longest, late = _pairs(options.pairs, _hot_answered_at_once)
    yield Row("13", "the cold class waits for 2 s", f"{longest:.2f} s", longest > 1.8)
    yield _within("answered at once: the hot class's p99", at_once, late)

    served, longest, late = _pairs(options.pairs, _hot_served)
    yield Row("13", "served for 10 ms: the cold class waits", f"{longest:.2f} s", longest > 1.8)
    yield _within("served for 10 ms: the hot class's p99", served, late)
    shared, _, late = _pairs(1, _shared_served)
    yield Row(
        "13",
        "served for 10 ms, one pool for both: p90 by that without the block is ten times as long",
        f"× {shared[0]:.1f}, p90 {late:.0f} ms",
        shared[0] > 10,
    )

    both = _together(AT_ONCE_RATE, blocked=True).classes["both"]
    response = milliseconds(both.response_seconds.p90)
    service = milliseconds(both.service_seconds.p90)
    yield Row(
        "13",
        "one pool for both: the client makes the hot requests late, and says so",
        f"p90 {response:.0f} ms from the intended start, {service:.3f} ms from the send; "
        f"{both.at_cap:,} waited for a connection",
        response > 500 and service < 10 and both.at_cap > 0,
    )


def _pairs(count: int, run: Run) -> tuple[list[float], float, float]:
    """Pairs of runs with and without the block: ratios, and times of the blocked runs.

    Shape: the ratios; the least of the blocked runs' longest request times, in seconds; and the
    median of the blocked runs.
    """
    ratios, longest, late = [], [], []
    for pair in range(count):
        seen = {}
        # The order alternates.
        for blocked in (False, True) if pair % 2 == 0 else (True, False):
            seen[blocked], measurement = run(blocked)
            if blocked:
                slowest = [c.response_seconds.max or 0.0 for c in measurement.classes.values()]
                longest.append(max(slowest))
                late.append(seen[blocked])
        ratios.append(seen[True] / seen[False])
    return ratios, min(longest), median(late)


def _within(what: str, ratios: Sequence[float], late: float) -> Row:
    """A row on the change of a quantile by the block; undecided if the interval has the edge."""
    interval = signed_rank_interval([math.log(ratio) for ratio in ratios])
    bounds = (math.exp(interval.low), math.exp(interval.high)) if interval else (0.0, math.inf)
    level = interval.level if interval else 0.0
    is_inside = bounds[0] >= 1 - ROOM and bounds[1] <= 1 + ROOM
    is_outside = bounds[1] < 1 - ROOM or bounds[0] > 1 + ROOM
    held = True if is_inside else False if is_outside else None
    return Row(
        "13",
        f"{what} within {ROOM:.0%} of the same run without the block",
        f"× {median(ratios):.3f} [{bounds[0]:.3f}–{bounds[1]:.3f}, {level:.1%}], "
        f"{len(ratios)} pairs, p99 {late:.3f} ms",
        held,
    )


def _hot_answered_at_once(blocked: bool) -> tuple[float, Measurement]:
    return _apart(AT_ONCE_RATE, blocked=blocked)


def _hot_served(blocked: bool) -> tuple[float, Measurement]:
    return _apart(SERVED_RATE, *SERVED, blocked=blocked)


def _shared_served(blocked: bool) -> tuple[float, Measurement]:
    measurement = _together(SERVED_RATE, *SERVED, blocked=blocked)
    return milliseconds(measurement.classes["both"].response_seconds.p90), measurement


def _apart(hot_rate: float, *server: object, blocked: bool) -> tuple[float, Measurement]:
    """The hot class's p99, with separate connections for each class."""
    classes = [
        _class("hot", "poisson", hot_rate, connections=50, paths=["/hot"]),
        _class("cold", "constant", COLD_RATE, connections=100, paths=["/cold"]),
    ]
    measurement = _run(classes, *server, blocked=blocked)
    return milliseconds(measurement.classes["hot"].response_seconds.p99), measurement


def _together(rate: float, *server: object, blocked: bool) -> Measurement:
    """One request in twenty is cold; these soon occupy all of the ten connections."""
    paths = ["/cold", *(f"/hot{number}" for number in range(19))]
    both = _class("both", "poisson", rate, connections=10, paths=paths)
    return _run([both], *server, blocked=blocked)


def _run(classes: list[LoadClass], *server: object, blocked: bool) -> Measurement:
    with ground_truth(*server, *(HOLD if blocked else []), *PLACE) as truth:
        return run_classes(truth, classes, duration_seconds=SECONDS)


def _class(
    name: str,
    kind: Literal["constant", "poisson"],
    rate: float,
    *,
    connections: int,
    paths: list[str],
) -> LoadClass:
    return LoadClass(
        name=name,
        arrivals=Arrivals(kind=kind, rate_per_second=rate),
        paths=Paths(kind="fixed" if len(paths) == 1 else "uniform", paths=paths),
        connections=connections,
    )
