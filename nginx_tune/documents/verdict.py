"""``verdict``: two arms compared, with gates."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.capacity import Capacity

Outcome = Literal["better", "worse", "no_difference", "inconclusive", "invalid"]

Stopped = Literal["pairs", "settled", "time", "interrupted"]


class SecondsCheck(Part, frozen=True, kw_only=True):
    """The same ratio from the seconds inside the blocks, resampled: a cross-check, no verdict."""

    low: float
    high: float
    """Interval of the ratio, two-level block bootstrap."""
    level: float
    agrees: bool
    """Whether it may stand beside the outcome: on the same side of 1, or not clear of it."""


class MetricVerdict(Part, frozen=True, kw_only=True):
    """One metric: baseline against candidate."""

    name: str
    baseline: float | None
    candidate: float | None
    ratio: float | None
    """candidate / baseline: Hodges-Lehmann estimate over pairs."""
    low: float | None = None
    high: float | None = None
    """Interval of the ratio, exact signed-rank."""
    level: float | None = None
    """Coverage that the interval really has."""
    p_value: float | None = None
    """Exact sign-flip test, two-sided, after Holm for secondary metrics."""
    pairs: int = 0
    discarded_pairs: int = 0
    """Pairs that do not count here, for their validity flags; some spoil a single class."""
    better_when: Literal["higher", "lower"] = "lower"
    outcome: Outcome
    pairs_needed: int | None = None
    """For ``inconclusive``: pairs that would settle it, from the spread seen."""
    reason: str = ""
    by_seconds: SecondsCheck | None = None
    """Only beside an outcome, where every block has the metric second by second."""


class GateResult(Part, frozen=True, kw_only=True):
    """One ``--require`` expression."""

    expression: str
    measured: float | None
    passed: bool
    reason: str = ""


class Environment(Part, frozen=True, kw_only=True):
    """Where the verdict was reached."""

    nginx_version: str | None = None
    kernel_release: str | None = None
    lab: str = "none"
    seed: int = 1
    pairs: int = 0
    discarded_pairs: int = 0
    differences: list[str] = []
    """What differed from the operator's tree so that it could run here."""


class Verdict(Document, frozen=True, kw_only=True, tag="nginx-tune/verdict/1"):
    """Two arms compared."""

    outcome: Outcome
    primary_metric: str
    reason: str = ""
    metrics: list[MetricVerdict] = []
    gates: list[GateResult] = []
    warnings: list[str] = []
    """What a reader must know that did not discard a block."""
    looks: int = 1
    """How often the pairs so far were looked at; each look claims wrongly in its share alone."""
    stopped: Stopped = "pairs"
    """Why no more pairs were run: so many were asked for, it was settled, time was up, or someone
    interrupted it."""
    capacities: dict[str, Capacity] = {}
    """Of each arm, under the objective."""
    environment: Environment = Environment()
