"""``scenario`` and ``experiment``: comparisons defined in advance; ``source_rows``: the texts.

A scenario is a TOML file, and ``scenario_run`` its result. An experiment compares two
configurations: ``validate --dry-run`` prints one, ``scenario run`` runs it.

    schema = "nginx-tune/experiment/1"
    baseline = "/etc/nginx/nginx.conf"
    candidate = "/tmp/candidate.conf"
    primary_metric = "hot.requests_per_second"

    [[load.classes]]
    name = "hot"
    source = "hot"
    connections = 16
    arrivals = { kind = "closed" }

Source rows are facts from the published texts, with the scenarios and commands that show them.
"""

from typing import Literal

import msgspec

from nginx_tune.documents.base import AtMostCount, AtMostSeconds, Count, Document, Part, Seconds
from nginx_tune.documents.decisions import DecisionId, Decisions, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import Lab, Start
from nginx_tune.documents.loadplan import RequestClass
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Cause
from nginx_tune.documents.verdict import Verdict
from nginx_tune.documents.workload import Kind, LocationShare

WITHOUT_FILE = frozenset({"memory"})
"""Sources of classes without files."""


class ScenarioClass(RequestClass, frozen=True, kw_only=True):
    """A request class of a scenario; its paths come from ``source``.

    For HTTP/2, the listener needs ``listen … http2`` or ``http2 on`` in a lab with TLS. Without TLS
    it needs ``http2 on``, since readiness checks use HTTP/1.1. For HTTP/3, it needs a lab with TLS
    and ``listen … quic``.
    """

    source: Literal["random", "hot", "memory"]
    """``random``: all files, uniformly; ``hot``: one file, primed; ``memory``: no file."""
    timeout_seconds: Seconds = 60.0
    disk: str = ""
    """Disk of the files; empty for the first. With ``cached_files``: the objects whose keys belong
    to this disk's cache; empty for objects that are not cached."""
    first_files: AtMostCount | None = None
    """Number of the first files to request; null for all."""
    manifest: str = ""
    """File of recorded requests, instead of the data's files."""
    exponent: float | None = None
    """Zipf exponent of random files' popularity; null for uniform."""
    once: bool = False
    """True to request all random files once, in shuffled order, before any file again."""
    beside_memory: AtMostCount = 0
    """Number of requests without a file per request for a random file, on the same connections."""
    checks_length: bool = True
    """True to require bodies of their files' length, unless nginx compresses them."""


class Reload(Part, frozen=True, kw_only=True):
    """Reloads while the load runs."""

    every_seconds: AtMostSeconds
    worker_processes: list[AtMostCount]
    """Values of ``worker_processes``, used in turn and then again; nginx starts with the first."""


StandIn = Literal["none", "raw-blocking-accept", "raw-epoll-accept"]


class VariantSpec(Part, frozen=True, kw_only=True):
    """A variant: its server, the origin of its configuration, and its load."""

    decisions: Literal["none", "recommended"] = "none"
    """``none``: the plain static configuration of the source; ``recommended``: nginx-tune's
    decisions."""
    settings: list[Setting] = []
    """Additional settings, which replace the same directive in the same context."""
    stand_in: StandIn = "none"
    """A bare server in nginx's place: processes that accept from one listening socket, all blocked
    in accept() or all in epoll with EPOLLEXCLUSIVE, as in the source."""
    series: str = ""
    """Release series of another nginx, such as ``1.18``, unpacked by ``tools/nginx-matrix``."""
    sysctls: dict[str, str] = {}
    """Sysctls (``net.`` only) of the lab's network namespace while this variant runs."""
    warm_names: bool = False
    """True to look up every file's name before nginx starts, so that ``open()`` waits for no disk;
    for a lab with ``cold_names``."""
    reload: Reload | None = None
    cleartext: bool = False
    """True to listen without TLS in a lab with TLS."""
    classes: list[ScenarioClass] = []
    """Classes that replace those of the scenario with the same names, for another load."""


class ExtraVariant(VariantSpec, frozen=True, kw_only=True):
    """A variant in addition to baseline and candidate, which claims can name."""

    name: str
    optional: bool = False
    """True to omit the variant and its claims if this machine lacks something that the variant
    needs."""


class Claim(Part, frozen=True, kw_only=True):
    """A claim that the experiment must show."""

    name: str
    source_row: str = ""
    """Row of the source, such as ``A7``; empty for none."""
    expression: str
    """A gate expression, e.g. ``ratio(hot.requests_per_second) >= 10``."""
    source_figure: str = ""
    variant: str = msgspec.field(default="candidate", name="arm")
    """The variant whose metrics the expression names."""
    against: str = "baseline"
    """The variant with which ``variant`` is compared."""
    expect: Literal["holds", "fails"] = "holds"
    """``fails`` for a gate that must not pass. A gate without a measurement shows nothing."""
    less_than: str = ""
    """Name of another claim, whose measured number must be the larger one."""


