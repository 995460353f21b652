"""``rehearsal``: what a change of a running nginx cost when it was tried in the sandbox."""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.plan import ReloadWarning
from nginx_tune.documents.verdict import GateResult

Manner = Literal["reload", "upgrade", "restart"]
"""SIGHUP; SIGUSR2, SIGWINCH and SIGQUIT; stopped and started again as packages do."""
HeldKind = Literal["idle", "silent", "keepalive", "websocket", "download", "upload"]
"""``silent``: connected, and asks for the first time when all is over, as browsers' preconnects."""
PhaseName = Literal["before", "during", "after"]
ReloadOutcome = Literal["taken", "refused", "down"]
"""``refused``: the old generation serves on; ``down``: nobody serves."""


class FirstAnswer(Part, frozen=True, kw_only=True):
    """One listener after the change."""

    listener: str
    seconds: float | None = None
    """Until a worker of the new generation was seen to answer there; null when none was."""
    reason: str = ""
    """Why there was no answer."""
    is_seen: bool = True
    """Whether the kernel told who accepted; of a unix socket it does not."""


class Phase(Part, frozen=True, kw_only=True):
    """The requests of the load in one part of the time, in whole seconds, by completion."""

    name: PhaseName
    seconds: int = 0
    requests: int = 0
    failed: int = 0
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    """Null with fewer than ten samples beyond it."""
    max_seconds: float | None = None


class HeldConnections(Part, frozen=True, kw_only=True):
    """The long connections of one kind."""

    kind: HeldKind
    held: int = 0
    """Open and in order when the change began."""
    lost: int = 0
    """Ended by the server, from then on, with something under way."""
    closed: int = 0
    """Closed by the server with nothing under way: idle connections at a reload."""
    finished: int = 0
    """What was under way came to its end in good order."""
    kept: int = 0
    """Still there, and in order, at the end."""
    reconnects: int = 0
    """Times that one was opened anew to ask on."""
    retried: int = 0
    """Requests that were sent again on a new one: theirs was closed as they were sent."""
    not_opened: int = 0
    lost_before: int = 0
    """Before the change."""
    reasons: dict[str, int] = {}
    """Why they were lost or not opened."""


class RehearsedReload(Part, frozen=True, kw_only=True):
    """One change of the running nginx."""

    manner: Manner
    is_back: bool = False
    """From the new configuration, and program, to the old."""
    outcome: ReloadOutcome
    reason: str = ""
    """nginx's own line, or what was seen."""
    faults: list[str] = []
    """Emergencies and alerts beside, of a change that was taken."""
    faults_before: list[str] = []
    """Those that workers had logged before the change too: they are not its."""
    first_answers: list[FirstAnswer] = []
    workers_before: int = 0
    workers_after: int = 0
    drain_seconds: float | None = None
    """Until the last old worker was gone; null when some were there when the watch ended."""
    watched_seconds: float = 0.0
    """How long they were waited for."""
    workers_left: int = 0
    """Old workers that were still there then."""
    memory_before_bytes: int | None = None
    """Of all its processes: what is shared is counted once (PSS)."""
    memory_peak_bytes: int | None = None
    """Of both generations together."""
    counters: dict[str, int] = {}
    """What the kernel counted in the network namespace meanwhile: ``ListenOverflows``,
    ``ListenDrops``, ``TCPMigrateReqSuccess``, ``OutRsts`` …"""
    requests: int = 0
    """Of the load, complete and correct, over all phases."""
    failed: dict[str, int] = {}
    """Failed requests of the load by kind, over all phases."""
    limited: dict[str, int] = {}
    """By class, requests of the load that a limit for each client answered with its status."""
    unanswered: int = 0
    """Requests of the load that were under way when it ended."""
    retried: int = 0
    """Requests that were sent again: a kept connection was closed as they were sent."""
    phases: list[Phase] = []
    held: list[HeldConnections] = []
    log_lines: dict[str, int] = {}
    """New lines in the error logs by level."""
    log_examples: list[str] = []
    """Of those from ``warn`` on, each text once."""
    flags: list[str] = []
    """Faults of the load's figures."""
    foreign_cpu_ratio: float | None = None
    """Share of the host's CPU time that neither the load nor nginx used; null if not known."""


class Rehearsal(Document, frozen=True, kw_only=True, tag="nginx-tune/rehearsal/1"):
    """A change, rehearsed in each manner that was asked for, there and back."""

    conf_path: str
    """The main file, absolute."""
    new_path: str = ""
    """Where the new configuration was read; empty for a plan's."""
    nginx_binary: str = ""
    nginx_version: str = ""
    nginx_choice: str = ""
    new_nginx_binary: str = ""
    """Empty for the same program."""
    new_nginx_version: str = ""
    lab: str = "none"
    """The host that was emulated; ``none`` for this one as it is."""
    files: list[str] = []
    """Those that change."""
    rate_per_second: float = 0.0
    """Of the load's requests, all classes together."""
    asked: dict[str, str] = {}
    """By class, what the load asks for."""
    warnings: list[ReloadWarning] = []
    """What was predicted before."""
    notes: list[str] = []
    """What is not as configured, and which connections could not be held."""
    refused_here: list[str] = []
    """What nginx would refuse on this host, though the sandbox took it: places, addresses, ports
    that are missing here or that others hold."""
    worse_answers: list[str] = []
    """What the old configuration serves and the new one, started alone, does not."""
    other_answers: list[str] = []
    """What the new one answers with another body or another status."""
    limited: list[str] = []
    """Limits for each client that the load, which comes from one address, met."""
    dropped: list[str] = []
    """Server names and locations of the old one that the new one has not."""
    reloads: list[RehearsedReload] = msgspec.field(default_factory=list, name="turnovers")
    gates: list[GateResult] = []
    interrupted: bool = False
