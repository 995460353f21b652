"""``scenario`` and ``experiment``: comparisons settled before they run; ``source_rows``: the texts.

A scenario is a TOML file; ``scenario_run`` is what came out. An experiment compares two
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

Source rows are the facts that the published texts state, with what shows each of them here.
"""

from __future__ import annotations

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
"""Sources of classes that read no file."""


class ScenarioClass(RequestClass, frozen=True, kw_only=True):
    """A request class of a scenario; ``source`` says where its paths come from.

    Of HTTP/2 the listener must be one: ``listen … http2`` or ``http2 on``, in a lab with TLS;
    without TLS ``http2 on`` alone, since what asks once speaks HTTP/1.1. Of HTTP/3 ``listen …
    quic``, in a lab with TLS.
    """

    source: Literal["random", "hot", "memory"]
    """``random``: all files, uniformly; ``hot``: one file, primed; ``memory``: no file."""
    timeout_seconds: Seconds = 60.0
    disk: str = ""
    """Disk whose files are asked for; empty for the first. Where the scenario has
    ``cached_files``, those of them that the split by the key gives to this disk's cache; empty for
    objects that no cache has."""
    first_files: AtMostCount | None = None
    """Of the files, only so many of the first are asked for; null for all."""
    manifest: str = ""
    """File of recorded requests that are asked for, in the place of files of the data."""
    exponent: float | None = None
    """Zipf exponent of the popularity of random files; null for all alike."""
    once: bool = False
    """Whether each random file is asked for once, in shuffled order, before any is again."""
    beside_memory: AtMostCount = 0
    """For each random file so many requests of what needs no file, on the same connections."""
    checks_length: bool = True
    """Whether a body must be as long as its file; not so when nginx compresses it."""


class Reload(Part, frozen=True, kw_only=True):
    """Reloads while the load runs."""

    every_seconds: AtMostSeconds
    worker_processes: list[AtMostCount]
    """One after the other, from the start again; the first is what nginx starts with."""


StandIn = Literal["none", "raw-blocking-accept", "raw-epoll-accept"]


class VariantSpec(Part, frozen=True, kw_only=True):
    """One variant: which server runs, how its configuration comes about, what it is asked."""

    decisions: Literal["none", "recommended"] = "none"
    """``none``: the plain static configuration of the source; ``recommended``: what we decide."""
    settings: list[Setting] = []
    """Forced on top, replacing the same directive in the same context."""
    stand_in: StandIn = "none"
    """A bare server in nginx's place: processes that accept from one listening socket, all of
    them blocked in accept() or all of them in epoll with EPOLLEXCLUSIVE, as the source had."""
    series: str = ""
    """nginx of another series, such as ``1.18``, that ``tools/nginx-matrix`` has unpacked."""
    sysctls: dict[str, str] = {}
    """Of the lab's own network namespace, while this variant runs; ``net.`` alone."""
    warm_names: bool = False
    """Whether every file's name is looked up before nginx starts, so that ``open()`` waits for
    no disk; for a lab with ``cold_names``."""
    reload: Reload | None = None
    cleartext: bool = False
    """Whether it listens without TLS, in a lab that has it."""
    classes: list[ScenarioClass] = []
    """Replace the scenario's classes of the same names; for a load of another size."""


class ExtraVariant(VariantSpec, frozen=True, kw_only=True):
    """A variant besides baseline and candidate; claims name it."""

    name: str
    optional: bool = False
    """Left out, with its claims, where this machine has not what it needs."""


