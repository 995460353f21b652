"""``scenario`` (TOML in), the ``lab`` it runs in, and ``scenario_run`` (what came out)."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.bounds import AtMostCount, AtMostSeconds, Count, Seconds
from nginx_tune.documents.decisions import DecisionId, Decisions, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import Lab, Start
from nginx_tune.documents.loadplan import RequestClass
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Cause
from nginx_tune.documents.verdict import Verdict
from nginx_tune.documents.workload import Kind

WITHOUT_FILE = frozenset({"memory", "events", "uploads"})
"""Sources of classes that read no file."""


class ScenarioClass(RequestClass, frozen=True, kw_only=True):
    """A request class of a scenario; ``source`` says where its paths come from.

    Of HTTP/2 the listener must be one: ``listen … http2`` or ``http2 on``, in a lab with TLS;
    without TLS ``http2 on`` alone, since what asks once speaks HTTP/1.1. Of HTTP/3 ``listen …
    quic``, in a lab with TLS.
    """

    source: Literal["random", "hot", "memory", "events", "uploads"]
    """``random``: all files, uniformly; ``hot``: one file, primed; ``memory``: no file;
    ``events``: the origin's streams of events, watched while they come; ``uploads``: bodies
    (``upload``) that the origin counts."""
    timeout_seconds: Seconds = 60.0
    query: str = ""
    """Of ``events``: what the origin is asked for, such as ``buffering=no``."""
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


class ArmSpec(Part, frozen=True, kw_only=True):
    """One arm: which server runs, how its configuration comes about, what it is asked."""

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
    """Of the lab's own network namespace, while this arm runs; ``net.`` alone."""
    warm_names: bool = False
    """Whether every file's name is looked up before nginx starts, so that ``open()`` waits for
    no disk; for a lab with ``cold_names``."""
    reload: Reload | None = None
    cleartext: bool = False
    """Whether it listens without TLS, in a lab that has it."""
    classes: list[ScenarioClass] = []
    """Replace the scenario's classes of the same names; for a load of another size."""


class FurtherArm(ArmSpec, frozen=True, kw_only=True):
    """An arm besides baseline and candidate; claims name it."""

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
    arm: str = "candidate"
    """The arm that the expression is about."""
    against: str = "baseline"
    """The arm that it is compared with."""
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
    baseline: ArmSpec = ArmSpec()
    candidate: ArmSpec = ArmSpec(decisions="recommended")
    arms: list[FurtherArm] = []
    """Run in every round beside the two."""
    hot_locations: list[str] = []
    """Of the site: location prefixes whose files are asked for all the time."""
    cached_files: Count = 0
    """So many objects of the origin, from the first, are in the cache as a block starts: asked
    for from an nginx that is then ended. Nothing of them is in memory."""
    counts_connections: bool = False
    """Whether each worker's connections are counted, from a log of its own."""
    counts_opens: bool = False
    """Whether the workers' calls of ``open()`` are counted: ``server.open_seconds``."""
    starts: Start = "cold"
    """Whether a block finds none of the data in the page cache (``cold``), all of it (``warm``),
    or as much as the memory limit allows, files taken at random (``full``)."""
    traces: bool = True
    """Whether loop turns are traced; tracing costs nginx CPU in each."""
    classes: list[ScenarioClass]
    primary_metric: str
    pairs: int = 6
    warmup_seconds: AtMostSeconds = 2.0
    duration_seconds: AtMostSeconds = 8.0
    drain_seconds: AtMostSeconds | None = None
    """How long a block waits for the last answers; null for half of its time, at least 5 s. What
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
    arm: str = "candidate"
    against: str = "baseline"
    left_out: bool = False
    """Whether an arm that it needs could not run here, and may be missing."""
    rounds: int = 0
    """Rounds that can answer it by themselves."""
    rounds_held: int = 0
    """Of these, in which it held."""


class PredictionResult(Part, frozen=True, kw_only=True):
    """A number that was predicted before the run, and what was measured."""

    decision: DecisionId
    metric: str
    """As the model names it."""
    arm: str = "candidate"
    """The arm that tries it, against the baseline."""
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


class ArmText(Part, frozen=True, kw_only=True):
    """An arm's nginx.conf as it ran."""

    arm: str
    nginx_conf: str
    left_out: str = ""
    """Why the arm did not run."""


class ArmCause(Part, frozen=True, kw_only=True):
    """Something that the server showed in an arm's blocks, as ``observe`` would have named it."""

    arm: str
    blocks: int
    """That show it."""
    of_blocks: int
    cause: Cause
    """With the figures of one of them."""


class ScenarioRun(Document, frozen=True, kw_only=True, tag="nginx-tune/scenario_run/1"):
    """What a scenario showed."""

    name: str
    facts: Facts = Facts()
    """Of the emulated host, as the decisions had them."""
    prediction: Decisions
    """Made before the first block."""
    predictions: list[PredictionResult] = []
    """Those numbers of it that the candidate tries and a measurement can answer."""
    claims: list[ClaimResult] = []
    verdict: Verdict
    causes: list[ArmCause] = []
    """What half of an arm's blocks or more show."""
    arms: list[ArmText] = []
    measurements: list[Measurement] = []
