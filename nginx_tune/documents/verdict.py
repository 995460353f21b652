"""``verdict``: two variants compared under load, with gates; ``comparison``: two observed windows.

The windows show servers under traffic that nobody controlled.
"""

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
    """A cross-check: the same ratio, from a bootstrap over the single seconds of the runs."""

    low: float
    high: float
    """End of the ratio's interval, from ``low``, by a two-level block bootstrap."""
    level: float
    agrees: bool
    """True if the interval is on the outcome's side of 1, or includes 1."""


class MetricVerdict(Part, frozen=True, kw_only=True):
    """One metric of baseline and candidate."""

    name: str
    unit: Unit | None = None
    """Unit of ``baseline`` and ``candidate``; null in verdicts of older versions."""
    baseline: float | None
    """The baseline's value over all runs, as in gates; ``candidate`` likewise."""
    candidate: float | None
    at_least: list[Literal["baseline", "candidate"]] = []
    """Variants whose numbers are lower bounds, because requests that were cut off might have taken
    longer."""
    ratio: float | None
    """candidate / baseline: Hodges-Lehmann estimate over pairs; null where both are bounds."""
    baseline_middle: float | None = None
    """The middle of the baseline's runs, by the estimator of the ratio. The quotient of the
    variants' middles is exactly the ratio. Null without a ratio of pairs."""
    candidate_middle: float | None = None
    low: float | None = None
    high: float | None = None
    """End of the ratio's exact signed-rank interval, which begins at ``low``."""
    level: float | None = None
    """Actual coverage of the interval."""
    p_value: float | None = None
    """Exact two-sided sign-flip test; adjusted for multiple tests except for the primary metric and
    the cost."""
    pairs: int = 0
    discarded_pairs: int = 0
    """Pairs discarded for this metric due to validity flags, some of which concern one class."""
    better_when: BetterWhen = "lower"
    outcome: Outcome
    pairs_needed: int | None = None
    """For ``inconclusive``: pairs needed for an outcome, estimated from the observed spread."""
    judged: bool = True
    """True if the metric affects the outcome; other metrics only explain it."""
    reason: str = ""
    by_seconds: SecondsCheck | None = None
    """The cross-check; set only with an outcome, if every run has the metric for each second."""


class GateResult(Part, frozen=True, kw_only=True):
    """One ``--require`` expression."""

    expression: str
    measured: float | None
    passed: bool
    reason: str = ""


class Environment(Part, frozen=True, kw_only=True):
    """The environment of a verdict."""

    nginx_version: str | None = None
    nginx_binary: str | None = None
    """The nginx binary, unless a variant names another series."""
    nginx_choice: str = ""
    """The reason for the choice of this binary, in a sentence."""
    build_differences: list[str] = []
    """Differences between the builds of the baseline and the candidate, if there are two."""
    kernel_release: str | None = None
    lab: str = "none"
    starts: Start | None = None
    """Lab data in memory at the start of each run; null without a lab."""
    seed: int = 1
    pairs: int = 0
    discarded_pairs: int = 0
    weaker_sandbox: list[str] = msgspec.field(default_factory=list, name="weaker_walls")
    """Parts of the sandbox that the user disabled because the host does not support them."""
    tls: dict[str, list[TlsSessions]] = {}
    """Negotiated TLS by variant, including warm-ups; only variants with TLS."""
    tcp: dict[str, str] = {}
    """TCP settings in the network namespaces of the run, by sysctl."""
    differences: list[str] = []
    """Differences from the operator's configuration that the run needed."""


LOADED = "load: "
"""The beginning of the note on the root whose files are requested."""


class Verdict(Document, frozen=True, kw_only=True, tag="nginx-tune/verdict/1"):
    """Two variants compared."""

    outcome: Outcome
    primary_metric: str
    reason: str = ""
    metrics: list[MetricVerdict] = []
    gates: list[GateResult] = []
    warnings: list[str] = []
    """Warnings that did not cause a run to be discarded."""
    looks: int = 1
    """Number of interim analyses; each may use only its share of the allowed error."""
    lost: list[str] = []
    """Addresses, names, locations and files that only the baseline serves."""
    accept_worse: list[str] = []
    """Metrics that may become worse, as named before the run."""
    stopped: Stopped = "pairs"
    """The reason for the end of the runs: enough pairs, a clear outcome, time over, interrupted."""
    seconds_per_pair: float | None = None
    """Time of a pair of runs with the start and end of nginx; null for a fixed number of pairs."""
    capacities: dict[str, Capacity] = {}
    """Capacity of each variant under the objective."""
    environment: Environment = Environment()


class ComparedMetric(Part, frozen=True, kw_only=True):
    """One metric before and after."""

    name: str
    unit: Unit | None = None
    """Unit of ``before`` and ``after``."""
    before: float | None
    after: float | None
    control_ratio: float | None = None
    """Change of the control, by which the ratio is corrected."""
    ratio: float | None = None
    """after / before, divided by the control's ratio if there is one."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Nominal coverage of the interval."""
    method: Literal["block_bootstrap", "counts", "none"] = "none"
    """``block_bootstrap`` resamples stretches of seconds; ``counts`` compares totals, without an
    interval."""
    seconds: int = 0
    """Length of the shorter window with this metric."""
    better_when: BetterWhen = "lower"
    outcome: Outcome
    reason: str = ""


class Comparison(Document, frozen=True, kw_only=True, tag="nginx-tune/comparison/1"):
    """Two windows, with or without a control."""

    outcome: Outcome
    primary_metric: str
    reason: str = ""
    controlled: bool = False
    """True if an unchanged server was observed at the same times."""
    traffic_ratio: float | None = None
    """Ratio of requests per second, after / before."""
    metrics: list[ComparedMetric] = []
    warnings: list[str] = []
    """Limits of the conclusions from this comparison."""
