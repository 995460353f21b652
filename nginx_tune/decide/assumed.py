"""What is only assumed, moved: whether an answer stands on it.

A decision whose verdict changes when assumed inputs move within what they plausibly are is not
emitted. It is written as a comment, with the command that settles it.
"""

from __future__ import annotations

from dataclasses import replace

from nginx_tune.decide.answer import (
    DISKS_COMMAND,
    FACTS_COMMAND,
    LEARN_COMMAND,
)
from nginx_tune.decide.model.blocking import predict
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.situation import Situation


def flips_on_assumptions(s: Situation) -> bool:
    """Whether thread pools pay with some of what is assumed, and do not with the rest."""
    if s.blocking_inputs is None or s.prediction is None:
        return False
    pay = s.prediction.pools_pay
    return any(predict(case).pools_pay != pay for case in corners(s, s.blocking_inputs))


def assumptions(s: Situation) -> list[tuple[str, str]]:
    """What the model of the page cache only assumes here, each with the command that brings it."""
    found = [
        ("the size of the data", s.dataset_bytes.provenance, FACTS_COMMAND),
        ("the popularity of the files", s.exponent.provenance, LEARN_COMMAND),
        ("the number of transfers at once", s.concurrency.provenance, LEARN_COMMAND),
        ("the speed of the disks", s.disk.provenance, DISKS_COMMAND),
    ]
    return [(name, command) for name, provenance, command in found if provenance == "assumed"]


def corners(s: Situation, i: BlockingInputs) -> list[BlockingInputs]:
    """The inputs with all assumed ones moved together, the way blocking falls, then rises.

    Every one of them moves the verdict one way only, so nothing in between is further off.
    Shape: empty when nothing is assumed.
    """
    easier = harder = i
    if s.dataset_bytes.provenance == "assumed" and s.dataset_bytes.value:
        easier = s.inputs_with_dataset(s.dataset_bytes.value / 2) or i
        if not s.dataset_is_bounded:
            harder = s.inputs_with_dataset(s.dataset_bytes.value * 2) or i
    if s.exponent.provenance == "assumed" and s.exponent.value is not None:
        flat, steep = max(0.0, s.exponent.value - 0.3), s.exponent.value + 0.3
        easier = replace(easier, classes=s.popularity_classes(easier.dataset_bytes, steep))
        harder = replace(harder, classes=s.popularity_classes(harder.dataset_bytes, flat))
    if s.concurrency.provenance == "assumed" and i.concurrency is not None:
        easier = replace(easier, concurrency=i.concurrency / 4)
        harder = replace(harder, concurrency=i.concurrency * 4)
    if s.disk.provenance == "assumed":
        easier = replace(easier, disk=_scaled(i.disk, 1 / 3))
        harder = replace(harder, disk=_scaled(i.disk, 3))
    return [] if easier is i and harder is i else [easier, harder]


def _scaled(disk: ModelDisk, factor: float) -> ModelDisk:
    parts = tuple((share, _scaled(one, factor)) for share, one in disk.parts)
    return replace(disk, latency_seconds=disk.latency_seconds * factor, parts=parts)