class Scenario(Document, frozen=True, kw_only=True, tag="nginx-tune/scenario/1"):
    """An experiment as data."""

    name: str
    title: str
    description: str = ""
    kind: Kind = "static"
    needs: list[str] = []
    """Configure arguments that nginx must have, e.g. ``--with-threads``."""
    lab: Lab
    baseline: VariantSpec = VariantSpec()
    candidate: VariantSpec = VariantSpec(decisions="recommended")
    variants: list[ExtraVariant] = msgspec.field(default_factory=list, name="arms")
    """Further variants in every round."""
    hot_locations: list[str] = []
    """Location prefixes of constantly requested files, as in ``site``."""
    cached_files: Count = 0
    """Number of the origin's first objects that are in the cache, but not in memory, at the start
    of a run. They are requested beforehand from another nginx, which then ends."""
    counts_connections: bool = False
    """True to count each worker's connections, with an additional log."""
    counts_opens: bool = False
    """True to count the workers' calls of ``open()``: ``server.open_seconds``."""
    starts: Start = "cold"
    """Data in the page cache at the start of a run: none (``cold``), all (``warm``), or as much as
    the memory limit allows, of random files (``full``)."""
    traces: bool = True
    """True to trace loop turns, which costs nginx CPU time in each turn."""
    classes: list[ScenarioClass]
    primary_metric: str
    pairs: int = 6
    warmup_seconds: AtMostSeconds = 2.0
    duration_seconds: AtMostSeconds = 8.0
    drain_seconds: AtMostSeconds | None = None
    """Time for the last answers; null for half of the run's time, at least 5 s. Unanswered requests
    then count with their age."""
    claims: list[Claim] = []
    seed: int = 1
    learn: str = ""
    """The lesson of the experiment: the text of its page."""


class ScenarioSummary(Part, frozen=True, kw_only=True):
    """A scenario in the list of all."""

    name: str
    source_rows: list[str] = []
    """The rows of its claims."""
    title: str = ""


class Scenarios(Document, frozen=True, kw_only=True, tag="nginx-tune/scenarios/1"):
    """The built-in scenarios, by name."""

    scenarios: list[ScenarioSummary] = []


class ClaimResult(Part, frozen=True, kw_only=True):
    """A claim with its measurement."""

    name: str
    source_row: str
    expected: str
    source_figure: str
    measured: float | None
    held: bool
    reason: str = ""
    expect: Literal["holds", "fails"] = "holds"
    less_than: str = ""
    variant: str = msgspec.field(default="candidate", name="arm")
    against: str = "baseline"
    left_out: bool = False
    """True if an optional variant of the claim could not run here."""
    rounds: int = 0
    """Number of rounds that measured the claim."""
    rounds_held: int = 0
    """Number of these rounds in which the claim held."""


class PredictionResult(Part, frozen=True, kw_only=True):
    """A number predicted before the run, with its measurement."""

    decision: DecisionId
    metric: str
    """Name of the metric in the model."""
    variant: str = msgspec.field(default="candidate", name="arm")
    """The variant that the prediction is about; it is compared with the baseline."""
    low: float
    expected: float
    high: float
    source_figure: str = ""
    """The source's figure, from the first claim on the same quantity that has one."""
    measured: float | None = None
    measured_low: float | None = None
    measured_high: float | None = None
    """End of the interval of a measured ratio, from ``measured_low``; null with too few pairs."""
    inside: bool | None = None
    """True if the measured number is in the predicted range; null if unknown."""
    reason: str = ""
    """The reason why ``inside`` is unknown."""


class VariantText(Part, frozen=True, kw_only=True):
    """A variant's nginx.conf in the run."""

    variant: str = msgspec.field(name="arm")
    nginx_conf: str
    left_out: str = ""
    """The reason why the variant did not run."""


class VariantCause(Part, frozen=True, kw_only=True):
    """A cause in a variant's runs, named as in ``observe``."""

    variant: str = msgspec.field(name="arm")
    runs: int = msgspec.field(name="blocks")
    """Number of runs with the cause."""
    of_runs: int = msgspec.field(name="of_blocks")
    cause: Cause
    """The cause with the figures of one run."""


