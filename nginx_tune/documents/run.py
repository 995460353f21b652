"""Stored results: ``validation``, ``run`` and ``runs``, and ``run_comparison`` of two runs.

A run is a validation, a scenario's run or a rehearsal; ``run_summary`` is its entry in a list.
"""

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import Rehearsal, ReloadOutcome
from nginx_tune.documents.scenario import ScenarioRun, VariantText
from nginx_tune.documents.verdict import BetterWhen, Outcome, Unit, Verdict


class Validation(Document, frozen=True, kw_only=True, tag="nginx-tune/validation/1"):
    """Two configurations under the same load, with all data for plots and for a new verdict."""

    verdict: Verdict
    requires: list[str] = []
    """The gates, as the user gave them."""
    noise_floor: dict[str, float] = {}
    """Relative difference between two equal variants, by metric; empty without a self-check."""
    variants: list[VariantText] = msgspec.field(default_factory=list, name="arms")
    """Each variant's configuration in the form of ``nginx -T``, without its secrets."""
    measurements: list[Measurement] = []
    """All runs, including discarded ones."""
    self_check: list[Measurement] = []
    """Runs of the baseline against itself."""


RunKind = Literal["validate", "scenario", "rehearse"]
RunOutcome = Literal[Outcome, ReloadOutcome]
"""The outcome of a run; for a rehearsal, the worst outcome of its changes."""


class RunSummary(Document, frozen=True, kw_only=True, tag="nginx-tune/run_summary/1"):
    """One entry of a list of runs."""

    id: str
    """The first digits of the stored file's digest, which are unique and never change."""
    kind: RunKind
    name: str
    """Name of the scenario, or path of the candidate, the plan, or the new files or program."""
    started_at: str
    """RFC 3339, in UTC."""
    seconds: float = 0.0
    """Duration."""
    version: str = ""
    """Version of nginx-tune."""
    nginx_version: str | None = None
    lab: str = "none"
    seed: int = 1
    outcome: RunOutcome
    primary_metric: str = ""
    """The metric that decides; empty for a rehearsal."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    gates: int = 0
    gates_passed: int = 0
    claims: int = 0
    claims_held: int = 0
    interrupted: bool = False
    """True if the run was interrupted."""


class KeptRun(Document, frozen=True, kw_only=True, tag="nginx-tune/run/1"):
    """A complete stored run."""

    summary: RunSummary
    result: Validation | ScenarioRun | Rehearsal


class SkippedFile(Part, frozen=True, kw_only=True):
    """A file among the stored runs that is damaged, or is not a run."""

    file: str
    reason: str


class KeptRuns(Document, frozen=True, kw_only=True, tag="nginx-tune/runs/1"):
    """The stored runs, newest first."""

    directory: str = ""
    runs: list[RunSummary] = []
    bytes: int = 0
    """Total size of the runs on disk."""
    bytes_most: int = 0
    """Limit of that size; the oldest runs are removed first."""
    skipped: list[SkippedFile] = []


class RunMetric(Part, frozen=True, kw_only=True):
    """One metric of two runs."""

    name: str
    unit: Unit | None = None
    """Unit of ``a`` and ``b``."""
    a: float | None
    """Value of the first run's candidate."""
    b: float | None
    at_least: list[str] = []
    """The values (``a``, ``b``) that are lower bounds, because requests were cut off."""
    baseline_ratio: float | None = None
    """Ratio of the baseline in the second run to the first: the change of the host itself."""
    ratio: float | None = None
    """b / a, corrected by the change of the baseline if both runs have the same one."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    p_value: float | None = None
    """Exact two-sided rank-sum test, with Holm's correction except for the primary metric."""
    pairs_a: int = 0
    pairs_b: int = 0
    better_when: BetterWhen = "lower"
    outcome: Outcome
    """Outcome of the second run's candidate against the first's."""
    reason: str = ""


class RunComparison(Document, frozen=True, kw_only=True, tag="nginx-tune/run_comparison/1"):
    """A comparison of two runs."""

    a: RunSummary
    b: RunSummary
    outcome: Outcome
    primary_metric: str
    reason: str = ""
    same_baseline: bool = False
    """True if both had the same baseline, which is then the control."""
    metrics: list[RunMetric] = []
    warnings: list[str] = []
    """Differences between the runs besides the candidate."""
