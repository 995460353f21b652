"""Pseudo-experiments from recorded runs that were all alike: dealt out as two variants."""

import json
import random
from pathlib import Path
from typing import Any

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Outcome
from nginx_tune.measure.proof.verdict import judge

RECORDED = Path(__file__).with_name("data") / "equal-blocks.json"
METRIC = "dealt.requests_per_second"
"""Carries the values of whatever metric is dealt: higher is better in it."""


def read_recorded(path: Path = RECORDED) -> dict[str, Any]:
    """The runs with what was recorded about them."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def values_of(recorded: dict[str, Any], metric: str) -> list[float]:
    """The metric's value in each run, in the order they ran; empty when a run lacks it."""
    values = [run["values"][metric] for run in recorded["blocks"]]
    return [] if None in values else values


def deal(
    values: list[float], chance: random.Random, *, pairs: int, ratio: float = 1.0
) -> list[Measurement]:
    """Blocks drawn without their order, so that drift of the host is not even cancelled.

    With fewer recorded than asked for, further ones are drawn again from all. ``ratio`` is the
    true effect: what the candidate's runs are multiplied by.
    """
    drawn: list[float] = []
    while len(drawn) < 2 * pairs:
        drawn += chance.sample(values, len(values))
    return [
        Measurement(
            variant="candidate" if index % 2 else "baseline",
            number=index,
            classes={
                "dealt": ClassMeasurement(
                    requests_per_second=drawn[index] * (ratio if index % 2 else 1.0)
                )
            },
        )
        for index in range(2 * pairs)
    ]


def deal_neighbours(
    values: list[float], chance: random.Random, *, pairs: int, ratio: float = 1.0
) -> list[Measurement]:
    """Blocks that ran next to each other as pairs, as in an experiment; who is who is tossed."""
    starts = list(range(0, len(values) - 1, 2))
    drawn: list[int] = []
    while len(drawn) < pairs:
        drawn += chance.sample(starts, len(starts))
    runs = []
    for start in drawn[:pairs]:
        two = [values[start], values[start + 1]]
        chance.shuffle(two)
        runs += two
    return [
        Measurement(
            variant="candidate" if index % 2 else "baseline",
            number=index,
            classes={
                "dealt": ClassMeasurement(requests_per_second=value * (ratio if index % 2 else 1.0))
            },
        )
        for index, value in enumerate(runs)
    ]


def outcome(runs: list[Measurement], **bar: float) -> Outcome:
    """What the verdict says of them."""
    return judge(runs, primary_metric=METRIC, metrics=[], **bar).outcome