class ScenarioRun(Document, frozen=True, kw_only=True, tag="nginx-tune/scenario_run/1"):
    """The result of a scenario."""

    name: str
    facts: Facts = Facts()
    """Facts of the emulated host, the input of the decisions."""
    prediction: Decisions
    """The decisions before the first run."""
    predictions: list[PredictionResult] = []
    """The predicted numbers that the candidate tests and a measurement can check."""
    claims: list[ClaimResult] = []
    verdict: Verdict
    causes: list[VariantCause] = []
    """The causes in at least half of a variant's runs."""
    variants: list[VariantText] = msgspec.field(default_factory=list, name="arms")
    measurements: list[Measurement] = []


MultiplexedVersion = Literal["2", "3"]
"""HTTP/2 over TLS, or HTTP/3."""


class SiteLoad(Part, frozen=True, kw_only=True):
    """The classes of a load, its default primary metric, and notes."""

    classes: list[ScenarioClass]
    """Classes for files of the first root, and for requests without a file."""
    primary_metric: str = ""
    notes: list[str] = []
    asks: Literal["all", "locations", "files"] = "files"
    """The other servers and locations in the load: all, those of ``locations``, or none."""
    locations: list[LocationShare] = []
    """Their shares of the requests."""
    rate_per_second: float | None = None
    """Rate of all requests, if their shares are known."""
    protocols: list[MultiplexedVersion] = []
    """Protocols for other servers and locations that support them, else HTTP/1.1; the classes have
    their own."""
    manifest: str = ""
    """File of recorded requests."""
    hashed: bool = False
    """True if paths are hashed; only a lab can have files for them."""


class ExperimentSpec(Document, frozen=True, kw_only=True, tag="nginx-tune/experiment/1"):
    """A comparison of two configurations: their place, load and criteria."""

    baseline: str = ""
    """Path of the baseline's nginx.conf; empty for the host's current one."""
    candidate: str = ""
    """Path of the candidate's nginx.conf; empty with ``plan``."""
    plan: str = ""
    """File of a plan, which turns the baseline into the candidate."""
    prefix: str | None = None
    """nginx's ``-p``; null for the default prefix of its build."""
    lab: Lab | None = None
    """The emulated host; null for this machine as it is."""
    starts: Literal["full", "cold"] = "full"
    """Lab data in memory at the start of a run. ``full``: as much as fits, like in the long run;
    ``cold``: none."""
    scale: float | None = None
    """Share of a manifest's objects that have files in the lab; null for about a GiB of files."""
    load: SiteLoad
    primary_metric: str | None = None
    """The metric that decides; null for the default of the load."""
    requires: list[str] = []
    """Gate expressions."""
    objectives: list[str] = []
    """Objectives of the variants' capacities; empty for no search."""
    accept_worse: list[str] = []
    """Metrics that may become worse."""
    accept_lost: bool = False
    """True if the candidate may serve less than the baseline."""
    pairs: int = 6
    warmup_seconds: float | None = None
    """Duration of the warm-up; null to find it with a run of each variant."""
    duration_seconds: float = 8.0
    max_seconds: float | None = None
    """Time limit for additional pairs until the outcome is clear; null for ``pairs`` alone."""
    self_check: bool = False
    """True to measure the noise floor first, by the baseline against itself."""
    seed: int = 1
    found: list[str] = []
    """The findings of an examination of both configurations, as text: the requests, the answers,
    and deviations from the configuration. A run examines them again."""
    lost: list[str] = []
    """Addresses, names, locations and files that only the baseline served in the examination."""


Shown = Literal["yes", "part", "no"]


class RowClaim(Part, frozen=True, kw_only=True):
    """A claim that a scenario makes about a row."""

    scenario: str
    name: str
    expected: str
    """The expectation, with the variants that it compares."""


class SourceRow(Part, frozen=True, kw_only=True):
    """A fact from the published texts."""

    row: str
    """``A1`` … ``A17``, ``B1`` … ``B7``, ``C1`` … ``C9``."""
    fact: str
    figure: str = ""
    """The source's figure; empty for none."""
    shown: Shown
    """``yes``: a claim or a command shows it on a real nginx; ``part``: in part, or not on a real
    nginx."""
    scenarios: list[str] = []
    """Scenarios with a claim about the fact."""
    set_up: list[str] = []
    """Scenarios that set the fact up or measure it, without a claim."""
    commands: list[str] = []
    missing: str = ""
    """The parts that are not shown or are shown differently, with the reasons."""
    claims: list[RowClaim] = []


class UntriedClaims(Part, frozen=True, kw_only=True):
    """Claims of a scenario that this host cannot test."""

    scenario: str
    claims: list[str]
    reason: str


class SourceRows(Document, frozen=True, kw_only=True, tag="nginx-tune/source_rows/1"):
    """All rows, in the order of the texts."""

    rows: list[SourceRow] = []
    claims: int = 0
    """Number of claims of all scenarios; 0 if not counted."""
    untried: list[UntriedClaims] = []
