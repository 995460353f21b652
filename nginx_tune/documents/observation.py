"""``observation``: a running nginx under its own traffic, and what that shows."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part, Unknown
from nginx_tune.documents.measured_server import ServerMeasurement

CauseId = Literal[
    "disk-read-errors",
    "loop-blocked-on-disk",
    "loop-blocked-on-writes",
    "loop-blocked-on-names",
    "loop-blocked-on-swap",
    "loop-asleep-in-call",
    "loop-held-by-cpu",
    "worker-stopped",
    "pool-queue-overflow",
    "pool-queue-wait",
    "connections-exhausted",
    "descriptors-exhausted",
    "accept-queue-overflow",
    "cpu-saturated",
    "cpu-contention",
    "cpu-throttled",
    "cpu-steal",
    "refused-by-limit",
    "failing-upstream",
    "slow-upstream",
    "slow-resolver",
    "slow-disk-in-pools",
    "uneven-workers",
    "cause-not-known",
    "nothing-found",
    "not-enough-evidence",
]

UNNAMED: frozenset[CauseId] = frozenset({"cause-not-known", "nothing-found", "not-enough-evidence"})
"""What is said where no cause is named."""


class CauseEvidence(Part, frozen=True, kw_only=True):
    """One figure that a cause stands on."""

    metric: str
    """As gates name it, such as ``server.loop_turn_seconds.p99``."""
    value: float
    unit: str = ""


class Cause(Part, frozen=True, kw_only=True):
    """Something that the window shows, and what it stands on."""

    id: CauseId
    summary: str
    confidence: Literal["high", "medium", "low"]
    evidence: list[CauseEvidence] = []
    not_known: list[str] = []
    """What would have to be known to be surer."""
    next_command: str = ""


FEWEST_REQUESTS = 100
"""In a window, or turns of loops where requests are not counted: with fewer it shows no traffic. Of
a hundred the ten slowest are seen."""
FEWEST_CPU_SECONDS = 0.005
"""What a hundred small answers cost, where neither is counted."""


class Observation(Document, frozen=True, kw_only=True, tag="nginx-tune/observation/1"):
    """A running nginx under its own traffic."""

    duration_seconds: float = 0.0
    pid: int | None = None
    """Of the master."""
    nginx_version: str | None = None
    nginx_choice: str = ""
    """Why it was this one, in a sentence."""
    worker_processes: int = 0
    objective_seconds: float | None = None
    """What a request may take; null when it was not said."""
    server: ServerMeasurement = ServerMeasurement()
    causes: list[Cause] = []
    """The strongest first."""
    flags: list[str] = []
    """What makes the window unfit for conclusions: workers were replaced in it, say."""
    unknown: list[Unknown] = []