class Claim(Part, frozen=True, kw_only=True):
    """Something the experiment must show."""

    name: str
    source_row: str = ""
    """Row of the source, e.g. ``A7``; empty for what no row tells."""
    expression: str
    """A gate expression, e.g. ``ratio(hot.requests_per_second) >= 10``."""
    source_figure: str = ""
    variant: str = msgspec.field(default="candidate", name="arm")
    """The variant that the expression is about."""
    against: str = "baseline"
    """The variant that it is compared with."""
    expect: Literal["holds", "fails"] = "holds"
    """``fails`` for a gate that must not pass; one that was not measured shows nothing."""
    less_than: str = ""
    """Another claim, by its name, whose measured number must be larger than this one's."""


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
    """Run in every round beside the two."""
    hot_locations: list[str] = []
    """Of the site: location prefixes whose files are asked for all the time."""
    cached_files: Count = 0
    """So many objects of the origin, from the first, are in the cache as a run starts: asked
    for from an nginx that is then ended. Nothing of them is in memory."""
    counts_connections: bool = False
    """Whether each worker's connections are counted, from a log of its own."""
    counts_opens: bool = False
    """Whether the workers' calls of ``open()`` are counted: ``server.open_seconds``."""
    starts: Start = "cold"
    """Whether a run finds none of the data in the page cache (``cold``), all of it (``warm``),
    or as much as the memory limit allows, files taken at random (``full``)."""
    traces: bool = True
    """Whether loop turns are traced; tracing costs nginx CPU in each."""
    classes: list[ScenarioClass]
    primary_metric: str
    pairs: int = 6
    warmup_seconds: AtMostSeconds = 2.0
    duration_seconds: AtMostSeconds = 8.0
    drain_seconds: AtMostSeconds | None = None
    """How long a run waits for the last answers; null for half of its time, at least 5 s. What
    is unanswered then counts at its age."""
    claims: list[Claim] = []
    seed: int = 1
    learn: str = ""
    """What the experiment teaches: the text of its page."""


class ScenarioSummary(Part, frozen=True, kw_only=True):
    """A scenario in the list of all."""

    name: str
    source_rows: list[str] = []
    """Of which it has claims."""
    title: str = ""


class Scenarios(Document, frozen=True, kw_only=True, tag="nginx-tune/scenarios/1"):
    """The built-in scenarios, by name."""

    scenarios: list[ScenarioSummary] = []


class ClaimResult(Part, frozen=True, kw_only=True):
    """A claim and what was measured."""

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
    """Whether a variant that it needs could not run here, and may be missing."""
    rounds: int = 0
    """Rounds that can answer it by themselves."""
    rounds_held: int = 0
    """Of these, in which it held."""


class PredictionResult(Part, frozen=True, kw_only=True):
    """A number that was predicted before the run, and what was measured."""

    decision: DecisionId
    metric: str
    """As the model names it."""
    variant: str = msgspec.field(default="candidate", name="arm")
    """The variant that tries it, against the baseline."""
    low: float
    expected: float
    high: float
    source_figure: str = ""
    """Of the first claim on the same quantity that has one."""
    measured: float | None = None
    measured_low: float | None = None
    measured_high: float | None = None
    """Interval of a measured ratio, where there are pairs enough."""
    inside: bool | None = None
    """Whether what was measured lies in the predicted range; null: it could not be told."""
    reason: str = ""
    """Why it could not be told."""


class VariantText(Part, frozen=True, kw_only=True):
    """A variant's nginx.conf as it ran."""

    variant: str = msgspec.field(name="arm")
    nginx_conf: str
    left_out: str = ""
    """Why the variant did not run."""


class VariantCause(Part, frozen=True, kw_only=True):
    """A cause that the server showed in a variant's runs, as ``observe`` names it."""

    variant: str = msgspec.field(name="arm")
    runs: int = msgspec.field(name="blocks")
    """Those that show it."""
    of_runs: int = msgspec.field(name="of_blocks")
    cause: Cause
    """With the figures of one of them."""


class ScenarioRun(Document, frozen=True, kw_only=True, tag="nginx-tune/scenario_run/1"):
    """What a scenario showed."""

    name: str
    facts: Facts = Facts()
    """Of the emulated host, as the decisions had them."""
    prediction: Decisions
    """Made before the first run."""
    predictions: list[PredictionResult] = []
    """Those numbers of it that the candidate tries and a measurement can answer."""
    claims: list[ClaimResult] = []
    verdict: Verdict
    causes: list[VariantCause] = []
    """What half of a variant's runs or more show."""
    variants: list[VariantText] = msgspec.field(default_factory=list, name="arms")
    measurements: list[Measurement] = []


MultiplexedVersion = Literal["2", "3"]
"""HTTP/2 over TLS, or HTTP/3."""


