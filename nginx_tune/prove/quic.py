"""What lies beneath the streams of classes with HTTP/3, as metrics; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.measured_class import Http3Streams
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.prove.latency import Reading


class QuicNumber(NamedTuple):
    """A count of connections over QUIC, or a share of one."""

    unit: Unit
    better_when: BetterWhen
    fields: tuple[str, ...]
    """They are added."""
    of: tuple[str, ...] = ()
    """A share of these, added; of none it is not measured."""


FIGURES: dict[str, QuicNumber] = {
    "lost_packets": QuicNumber("count", "lower", ("lost_packets",)),
    "migrations": QuicNumber("count", "neither", ("migrations",)),
    "followed_migrations": QuicNumber("count", "higher", ("followed_migrations",)),
    "lost_migrations": QuicNumber("count", "lower", ("lost_migrations",)),
    "lost_migration_ratio": QuicNumber(
        "ratio", "lower", ("lost_migrations",), ("lost_migrations", "followed_migrations")
    ),
    "moved_requests": QuicNumber("count", "neither", ("moved_requests",)),
    "moved_answer_ratio": QuicNumber("ratio", "higher", ("moved_answers",), ("moved_requests",)),
}
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
    counted = _sum(parts, number.fields)
    if not number.of:
        return Reading(float(counted))
    whole = _sum(parts, number.of)
    if whole == 0:
        return Reading(None, f"no connection of '{name}' changed its port")
    return Reading(counted / whole)


def _sum(parts: Sequence[Http3Streams], fields: Sequence[str]) -> int:
    return sum(getattr(part, field) for part in parts for field in fields)
