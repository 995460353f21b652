"""``capacity``: the highest rate at which an objective holds, and how that was found."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.measurement import Measurement

LimitedBy = Literal[
    "objective", "failures", "connections", "probe", "samples", "bound", "steps", "interrupted"
]
"""What is in the way of a higher rate: the objective is missed; requests fail or stay
unanswered; arrivals wait at the probe's cap of connections; the probe itself is the limit; too
few samples for the objective; the rate that the caller bounds; the number of tries; whoever
ended it."""


class CapacityStep(Part, frozen=True, kw_only=True):
    """One run of the search."""

    rate_per_second: float
    met: bool
    limited_by: LimitedBy | None = None
    """Why not, when it was not met."""
    measured: dict[str, float | None] = {}
    """Value of each metric of the objective; seconds, or per second, or a count."""
    reason: str = ""
    flags: list[str] = []
    good_requests: int | None = None
    """Of all classes; null in documents of before this was told."""


class Capacity(Document, frozen=True, kw_only=True, tag="nginx-tune/capacity/1"):
    """The highest rate at which an objective holds."""

    objectives: list[str] = []
    capacity_per_second: float | None = None
    """Null when it was not found: the objective never held, or what limits it is not the server."""
    at_least_per_second: float | None = None
    """The highest rate at which the objective held."""
    missed_per_second: float | None = None
    """The lowest rate at which it did not: the capacity lies below."""
    limited_by: LimitedBy | None = None
    reason: str = ""
    steps: list[CapacityStep] = []
    measurement: Measurement | None = None
    """The last run at the highest rate at which the objective held."""