class SiteLoad(Part, frozen=True, kw_only=True):
    """The classes of a load, the metric that decides by default, and what to say of it."""

    classes: list[ScenarioClass]
    """Of the files of the first root, and of what needs no file."""
    primary_metric: str = ""
    notes: list[str] = []
    asks: Literal["all", "locations", "files"] = "files"
    """Whether other servers and locations are asked too: all, those of ``locations``, or none."""
    locations: list[LocationShare] = []
    """The share of each in the requests."""
    rate_per_second: float | None = None
    """Of all requests, where shares are told."""
    protocols: list[MultiplexedVersion] = []
    """Over which other servers and locations are asked where they speak it, else HTTP/1.1; the
    classes say it of themselves."""
    manifest: str = ""
    """File of recorded requests."""
    hashed: bool = False
    """Whether the paths in it are hashes, which only a lab can have files of."""


class ExperimentSpec(Document, frozen=True, kw_only=True, tag="nginx-tune/experiment/1"):
    """Two configurations, where they run, what they are asked and what decides."""

    baseline: str = ""
    """Path of its nginx.conf; empty for the one that the host's nginx has."""
    candidate: str = ""
    """Path of its nginx.conf; empty with ``plan``."""
    plan: str = ""
    """File of a plan: the candidate is the baseline with it."""
    prefix: str | None = None
    """nginx's ``-p`` as it was asked for; null for the one that nginx has."""
    lab: Lab | None = None
    """The emulated host; null for this machine as it is."""
    starts: Literal["full", "cold"] = "full"
    """What of a lab's data is in memory as a run starts: as much as it holds, as in the long
    run, or nothing."""
    scale: float | None = None
    """Share of a manifest's objects that the lab has files of; null for about a GiB."""
    load: SiteLoad
    primary_metric: str | None = None
    """Null for the load's own."""
    requires: list[str] = []
    """Gate expressions."""
    objectives: list[str] = []
    """What the capacity of each variant is searched under; none for no search."""
    accept_worse: list[str] = []
    """Metrics that may become worse."""
    accept_lost: bool = False
    """Whether the candidate may serve less than the baseline."""
    pairs: int = 6
    warmup_seconds: float | None = None
    """Null has it found by a run of each variant."""
    duration_seconds: float = 8.0
    max_seconds: float | None = None
    """Pairs are added until it is settled or this is over; null for just ``pairs``."""
    self_check: bool = False
    """Whether the noise floor is measured first: the baseline against itself."""
    seed: int = 1
    found: list[str] = []
    """What a look at both showed, for people: what is asked and what it answers, what is not as
    configured. A run looks again."""
    lost: list[str] = []
    """What the baseline serves and the candidate does not, when it was looked at."""


Shown = Literal["yes", "part", "no"]


class RowClaim(Part, frozen=True, kw_only=True):
    """A scenario's claim of a row."""

    scenario: str
    name: str
    expected: str
    """With the variants that it is about."""


class SourceRow(Part, frozen=True, kw_only=True):
    """One fact of the texts."""

    row: str
    """``A1`` … ``A17``, ``B1`` … ``B7``, ``C1`` … ``C9``."""
    fact: str
    figure: str = ""
    """The source's; empty where it states none."""
    shown: Shown
    """``yes``: a claim or a command shows it on a real nginx; ``part``: some of it, or not on a
    real nginx."""
    scenarios: list[str] = []
    """That have a claim of it."""
    set_up: list[str] = []
    """Scenarios that are arranged as it tells, or measure it, with no claim of it."""
    commands: list[str] = []
    missing: str = ""
    """What is not shown, or is another way than in the source, and why."""
    claims: list[RowClaim] = []


class UntriedClaims(Part, frozen=True, kw_only=True):
    """Claims of a scenario that cannot be tried on this host."""

    scenario: str
    claims: list[str]
    reason: str


class SourceRows(Document, frozen=True, kw_only=True, tag="nginx-tune/source_rows/1"):
    """All of them, in the order of the texts."""

    rows: list[SourceRow] = []
    claims: int = 0
    """Those of all scenarios; 0 where nobody counted them."""
    untried: list[UntriedClaims] = []
