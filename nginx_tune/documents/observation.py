"""``observation``: a running nginx under its own traffic, and what that shows."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part, Unknown
from nginx_tune.documents.decisions import Confidence
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
    "shared-zone-full",
    "local-ports-exhausted",
    "no-space-left",
    "memory-exhausted",
    "worker-crashed",
    "spilled-to-disk",
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
    confidence: Confidence
    evidence: list[CauseEvidence] = []
    not_known: list[str] = []
    """What would have to be known to be surer."""
    next_command: str = ""


FEWEST_REQUESTS = 100
"""In a window, or turns of loops where requests are not counted: with fewer it shows no traffic. Of
a hundred the ten slowest are seen."""
FEWEST_CPU_SECONDS = 0.005
"""What a hundred small answers cost, where neither is counted."""


class OtherNginx(Part, frozen=True, kw_only=True):
    """Another nginx that ran, and was not watched."""

    pid: int
    binary: str | None = None
    reason: str = ""
    """Why it was not this one."""
    cpu_seconds: float | None = None
    """Of its master and workers in the window."""


class Observation(Document, frozen=True, kw_only=True, tag="nginx-tune/observation/1"):
    """A running nginx under its own traffic."""

    duration_seconds: float = 0.0
    pid: int | None = None
    """Of the master."""
    nginx_version: str | None = None
    nginx_choice: str = ""
    """Why it was this one, in a sentence."""
    others: list[OtherNginx] = []
    """Those that could have been meant, where nobody said which."""
    worker_processes: int = 0
    objective_seconds: float | None = None
    """What a request may take; null when it was not said."""
    server: ServerMeasurement = ServerMeasurement()
    causes: list[Cause] = []
    """The strongest first."""
    flags: list[str] = []
    """What makes the window unfit for conclusions: workers were replaced in it, say."""
    unknown: list[Unknown] = []


_BUSIER = 10.0


def busier_other(observation: Observation) -> OtherNginx | None:
    """The busiest of the others, where the one that was watched did next to nothing beside it."""
    known = [one for one in observation.others if one.cpu_seconds is not None]
    busiest = max(known, key=lambda one: one.cpu_seconds or 0.0, default=None)
    if busiest is None or (used := busiest.cpu_seconds or 0.0) < FEWEST_CPU_SECONDS:
        return None
    own = observation.server.cpu_seconds
    return busiest if own is not None and used >= _BUSIER * own else None
