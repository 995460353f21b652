"""The requests to the process inside the sandbox, with their types, and the variants.

``Session`` and ``trial`` send them; ``inside`` answers. A new operation needs a row here and a
method in ``inside``.
"""

import msgspec

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import Lab, Start
from nginx_tune.documents.loadplan import LoadPlan, Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import HeldKind, Manner, RehearsedReload
from nginx_tune.documents.scenario import StandIn
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.operation import HELLO, Operation, Outgoing, Placement, Stubs
from nginx_tune.nginx.reload.address import Address


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a variant's runs, apart from its configuration."""

    binary: str | None = None
    """The nginx of this variant; null for the nginx of the session."""
    stand_in: StandIn = "none"
    """A bare server that runs in place of nginx."""
    workers: int = 1
    """The stand-in's processes."""
    sysctls: dict[str, str] = {}
    """Settings of the network namespace during a run."""
    reload_texts: list[str] = []
    """Configurations to reload nginx with, in turn; empty for no reload."""
    reload_seconds: float = 1.0
    """The time between reloads."""
    connections_log: str | None = None
    """Path of a log that records the worker of each connection."""
    starts: Start = "cold"
    """The state of the page cache at the start of a run."""
    traces: bool = True
    """Trace loop turns."""
    drain_seconds: float | None = None
    """The time to wait for the last answers; None for the plan's own."""
    cached: list[str] = []
    """URLs that another nginx of this variant caches before each run."""
    counts_opens: bool = False
    """Count calls of open()."""
    warm_names: bool = False
    """Look up every file name before nginx starts."""
    cleartext: bool = False
    """Listen without TLS in a lab with TLS."""
    ahead: bool = False
    """Give nginx priority over other work of the machine; not for a host in production."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration under test."""

    name: str
    conf_path: str
    conf_text: str | None = None
    """The text to write to ``conf_path`` before each run; None for the operator's own file."""
    error_log: str | None = None
    """The main context's error log; None for standard error."""
    prefix: str | None = None
    """nginx's ``-p``; None for the build's own."""
    prime: list[str] = []
    """URLs fetched once before each load, so that their files are in the page cache."""
    limited: dict[str, list[int]] = {}
    """The statuses with which limits of the configuration refuse requests, by class."""
    conduct: Conduct = Conduct()


class OpenLabRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make, mount and fill the disks; cover what nginx writes to; make the rest read-only."""

    lab: Lab
    covers: list[str]
    """Directories to replace by empty ones."""
    overlays: list[str] = []
    """Directories that nginx both writes to and reads or serves from."""
    made: list[str] = []
    """Directories to create, which the host lacks."""
    view: HostNeeds
    """The part of the host that nginx sees."""


class OpenedLab(msgspec.Struct, frozen=True, kw_only=True):
    """The lab as it was opened."""

    devices: dict[str, str]
    """MAJOR:MINOR of each disk."""
    files: dict[str, list[tuple[str, int]]]
    """Path and bytes of the files of each disk."""
    placement: Placement
    tcp: dict[str, str]
    """TCP settings inside, by sysctl."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Start all further processes in these cgroups, including trials."""

    files: list[str]
    """The ``cgroup.procs`` files."""


class FactsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Gather the facts that a program inside the lab sees."""

    paths: list[str]
    binary: str
    memory_cgroup: str | None


class EnvironmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make what the variants need around them: addresses, names, other servers, files."""

    binary: str
    addresses: list[str]
    commands: dict[str, list[str]]
    """The command that tests each variant's configuration."""
    shown: dict[str, dict[str, bytes]]
    """The files that each variant sees with other bytes, by path."""
    outgoing: list[Outgoing]
    cpus: list[int]
    """CPUs of the clients and the stubs."""
    sockets: list[str] = []
    """Paths of the unix sockets that the configurations listen on."""
    echoes: bool = False
    """HTTP stubs accept upgrades and echo."""


class MadeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings that were made for the variants."""

    names: list[str] = []
    """Host names that did not resolve before."""
    stubs: Stubs = Stubs()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a URL of a server."""

    target: Target
    url: str


class SurveyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make single requests to a variant, before anything is measured."""

    binary: str
    variant: Variant
    questions: list[Question]
    memory_bytes: int | None = None
    """The cgroup's limit."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a :class:`Question`."""

    status: int | None = None
    length_bytes: int | None = None
    """The length of the body, from its header or else counted."""
    digest: str = ""
    """The digest of the body's beginning."""
    fault: str = ""
    """The reason why there is no answer."""
    was_asked: bool = True


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Run ``nginx -t`` with some files replaced."""

    argv: list[str]
    files: dict[str, bytes]
    """New contents by path without symbolic links."""
    view: HostNeeds
    join_files: list[str]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The exit status and messages of ``nginx -t``."""

    status: int
    messages: list[str]
    refused_calls: list[str] = []
    """System calls that the sandbox refused."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make one run: a fresh nginx in a known cache state, under one load."""

    variant: Variant
    number: int
    binary: str
    plan: LoadPlan
    join_files: list[str] = []
    nginx_cpus: list[int] = []
    memory_bytes: int | None = None
    """The cgroup's limit, which a full page cache reaches."""


class LaidTrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Run ``nginx -t`` with the files that a variant sees."""

    argv: list[str]
    variant: str


class HeldClient(msgspec.Struct, frozen=True, kw_only=True):
    """A long connection that stays open while nginx is changed."""

    kind: HeldKind
    target: Target
    url: str
    bytes: int = 0
    """The size of an upload."""
    limited: list[int] = []
    """Statuses of limits on clients, after which an opening is tried again."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """nginx before a change, or after it."""

    variant: str
    """The variant whose files nginx sees."""
    binary: str
    addresses: list[Address]


class RehearseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Change a running nginx under load and, if nginx took the change, change it back."""

    manner: Manner
    variant: Variant
    old: Side
    new: Side
    goes_back: bool
    plan: LoadPlan
    """The load, which runs until the old workers have exited."""
    held: list[HeldClient]
    error_logs: list[str]
    before_seconds: float
    after_seconds: float
    drain_seconds: float
    join_files: list[str] = []
    nginx_cpus: list[int] = []

    @property
    def turn_seconds(self) -> float:
        """The longest time that one change can take, including the whole drain time."""
        load = self.plan.warmup_seconds + self.before_seconds + self.after_seconds
        return load + self.drain_seconds

    @property
    def seconds(self) -> float:
        """The longest time that the change and the change back can take."""
        return self.turn_seconds * (2 if self.goes_back else 1)


OPEN_LAB = Operation("open_lab", OpenLabRequest, OpenedLab)
JOIN = Operation("join", JoinRequest, type(None))
FACTS = Operation("facts", FactsRequest, Facts)
ENVIRONMENT = Operation("environment", EnvironmentRequest, MadeEnvironment)
SURVEY = Operation("survey", SurveyRequest, list[Response])
TRIAL = Operation("trial", TrialRequest, Tried)
RUN = Operation("run", RunRequest, Measurement)
LAID_TRIAL = Operation("laid_trial", LaidTrialRequest, Tried)
REHEARSE = Operation("rehearse", RehearseRequest, list[RehearsedReload])

OPERATIONS = {
    operation.name: operation
    for operation in (
        HELLO, OPEN_LAB, JOIN, FACTS, ENVIRONMENT, SURVEY, TRIAL, RUN, LAID_TRIAL, REHEARSE,
    )
}  # fmt: skip


MODULE_INSIDE = "nginx_tune.experiment.inside"


_COMES_FROM = {
    401: "auth_basic, auth_request or auth_jwt: the request has no password",
    403: "deny, auth_request, a rule on headers or addresses, permissions, or a missing index",
    429: "limit_req, limit_conn, or a rule on headers or addresses",
}


def may_come_from(status: int | None) -> str:
    """The directives that may refuse a plain request with this status; empty for other statuses.

    A plain request comes from this host, with the probe's User-Agent and no cookie, referer or
    password.
    """
    return _COMES_FROM.get(status or 0, "")


def answer_clause(status: int | None) -> str:
    """A clause on the status that a place answers, with its likely cause."""
    cause = may_come_from(status)
    return f"answers {status}{f' (it may come from {cause})' if cause else ''}"
