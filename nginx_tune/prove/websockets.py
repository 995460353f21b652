"""Messages over WebSockets: their metrics, and those of several load hosts together; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nginx_tune.documents.measured_class import WebSockets
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.prove.latency import Reading, merge_latencies, read_own

LATENCIES = {"opening": "opening_seconds", "echo_gap": "gap_seconds"}
"""Fields by the words of gates. That of an echo is the class's own."""

_COUNTS = (
    "opened", "echoes", "late", "unasked", "pings", "fragmented", "early_ends", "tcp_ends",
    "resets", "faults", "silent",
)  # fmt: skip


class ChannelNumber(NamedTuple):
    """A number of WebSockets; of a field by statuses or codes, the sum of these."""

    unit: Unit
    better_when: BetterWhen
    field: str


FIGURES: dict[str, ChannelNumber] = {
    "websockets_opened": ChannelNumber("count", "neither", "opened"),
    "websockets_refused": ChannelNumber("count", "lower", "refused"),
    "echoes": ChannelNumber("count", "higher", "echoes"),
    "late_echoes": ChannelNumber("count", "lower", "late"),
    "websocket_ends": ChannelNumber("count", "lower", "early_ends"),
    "close_frames": ChannelNumber("count", "lower", "closes"),
    "tcp_ends": ChannelNumber("count", "lower", "tcp_ends"),
    "silent_ends": ChannelNumber("count", "lower", "silent"),
}
"""By the words of gates."""

DEFAULT = ("echo_gap.max", "websocket_ends", "websockets_refused", "late_echoes")
"""What a verdict shows of such a class, beside its own latencies."""


def read_number(blocks: Sequence[Measurement], name: str, number: ChannelNumber) -> Reading:
    """A number of a class, of all blocks together."""
    parts, reason = _parts(blocks, name)
    if reason:
        return Reading(None, reason)
    return Reading(math.fsum(_total(getattr(part, number.field)) for part in parts))


def read_latency(blocks: Sequence[Measurement], name: str, field: str, statistic: str) -> Reading:
    """A statistic of a class's ``field``, of all blocks together."""
    return read_own(_parts(blocks, name), field, statistic)


def _total(value: int | Mapping[str, int]) -> int:
    return sum(value.values()) if isinstance(value, Mapping) else value


def _parts(blocks: Sequence[Measurement], name: str) -> tuple[list[WebSockets], str]:
    """What each block has of the class's WebSockets, or why that is not known."""
    found = []
    for block in blocks:
        part = block.classes.get(name)
        if part is None or part.websocket is None:
            lacks = f"no class '{name}'" if part is None else f"no WebSockets of '{name}'"
            return [], f"block {block.block} has {lacks}"
        found.append(part.websocket)
    return found, "" if found else "no valid block"


def add_websockets(parts: Sequence[WebSockets]) -> WebSockets | None:
    """The sum; None of none."""
    if not parts:
        return None
    return WebSockets(
        **{field: sum(getattr(part, field) for part in parts) for field in _COUNTS},
        most_messages=max(part.most_messages for part in parts),
        refused=add_counts(part.refused for part in parts),
        closes=add_counts(part.closes for part in parts),
        opening_seconds=merge_latencies([part.opening_seconds for part in parts]),
        gap_seconds=merge_latencies([part.gap_seconds for part in parts]),
    )


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """All of them, kind by kind."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
