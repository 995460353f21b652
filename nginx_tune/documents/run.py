"""Stored results: a ``validation``, ``run`` and ``runs``, and ``run_comparison`` of two of them.

A run is a validation, a scenario's run or a rehearsal; ``run_summary`` is its line in a list.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import Rehearsal, ReloadOutcome
from nginx_tune.documents.scenario import ScenarioRun, VariantText
from nginx_tune.documents.verdict import BetterWhen, Outcome, Unit, Verdict


class Validation(Document, frozen=True, kw_only=True, tag="nginx-tune/validation/1"):
    """Two configurations under the same load: enough to plot, and to judge again."""

    verdict: Verdict
    requires: list[str] = []
    """The gates as they were given."""
    noise_floor: dict[str, float] = {}
    """Share by metric that two equal variants came out apart; empty without a self-check."""
    variants: list[VariantText] = msgspec.field(default_factory=list, name="arms")
    """Each variant's configuration in the form of ``nginx -T``, without its secrets."""
    measurements: list[Measurement] = []
    """Every run, those that were discarded too."""
    self_check: list[Measurement] = []
    """Runs of the baseline against itself."""


RunKind = Literal["validate", "scenario", "rehearse"]
RunOutcome = Literal[Outcome, ReloadOutcome]
"""A rehearsal's is the worst of its changes."""


class RunSummary(Document, frozen=True, kw_only=True, tag="nginx-tune/run_summary/1"):
    """What a list of runs says of one of them."""

    id: str
    """The first digits of the digest of what is stored: stable, and alike nowhere else."""
    kind: RunKind
    name: str
    """Of the scenario, or the path of the candidate, the plan, the new configuration or program."""
    started_at: str
    """RFC 3339, in UTC."""
    seconds: float = 0.0
    """How long it took."""
    version: str = ""
    """Of nginx-tune."""
    nginx_version: str | None = None
    lab: str = "none"
    seed: int = 1
    outcome: RunOutcome
    primary_metric: str = ""
    """Empty for a rehearsal."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    gates: int = 0
    gates_passed: int = 0
    claims: int = 0
    claims_held: int = 0
    interrupted: bool = False
    """Whether someone ended it before it was over."""


class KeptRun(Document, frozen=True, kw_only=True, tag="nginx-tune/run/1"):
    """A stored run, whole."""

    summary: RunSummary
    result: Validation | ScenarioRun | Rehearsal


class SkippedFile(Part, frozen=True, kw_only=True):
    """A file among the stored runs that is none, or a broken one."""

    file: str
    reason: str


class KeptRuns(Document, frozen=True, kw_only=True, tag="nginx-tune/runs/1"):
    """The stored runs, the newest first."""

    directory: str = ""
    runs: list[RunSummary] = []
    bytes: int = 0
    """Of all of them on disk."""
    bytes_most: int = 0
    """Bound on that; the oldest go first."""
    skipped: list[SkippedFile] = []


class RunMetric(Part, frozen=True, kw_only=True):
    """One metric of two runs."""

    name: str
    unit: Unit | None = None
    """Of ``a`` and ``b``."""
    a: float | None
    """Of the candidate of the first run."""
    b: float | None
    at_least: list[str] = []
    """``a`` or ``b``: lower bounds, for requests were cut off."""
    baseline_ratio: float | None = None
    """The baseline's in the second run / in the first: how far the host itself moved."""
    ratio: float | None = None
    """b / a; where both runs have the same baseline, freed of what moved that."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    p_value: float | None = None
    """Exact rank-sum test, two-sided, after Holm for all but the primary metric."""
    pairs_a: int = 0
    pairs_b: int = 0
    better_when: BetterWhen = "lower"
    outcome: Outcome
    """Of the second run's candidate against the first's."""
    reason: str = ""


class RunComparison(Document, frozen=True, kw_only=True, tag="nginx-tune/run_comparison/1"):
    """Two runs against each other."""

    a: RunSummary
    b: RunSummary
    outcome: Outcome
    primary_metric: str
    reason: str = ""
    same_baseline: bool = False
    """Whether both had the same baseline, which then is the control."""
    metrics: list[RunMetric] = []
    warnings: list[str] = []
    """What differs between the runs besides the candidate."""
