"""Everything that the process inside the walls is asked, as one typed table.

``Session`` and ``trial`` ask; ``inside`` answers. A new question is a row here and a function
there.
"""

from __future__ import annotations

import msgspec

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import LoadPlan, Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import HeldKind, Manner, Turnover
from nginx_tune.experiment.arm import Arm
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.environment import Outgoing, Placement, Stubs
from nginx_tune.nginx.lab.operation import HELLO, Operation
from nginx_tune.nginx.reload.address import Address


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
    """What nginx gets to see of the host."""


class OpenedLab(msgspec.Struct, frozen=True, kw_only=True):
    """What there is then."""

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
    """Have around the arms what they need: addresses, names, other servers, files."""

    binary: str
    addresses: list[str]
    commands: dict[str, list[str]]
    """By the arm's name: each tests its configuration."""
    shown: dict[str, dict[str, bytes]]
    """By the arm's name: files that it sees with other bytes, by their paths."""
    outgoing: list[Outgoing]
    cpus: list[int]
    """CPUs of the clients and the stubs."""
    sockets: list[str] = []
    """Paths of the unix sockets that the configurations listen on."""
    echoes: bool = False
    """Whether the stubs of HTTP take upgraded connections, and echo what comes."""


class MadeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now."""

    names: list[str] = []
    """Names that resolve for the first time."""
    stubs: Stubs = Stubs()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A URL at a server."""

    target: Target
    url: str


class SurveyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm answers to each, before anything is measured."""

    binary: str
    arm: Arm
    questions: list[Question]
    memory_bytes: int | None = None
    """Limit of the group."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int | None = None
    length_bytes: int | None = None
    """Of the body: as its header says, else as it was counted."""
    digest: str = ""
    """Of the body's beginning."""
    fault: str = ""
    """Why nothing came."""
    was_asked: bool = True


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``nginx -t`` with some files replaced."""

    argv: list[str]
    files: dict[str, bytes]
    """Other bytes of files, by their paths without links."""
    view: HostNeeds
    join_files: list[str]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What nginx said of it."""

    status: int
    messages: list[str]
    refused_calls: list[str] = []
    """System calls that the sandbox refused it."""


class BlockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh nginx in a known cache state, and one load run."""

    arm: Arm
    number: int
    binary: str
    plan: LoadPlan
    join_files: list[str] = []
    nginx_cpus: list[int] = []
    memory_bytes: int | None = None
    """Limit of the group; a full page cache is one that reaches it."""


class LaidTrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``nginx -t`` with the bytes that an arm sees."""

    argv: list[str]
    arm: str


class HeldClient(msgspec.Struct, frozen=True, kw_only=True):
    """A long connection that is held while nginx is changed."""

    kind: HeldKind
    target: Target
    url: str
    bytes: int = 0
    """Of an upload."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """nginx before a change, or after it."""

    arm: str
    """Whose bytes its files have."""
    binary: str
    addresses: list[Address]


class RehearseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a running nginx under load, there and, where it was taken, back."""

    manner: Manner
    arm: Arm
    old: Side
    new: Side
    goes_back: bool
    plan: LoadPlan
    """How long it runs is settled inside: until the old workers are gone."""
    held: list[HeldClient]
    error_logs: list[str]
    before_seconds: float
    after_seconds: float
    drain_seconds: float
    join_files: list[str] = []
    nginx_cpus: list[int] = []

    @property
    def turn_seconds(self) -> float:
        """How long the change takes one way, when workers drain all of their time."""
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
BLOCK = Operation("block", BlockRequest, Measurement)
LAID_TRIAL = Operation("laid_trial", LaidTrialRequest, Tried)
REHEARSE = Operation("rehearse", RehearseRequest, list[Turnover])

OPERATIONS = {
    one.name: one
    for one in (
        HELLO, OPEN_LAB, JOIN, FACTS, ENVIRONMENT, SURVEY, TRIAL, BLOCK, LAID_TRIAL, REHEARSE,
    )
}  # fmt: skip
