"""Two request classes, one of which meets a server that keeps it waiting for two seconds."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from statistics import median
from typing import Literal

from conforming.rows import PLACE, Row, ground_truth, milliseconds, run_classes
from nginx_tune.documents.loadplan import Arrivals, LoadClass, Paths
from nginx_tune.documents.measurement import Measurement
from nginx_tune.prove.statistics import signed_rank_interval

SECONDS = 4.0
HOLD: list[object] = ["--hold", "/cold", "--hold-from", 1.0, "--hold-for", 2.0]
HOT_RATE, COLD_RATE = 1500.0, 20.0


def two_classes(options: argparse.Namespace) -> Iterator[Row]:
    """A class that is blocked for two seconds beside another, with pools of their own and one."""
    ratios, longest, late = [], [], []
    for pair in range(options.pairs):
        p99 = {}
        # In turn which of the two is first.
        for blocked in (False, True) if pair % 2 == 0 else (True, False):
            measurement = _apart(blocked=blocked)
            hot = measurement.classes["hot"]
            p99[blocked] = milliseconds(hot.response_seconds.p99)
            if blocked:
                longest.append(measurement.classes["cold"].response_seconds.max or 0.0)
                late.append(p99[blocked])
        ratios.append(p99[True] / p99[False])
    yield Row("13", "the cold class waits for 2 s", f"{min(longest):.2f} s", min(longest) > 1.8)
    interval = signed_rank_interval([math.log(ratio) for ratio in ratios])
    bounds = (math.exp(interval.low), math.exp(interval.high)) if interval else (0.0, math.inf)
    level = interval.level if interval else 0.0
    yield Row(
        "13",
        "the hot class's p99 within 5 % of the same run without the block",
        f"× {median(ratios):.3f} [{bounds[0]:.3f}–{bounds[1]:.3f}, {level:.1%}], "
        f"{len(ratios)} pairs, p99 {median(late):.3f} ms",
        abs(median(ratios) - 1) <= 0.05,
    )
    shared = _together().classes["both"]
    response = milliseconds(shared.response_seconds.p90)
    service = milliseconds(shared.service_seconds.p90)
    yield Row(
        "13",
        "one pool for both: the client makes the hot requests late, and says so",
        f"p90 {response:.0f} ms from the intended start, {service:.3f} ms from the send; "
        f"{shared.at_cap:,} waited for a connection",
        response > 500 and service < 10 and shared.at_cap > 0,
    )


def _apart(*, blocked: bool) -> Measurement:
    classes = [
        _class("hot", "poisson", HOT_RATE, connections=50, paths=["/hot"]),
        _class("cold", "constant", COLD_RATE, connections=100, paths=["/cold"]),
    ]
    with ground_truth(*(HOLD if blocked else []), *PLACE) as server:
        return run_classes(server, classes, duration_seconds=SECONDS)


def _together() -> Measurement:
    """One request in twenty is cold, and soon has all of the ten connections."""
    paths = ["/cold", *(f"/hot{number}" for number in range(19))]
    both = _class("both", "poisson", HOT_RATE, connections=10, paths=paths)
    with ground_truth(*HOLD, *PLACE) as server:
        return run_classes(server, [both], duration_seconds=SECONDS)


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
