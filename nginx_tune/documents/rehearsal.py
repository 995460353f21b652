"""``rehearsal``: the effects of a change of a running nginx, tried in the sandbox."""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.plan import ReloadWarning
from nginx_tune.documents.verdict import GateResult

Manner = Literal["reload", "upgrade", "restart"]
"""SIGHUP; SIGUSR2, SIGWINCH and SIGQUIT; a stop and a start, as packages do."""
HeldKind = Literal["idle", "silent", "keepalive", "websocket", "download", "upload"]
"""``silent``: a connection with its first request after the change, as browsers' preconnects."""
PhaseName = Literal["before", "during", "after"]
ReloadOutcome = Literal["taken", "refused", "down"]
"""``refused``: the old worker generation continues; ``down``: no worker serves."""


class FirstAnswer(Part, frozen=True, kw_only=True):
    """A listener after the change."""

    listener: str
    seconds: float | None = None
    """Time until a new worker answered; null if none was seen to."""
    reason: str = ""
    """The reason for no answer."""
    is_seen: bool = True
    """True if the kernel shows who accepted, which it does not for unix sockets."""


class Phase(Part, frozen=True, kw_only=True):
    """The load's requests in a phase, in whole seconds, by completion."""

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
    """Connections in order at the start of the change."""
    lost: int = 0
    """Connections that the server ended since, with a transfer in progress."""
    closed: int = 0
    """Connections that the server closed without one, such as idle ones at a reload."""
    finished: int = 0
    """Connections whose transfer was completed."""
    kept: int = 0
    """Connections still in order at the end."""
    reconnects: int = 0
    """Reconnections for further requests."""
    retried: int = 0
    """Requests sent again on a new connection, after theirs was closed as they were sent."""
    not_opened: int = 0
    lost_before: int = 0
    """Connections lost before the change."""
    reasons: dict[str, int] = {}
    """The reasons for lost and unopened ones."""


class RehearsedReload(Part, frozen=True, kw_only=True):
    """A change of the running nginx."""

    manner: Manner
    is_back: bool = False
    """True for the change back to the old configuration and program."""
    outcome: ReloadOutcome
    reason: str = ""
    """nginx's own line, or the observation."""
    faults: list[str] = []
    """Emergencies and alerts of a change that took effect."""
    faults_before: list[str] = []
    """Ones that workers had logged before the change too, which are not its."""
    first_answers: list[FirstAnswer] = []
    workers_before: int = 0
    workers_after: int = 0
    drain_seconds: float | None = None
    """Time until the last old worker ended; null if some remained at the end."""
    watched_seconds: float = 0.0
    """Time of the wait for them."""
    workers_left: int = 0
    """Old workers that remained."""
    memory_before_bytes: int | None = None
    """Memory of all its processes, with shared pages counted once (PSS)."""
    memory_peak_bytes: int | None = None
    """Peak memory of both worker generations."""
    counters: dict[str, int] = {}
    """The kernel's counters of the network namespace in that time: ``ListenOverflows``,
    ``ListenDrops``, ``TCPMigrateReqSuccess``, ``OutRsts`` …"""
    requests: int = 0
    """Complete, correct requests of the load in all phases."""
    failed: dict[str, int] = {}
    """Failed requests of the load by kind, in all phases."""
    limited: dict[str, int] = {}
    """Requests of the load by class that a limit for each client refused."""
    unanswered: int = 0
    """Unfinished requests at the end of the load."""
    retried: int = 0
    """Requests sent again, since a kept connection was closed as they were sent."""
    phases: list[Phase] = []
    held: list[HeldConnections] = []
    log_lines: dict[str, int] = {}
    """New lines in the error logs by level."""
    log_examples: list[str] = []
    """Lines from ``warn`` on, each text once."""
    flags: list[str] = []
    """Flaws of the load's figures."""
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
    """Empty for the same program."""
    new_nginx_version: str = ""
    lab: str = "none"
    """The emulated host; ``none`` for this one."""
    files: list[str] = []
    """The changed files."""
    rate_per_second: float = 0.0
    """Rate of the load over all classes."""
    asked: dict[str, str] = {}
    """The load's requests by class."""
    warnings: list[ReloadWarning] = []
    """Predictions before the change."""
    notes: list[str] = []
    """Deviations from the configuration, and connections that could not be held."""
    refused_here: list[str] = []
    """Reasons why nginx would refuse it on this host, unlike in the sandbox: missing or occupied
    places, addresses and ports."""
    worse_answers: list[str] = []
    """Things that the old configuration serves and the new one, started alone, does not."""
    other_answers: list[str] = []
    """Answers of the new one with another body or status."""
    limited: list[str] = []
    """Limits for each client that the load from a single address reached."""
    dropped: list[str] = []
    """Server names and locations that the new one lacks."""
    reloads: list[RehearsedReload] = msgspec.field(default_factory=list, name="turnovers")
    gates: list[GateResult] = []
    interrupted: bool = False
