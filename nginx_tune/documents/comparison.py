"""``comparison``: two windows over servers under traffic that nobody controlled."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.verdict import BetterWhen, Outcome, Unit


class ComparedMetric(Part, frozen=True, kw_only=True):
    """One metric before and after."""

    name: str
    unit: Unit | None = None
    """Of ``before`` and ``after``."""
    before: float | None
    after: float | None
    control_ratio: float | None = None
    """The same change in the control, which the ratio is freed of."""
    ratio: float | None = None
    """after / before; with a control divided by the control's."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Nominal coverage of the interval."""
    method: Literal["block_bootstrap", "counts", "none"] = "none"
    """``block_bootstrap``: seconds resampled in blocks; ``counts``: totals, without interval."""
    seconds: int = 0
    """Of the shorter window that has it."""
    better_when: BetterWhen = "lower"
    outcome: Outcome
    reason: str = ""


class Comparison(Document, frozen=True, kw_only=True, tag="nginx-tune/comparison/1"):
    """Two windows, with or without a control beside them."""

    outcome: Outcome
    primary_metric: str
    reason: str = ""
    controlled: bool = False
    """Whether a server that was not changed was watched at the same times."""
    traffic_ratio: float | None = None
    """Requests a second, after / before."""
    metrics: list[ComparedMetric] = []
    warnings: list[str] = []
    """What a comparison of windows cannot tell."""
