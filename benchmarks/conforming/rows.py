"""The rows of every conformance test, and its runs of the probe against the ground truth."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nginx_tune.documents.loadplan import LoadClass
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import run_probe

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "probe"))
from truth import Truth, ground_truth, truth_plan  # noqa: E402

RATE = 1000.0
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU, PROBE_CPU = CPUS[0], CPUS[-1]
PLACE: list[object] = ["--cpu", SERVER_CPU]
"""Options of every server; ``--realtime`` is added on request."""


class Row(NamedTuple):
    """A requirement and its result."""

    number: str
    asked: str
    seen: str
    held: bool | None
    """None if it could not be tested or decided, or is not tested here."""


Check = Callable[[argparse.Namespace], Iterator[Row]]


def run(server: Truth, **changes: Any) -> tuple[Measurement, ClassMeasurement]:
    """The measurement of one class on a server; by default, 1000 constant arrivals per second."""
    measurement = run_classes(server, [], **{"rate": RATE, **changes})
    return measurement, measurement.classes["c"]


def run_classes(server: Truth, classes: list[LoadClass], **changes: Any) -> Measurement:
    """The measurement of these classes on a server; without any, of the plan's own class."""
    plan = truth_plan(server.port, **{"realtime": "--realtime" in PLACE, **changes})
    if classes:
        plan = msgspec.structs.replace(plan, classes=classes)
    return run_probe(plan, cpus=[PROBE_CPU])


def milliseconds(seconds: float | None) -> float:
    return math.nan if seconds is None else seconds * 1e3


__all__ = [
    "PLACE",
    "PROBE_CPU",
    "RATE",
    "REPOSITORY",
    "SERVER_CPU",
    "Check",
    "Row",
    "Truth",
    "ground_truth",
    "milliseconds",
    "run",
    "run_classes",
    "truth_plan",
]
