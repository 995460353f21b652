"""Watched answers: their metrics, and the answers of several load hosts together; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nginx_tune.documents.measured_class import EventStreams
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.measure.proof.latency import (
    Reading,
    merge_latencies,
    read_own,
)

LATENCIES = {
    "first_body": "first_body_seconds",
    "gap": "gap_seconds",
    "event_delay": "event_delay_seconds",
}
"""Fields by the words of gates."""

_COUNTS = (
    "begun", "whole", "early_ends", "cut", "most_open", "pieces", "events", "events_ahead",
)  # fmt: skip


class WatchedNumber(NamedTuple):
    """A number of watched answers."""

    unit: Unit
    better_when: BetterWhen
    read: Callable[[Sequence[EventStreams]], float | None]


def _sum_of(field: str) -> Callable[[Sequence[EventStreams]], float | None]:
    return lambda parts: math.fsum(getattr(part, field) for part in parts)


def _events_per_piece(parts: Sequence[EventStreams]) -> float | None:
    """1 where each event comes by itself, more where someone gathers them."""
    pieces = sum(part.pieces for part in parts)
    return sum(part.events for part in parts) / pieces if pieces else None


FIGURES: dict[str, WatchedNumber] = {
    "bodies_begun": WatchedNumber("count", "higher", _sum_of("begun")),
    "bodies_whole": WatchedNumber("count", "higher", _sum_of("whole")),
    "early_ends": WatchedNumber("count", "lower", _sum_of("early_ends")),
    "bodies_cut": WatchedNumber("count", "neither", _sum_of("cut")),
    "pieces": WatchedNumber("count", "neither", _sum_of("pieces")),
    "events": WatchedNumber("count", "higher", _sum_of("events")),
    "events_per_piece": WatchedNumber("ratio", "lower", _events_per_piece),
}
"""By the words of gates."""

DEFAULT = ("first_body.p50", "gap.p99", "event_delay.p50", "events_per_piece", "early_ends")
"""What a verdict shows of such a class."""


def read_figure(blocks: Sequence[Measurement], name: str, figure: WatchedNumber) -> Reading:
    """A number of a class, of all blocks together."""
    parts, reason = _parts(blocks, name)
    if reason:
        return Reading(None, reason)
    value = figure.read(parts)
    return Reading(value, "" if value is not None else "no body began")


def read_latency(blocks: Sequence[Measurement], name: str, field: str, statistic: str) -> Reading:
    """A statistic of a class's ``field``, of all blocks together."""
    return read_own(_parts(blocks, name), field, statistic)


def _parts(blocks: Sequence[Measurement], name: str) -> tuple[list[EventStreams], str]:
    parts = []
    for block in blocks:
        part = block.classes.get(name)
        if part is None:
            return [], f"block {block.block} has no class '{name}'"
        if part.event_stream is None:
            return [], f"the answers of '{name}' were not watched (event_stream)"
        parts.append(part.event_stream)
    return parts, "" if parts else "no valid block"


def add_event_streams(parts: Sequence[EventStreams]) -> EventStreams | None:
    """The sum; None of none."""
    if not parts:
        return None
    return EventStreams(
        **{field: sum(getattr(part, field) for part in parts) for field in _COUNTS},
        first_body_seconds=merge_latencies([part.first_body_seconds for part in parts]),
        gap_seconds=merge_latencies([part.gap_seconds for part in parts]),
        event_delay_seconds=merge_latencies([part.event_delay_seconds for part in parts]),
    )
