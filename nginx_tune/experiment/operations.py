"""Operations of the process inside the sandbox, as one typed table, and the variants it runs.

``Session`` and ``trial`` ask; ``inside`` answers. A new question is a row here and a function
there.
"""

from __future__ import annotations

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
    """All that is not plain about how a variant runs."""

    binary: str | None = None
    """Another nginx than the session's."""
    stand_in: StandIn = "none"
    """A bare server in nginx's place."""
    workers: int = 1
    """The stand-in's."""
    sysctls: dict[str, str] = {}
    """Those of the network namespace, for each run."""
    reload_texts: list[str] = []
    """Configurations that nginx is reloaded with, one after the other; none for no reload."""
    reload_seconds: float = 1.0
    """From one reload to the next."""
    connections_log: str | None = None
    """The log in which the server says which worker served which connection."""
    starts: Start = "cold"
    """The part of the data that is in the page cache as a run starts."""
    traces: bool = True
    """Loop turns are traced."""
    drain_seconds: float | None = None
    """The wait for the last answers; null for the plan's own."""
    cached: list[str] = []
    """URLs that are asked for before each run, from an nginx of this variant that is then ended.
    """
    counts_opens: bool = False
    """Calls of open() are counted."""
    warm_names: bool = False
    """Every name is looked up before nginx starts."""
    cleartext: bool = False
    """It listens without TLS where the lab has it."""
    ahead: bool = False
    """nginx runs ahead of what else the machine does; not for a host that serves."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration under test."""

    name: str
    conf_path: str
    conf_text: str | None = None
    """Written to ``conf_path`` before each run; null when the file is the operator's own."""
    error_log: str | None = None
    """The main context's error log; null for standard error."""
    prefix: str | None = None
    """nginx's ``-p``; null for the build's own."""
    prime: list[str] = []
    """URLs fetched once before each load: what must be in the page cache."""
    limited: dict[str, list[int]] = {}
    """By class, what limits of the configuration answer where they refuse a request."""
    conduct: Conduct = Conduct()


class OpenLabRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make, mount and fill the disks, cover what nginx writes to, seal the rest."""

    lab: Lab
    covers: list[str]
    """Directories in whose place are empty ones."""
    overlays: list[str] = []
    """Directories that nginx writes to and that hold what it serves or reads."""
    made: list[str] = []
    """Directories that it needs and that the host lacks."""
    view: HostNeeds
    """The part of the host that nginx gets to see."""


class OpenedLab(msgspec.Struct, frozen=True, kw_only=True):
    """The lab that is there then."""

    devices: dict[str, str]
    """MAJOR:MINOR of each disk."""
    files: dict[str, list[tuple[str, int]]]
    """Path and bytes of the files of each disk."""
    placement: Placement
    tcp: dict[str, str]
    """Settings of TCP inside, by sysctl."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Have what is started from now on in these cgroups, if only to be tried."""

    files: list[str]
    """Each takes a process id."""


class FactsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Facts as a program inside the lab reads them."""

    paths: list[str]
    binary: str
    memory_cgroup: str | None


class EnvironmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Have around the variants what they need: addresses, names, other servers, files."""

    binary: str
    addresses: list[str]
    commands: dict[str, list[str]]
    """By the variant's name: each tests its configuration."""
    shown: dict[str, dict[str, bytes]]
    """By the variant's name: files that it sees with other bytes, by their paths."""
    outgoing: list[Outgoing]
    cpus: list[int]
    """CPUs of the clients and the stubs."""
    sockets: list[str] = []
    """Paths of the unix sockets that the configurations listen on."""
    echoes: bool = False
    """The stubs of HTTP take upgraded connections, and echo what comes."""


class MadeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings that there are now."""

    names: list[str] = []
    """Names that resolve for the first time."""
    stubs: Stubs = Stubs()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A URL at a server."""

    target: Target
    url: str


class SurveyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Questions to a variant, before anything is measured."""

    binary: str
    variant: Variant
    questions: list[Question]
    memory_bytes: int | None = None
    """Limit of the group."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that came back."""

    status: int | None = None
    length_bytes: int | None = None
    """The body's: as its header says, else as it was counted."""
    digest: str = ""
    """The digest of the body's beginning."""
    fault: str = ""
    """The reason why nothing came."""
    was_asked: bool = True


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``nginx -t`` with some files replaced."""

    argv: list[str]
    files: dict[str, bytes]
    """Other bytes of files, by their paths without links."""
    view: HostNeeds
    join_files: list[str]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The words of nginx on it."""

    status: int
    messages: list[str]
    refused_calls: list[str] = []
    """System calls that the sandbox refused it."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh nginx in a known cache state, and one load run."""

    variant: Variant
    number: int
    binary: str
    plan: LoadPlan
    join_files: list[str] = []
    nginx_cpus: list[int] = []
    memory_bytes: int | None = None
    """Limit of the group; a full page cache is one that reaches it."""


class LaidTrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``nginx -t`` with the bytes that a variant sees."""

    argv: list[str]
    variant: str


class HeldClient(msgspec.Struct, frozen=True, kw_only=True):
    """A long connection that is held while nginx is changed."""

    kind: HeldKind
    target: Target
    url: str
    bytes: int = 0
    """The bytes of an upload."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """nginx before a change, or after it."""

    variant: str
    """Whose bytes its files have."""
    binary: str
    addresses: list[Address]


class RehearseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a running nginx under load, there and, where it was taken, back."""

    manner: Manner
    variant: Variant
    old: Side
    new: Side
    goes_back: bool
    plan: LoadPlan
    """Its length is settled inside: it runs until the old workers are gone."""
    held: list[HeldClient]
    error_logs: list[str]
    before_seconds: float
    after_seconds: float
    drain_seconds: float
    join_files: list[str] = []
    nginx_cpus: list[int] = []

    @property
    def turn_seconds(self) -> float:
        """The longest time for the change one way, when workers drain all of their time."""
        load = self.plan.warmup_seconds + self.before_seconds + self.after_seconds
        return load + self.drain_seconds

    @property
    def seconds(self) -> float:
        """The same there, and back where it goes back."""
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
    one.name: one
    for one in (
        HELLO, OPEN_LAB, JOIN, FACTS, ENVIRONMENT, SURVEY, TRIAL, RUN, LAID_TRIAL, REHEARSE,
    )
}  # fmt: skip


MODULE_INSIDE = "nginx_tune.experiment.inside"


_COMES_FROM = {
    401: "auth_basic, auth_request or auth_jwt: who asks has no password",
    403: "deny, auth_request, a rule on headers or addresses, permissions, or a missing index",
    429: "limit_req, limit_conn, or a rule on headers or addresses",
}


def may_come_from(status: int | None) -> str:
    """The lines that make such an answer; empty for one that says itself what it is.

    Who asks is this host, with no cookie, no referer and no password, by the probe's own name.
    """
    return _COMES_FROM.get(status or 0, "")


def said_of(status: int | None) -> str:
    """A clause that a place answers so, and what it may come from."""
    cause = may_come_from(status)
    return f"answers {status}{f' (it may come from {cause})' if cause else ''}"
