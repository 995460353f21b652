"""Bodies that were sent: their metrics, and those of several load hosts together; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.measured_class import Uploads
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.measure.proof.latency import (
    Reading,
    merge_latencies,
    own_sample,
    read_statistic,
)

UPLOAD = "upload"
"""The latency, by the word of gates: until the last byte of the body was handed over."""

_COUNTS = ("bodies", "bytes", "confirmed", "unconfirmed", "early_answers", "cut_off")


class SentNumber(NamedTuple):
    """A number of sent bodies."""

    unit: Unit
    better_when: BetterWhen
    field: str
    is_rate: bool = False
    """Averaged over blocks, not added."""


FIGURES: dict[str, SentNumber] = {
    "uploads": SentNumber("count", "higher", "bodies"),
    "sent_bytes": SentNumber("bytes", "higher", "bytes"),
    "sent_bytes_per_second": SentNumber(
        "bytes_per_second", "higher", "bytes_per_second", is_rate=True
    ),
    "early_answers": SentNumber("count", "lower", "early_answers"),
    "cut_off": SentNumber("count", "lower", "cut_off"),
    "confirmed": SentNumber("count", "higher", "confirmed"),
    "unconfirmed": SentNumber("count", "lower", "unconfirmed"),
}
"""By the words of gates."""

DEFAULT = ("upload.p50", "upload.p99", "sent_bytes_per_second", "early_answers", "cut_off")
"""What a verdict shows of such a class."""


def read_number(blocks: Sequence[Measurement], name: str, number: SentNumber) -> Reading:
    """A number of a class, of all blocks together."""
    parts, reason = _sent(blocks, name)
    if reason:
        return Reading(None, reason)
    total = math.fsum(getattr(part, number.field) for part in parts)
    return Reading(total / len(parts) if number.is_rate else total)


def read_upload(blocks: Sequence[Measurement], name: str, statistic: str) -> Reading:
    """A statistic of the time until a class's bodies were handed over, of all blocks together."""
    parts, reason = _sent(blocks, name)
    if reason:
        return Reading(None, reason)
    return read_statistic([own_sample(part.upload_seconds) for part in parts], statistic)


def _sent(blocks: Sequence[Measurement], name: str) -> tuple[list[Uploads], str]:
    """What each block sent, or why that is not known."""
    found = []
    for block in blocks:
        part = block.classes.get(name)
        if part is None or part.upload is None:
            lacks = f"no class '{name}'" if part is None else f"no bodies of '{name}' (upload)"
            return [], f"block {block.block} has {lacks}"
        found.append(part.upload)
    return found, "" if found else "no valid block"


def add_uploads(parts: Sequence[Uploads]) -> Uploads | None:
    """The sum; None of none."""
    if not parts:
        return None
    return Uploads(
        **{field: sum(getattr(part, field) for part in parts) for field in _COUNTS},
        bytes_per_second=math.fsum(part.bytes_per_second for part in parts),
        upload_seconds=merge_latencies([part.upload_seconds for part in parts]),
    )
