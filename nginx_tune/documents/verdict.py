"""``verdict``: two variants compared under load, with gates; ``comparison``: two watched windows.

The windows are of servers under traffic that nobody controlled.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.lab import Start
from nginx_tune.documents.measured_class import TlsSessions
from nginx_tune.documents.measurement import Capacity

Outcome = Literal["better", "worse", "no_difference", "inconclusive", "invalid"]

BetterWhen = Literal["higher", "lower", "neither"]
"""``neither``: neither direction is a gain, such as the host's load average."""

Unit = Literal[
    "seconds", "bytes", "bytes_per_second", "per_second", "seconds_per_second", "count", "ratio"
]

Stopped = Literal["pairs", "settled", "time", "interrupted"]


class SecondsCheck(Part, frozen=True, kw_only=True):
    """The same ratio from the seconds inside the runs, resampled: a cross-check, no verdict."""

    low: float
    high: float
    """Interval of the ratio, two-level block bootstrap."""
    level: float
    agrees: bool
    """Whether it may stand beside the outcome: on the same side of 1, or not clear of it."""


class MetricVerdict(Part, frozen=True, kw_only=True):
    """One metric: baseline against candidate."""

    name: str
    unit: Unit | None = None
    """Of ``baseline`` and ``candidate``; null in verdicts of versions that did not say it."""
    baseline: float | None
    """All runs together, as gates have it; so has ``candidate``."""
    candidate: float | None
    at_least: list[Literal["baseline", "candidate"]] = []
    """Arms whose numbers are lower bounds: requests were cut off, and may have taken longer."""
    ratio: float | None
    """candidate / baseline: Hodges-Lehmann estimate over pairs; null where both are bounds."""
    baseline_middle: float | None = None
    """The middle of the runs by the estimator of the ratio, such that the two middles' quotient
    is the ratio; null where there is no ratio of pairs."""
    candidate_middle: float | None = None
    low: float | None = None
    high: float | None = None
    """Interval of the ratio, exact signed-rank."""
    level: float | None = None
    """Coverage that the interval really has."""
    p_value: float | None = None
    """Exact sign-flip test, two-sided; adjusted for all others where it is neither the primary
    metric nor the cost."""
    pairs: int = 0
    discarded_pairs: int = 0
    """Pairs that do not count here, for their validity flags; some spoil a single class."""
    better_when: BetterWhen = "lower"
    outcome: Outcome
    pairs_needed: int | None = None
    """For ``inconclusive``: pairs that would settle it, from the spread seen."""
    judged: bool = True
    """Whether it takes part in the outcome; some are shown to explain and are no harm alone."""
    reason: str = ""
    by_seconds: SecondsCheck | None = None
    """Only beside an outcome, where every run has the metric second by second."""


class GateResult(Part, frozen=True, kw_only=True):
    """One ``--require`` expression."""

    expression: str
    measured: float | None
    passed: bool
    reason: str = ""


class Environment(Part, frozen=True, kw_only=True):
    """Where the verdict was reached."""

    nginx_version: str | None = None
    nginx_binary: str | None = None
    """The program that was run, unless a variant names another series."""
    nginx_choice: str = ""
    """Why that one, in a sentence."""
    build_differences: list[str] = []
    """What differs between the baseline's nginx and the candidate's, where they are two."""
    kernel_release: str | None = None
    lab: str = "none"
    starts: Start | None = None
    """What of a lab's data was in memory as each run started; null without a lab."""
    seed: int = 1
    pairs: int = 0
    discarded_pairs: int = 0
    weaker_sandbox: list[str] = msgspec.field(default_factory=list, name="weaker_walls")
    """Sandbox around nginx that the user gave up where the host cannot have them."""
    tls: dict[str, list[TlsSessions]] = {}
    """What the handshakes of each variant agreed on, warm-ups included; only variants that spoke
    TLS.
    """
    tcp: dict[str, str] = {}
    """Settings of TCP in the namespaces of the run, by sysctl."""
    differences: list[str] = []
    """What differed from the operator's tree so that it could run here."""


class Verdict(Document, frozen=True, kw_only=True, tag="nginx-tune/verdict/1"):
    """Two variants compared."""

    outcome: Outcome
    primary_metric: str
    reason: str = ""
    metrics: list[MetricVerdict] = []
    gates: list[GateResult] = []
    warnings: list[str] = []
    """What a reader must know that did not discard a run."""
    looks: int = 1
    """How often the pairs so far were looked at; each look claims wrongly in its share alone."""
    lost: list[str] = []
    """What the baseline serves and the candidate does not: addresses, names, locations, files."""
    accept_worse: list[str] = []
    """Metrics that were named before the run as those that may become worse."""
    stopped: Stopped = "pairs"
    """Why no more pairs were run: so many were asked for, it was settled, time was up, or someone
    interrupted it."""
    capacities: dict[str, Capacity] = {}
    """Of each variant, under the objective."""
    environment: Environment = Environment()


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
    """``block_bootstrap``: seconds resampled in stretches; ``counts``: totals, without interval."""
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
