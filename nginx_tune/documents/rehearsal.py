"""``rehearsal``: the effects of a change to a running nginx, tried in the sandbox."""

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.plan import ReloadWarning
from nginx_tune.documents.verdict import GateResult

Manner = Literal["reload", "upgrade", "restart"]
"""``reload``: SIGHUP. ``upgrade``: SIGUSR2, SIGWINCH and SIGQUIT. ``restart``: a stop and a start,
as packages do it."""
HeldKind = Literal["idle", "silent", "keepalive", "websocket", "download", "upload"]
"""``silent``: a connection whose first request comes after the change, like a browser's
preconnect."""
PhaseName = Literal["before", "during", "after"]
ReloadOutcome = Literal["taken", "refused", "down"]
"""``refused``: the old worker generation continues; ``down``: no worker serves."""


class FirstAnswer(Part, frozen=True, kw_only=True):
    """The first answer of a listener after the change."""

    listener: str
    seconds: float | None = None
    """Time until a new worker answered; null if no answer was seen."""
    reason: str = ""
    """The reason for no answer."""
    is_seen: bool = True
    """True if the kernel shows which worker accepted; it does not for unix sockets."""


class Phase(Part, frozen=True, kw_only=True):
    """The load's requests that were completed in a phase, which lasts whole seconds."""

    name: PhaseName
    seconds: int = 0
    requests: int = 0
    failed: int = 0
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    """99th percentile; null with fewer than ten samples beyond it."""
    max_seconds: float | None = None


class HeldConnections(Part, frozen=True, kw_only=True):
    """The long-lived connections of a kind."""

    kind: HeldKind
    held: int = 0
    """Working connections at the start of the change."""
    lost: int = 0
    """Connections that the server has since ended while a transfer was in progress."""
    closed: int = 0
    """Connections that the server closed with no transfer in progress, such as idle ones at a
    reload."""
    finished: int = 0
    """Connections whose transfer was completed."""
    kept: int = 0
    """Connections that still worked at the end."""
    reconnects: int = 0
    """Reconnections for further requests."""
    retried: int = 0
    """Requests sent again on a new connection, since theirs was closed while they were sent."""
    not_opened: int = 0
    lost_before: int = 0
    """Connections lost before the change."""
    reasons: dict[str, int] = {}
    """Number of connections that were lost or not opened, by reason."""


class RehearsedReload(Part, frozen=True, kw_only=True):
    """One change of the running nginx to other files or another program."""

    manner: Manner
    is_back: bool = False
    """True for the change back to the old configuration and program."""
    outcome: ReloadOutcome
    reason: str = ""
    """The reason for the outcome: a line of nginx, or what was observed."""
    faults: list[str] = []
    """Emergencies and alerts of a change that took effect."""
    faults_before: list[str] = []
    """Emergencies and alerts that workers had also logged before the change, which therefore did
    not cause them."""
    first_answers: list[FirstAnswer] = []
    workers_before: int = 0
    workers_after: int = 0
    drain_seconds: float | None = None
    """Time until the last old worker ended; null if some remained at the end."""
    watched_seconds: float = 0.0
    """Time spent waiting for the old workers to end."""
    workers_left: int = 0
    """Old workers that remained at the end."""
    memory_before_bytes: int | None = None
    """Memory of all nginx processes before the change, with shared pages counted once (PSS)."""
    memory_peak_bytes: int | None = None
    """Peak memory of both worker generations."""
    counters: dict[str, int] = {}
    """Increase of the network namespace's kernel counters: ``ListenOverflows``, ``ListenDrops``,
    ``TCPMigrateReqSuccess``, ``OutRsts`` …"""
    rate_per_second: float = 0.0
    """Due requests of the load per second; 0 if not known."""
    requests: int = 0
    """Complete, correct requests of the load in all phases."""
    failed: dict[str, int] = {}
    """Failed requests of the load by kind, in all phases."""
    limited: dict[str, int] = {}
    """Requests of the load that a limit per client refused, by class."""
    unanswered: int = 0
    """Unfinished requests at the end of the load."""
    retried: int = 0
    """Requests sent again, since their kept connection was closed while they were sent."""
    phases: list[Phase] = []
    held: list[HeldConnections] = []
    log_lines: dict[str, int] = {}
    """New lines in the error logs by level."""
    log_examples: list[str] = []
    """Lines of level ``warn`` or worse, each text once."""
    flags: list[str] = []
    """Reasons to doubt the load's figures."""
    foreign_cpu_ratio: float | None = None
    """Share of the host's CPU time that neither the load nor nginx used; null if not known."""


class Rehearsal(Document, frozen=True, kw_only=True, tag="nginx-tune/rehearsal/1"):
    """A change, rehearsed in each requested manner, there and back."""

    conf_path: str
    """Absolute path of the main file."""
    new_path: str = ""
    """Path of the new configuration; empty for a plan."""
    nginx_binary: str = ""
    nginx_version: str = ""
    nginx_choice: str = ""
    new_nginx_binary: str = ""
    """Path of the new program; empty if the program stays the same."""
    new_nginx_version: str = ""
    lab: str = "none"
    """The emulated host; ``none`` for the host at hand."""
    files: list[str] = []
    """The changed files."""
    rate_per_second: float = 0.0
    """Rate of the load over all classes."""
    asked: dict[str, str] = {}
    """The requested path of each class of the load."""
    warnings: list[ReloadWarning] = []
    """Predictions before the change."""
    notes: list[str] = []
    """Deviations from the configuration, and connections that could not be held."""
    refused_here: list[str] = []
    """Reasons why nginx would refuse the change on this host but not in the sandbox: missing or
    occupied places, addresses and ports."""
    worse_answers: list[str] = []
    """Requests that the old configuration answers and the new one, started alone, does not."""
    other_answers: list[str] = []
    """Requests that the new configuration answers with another body or status."""
    limited: list[str] = []
    """Limits per client that the load reached, since it comes from a single address."""
    dropped: list[str] = []
    """Server names and locations that the new configuration lacks."""
    reloads: list[RehearsedReload] = msgspec.field(default_factory=list, name="turnovers")
    gates: list[GateResult] = []
    interrupted: bool = False
