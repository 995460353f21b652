"""What lies beneath the streams of classes with HTTP/3, as metrics; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.measured_class import Http3Streams
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.measure.proof.latency import Reading


class QuicNumber(NamedTuple):
    """A count of connections over QUIC."""

    unit: Unit
    better_when: BetterWhen
    field: str


FIGURES: dict[str, QuicNumber] = {"lost_packets": QuicNumber("count", "lower", "lost_packets")}
"""By the words of gates."""


def read_number(blocks: Sequence[Measurement], name: str, number: QuicNumber) -> Reading:
    """A number of a class, of all blocks together."""
    parts: list[Http3Streams] = []
    for block in blocks:
        part = block.classes.get(name)
        if part is None or part.http3 is None:
            lacks = f"no class '{name}'" if part is None else f"no HTTP/3 of '{name}'"
            return Reading(None, f"block {block.block} has {lacks}")
        parts.append(part.http3)
    if not parts:
        return Reading(None, "no valid block")
    return Reading(math.fsum(getattr(part, number.field) for part in parts))
