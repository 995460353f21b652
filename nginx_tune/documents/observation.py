"""``observation``: a running nginx under its own traffic, and the causes found in it."""

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
"""Ids for the lack of a cause."""


class CauseEvidence(Part, frozen=True, kw_only=True):
    """A figure that supports a cause."""

    metric: str
    """Name of the metric in gates, such as ``server.loop_turn_seconds.p99``."""
    value: float
    unit: str = ""


class Cause(Part, frozen=True, kw_only=True):
    """A cause found in the window, with its evidence."""

    id: CauseId
    summary: str
    confidence: Confidence
    evidence: list[CauseEvidence] = []
    not_known: list[str] = []
    """Unknown facts that would make the cause more certain."""
    next_command: str = ""


FEWEST_REQUESTS = 100
"""Minimum number of requests (or loop turns, if requests are not counted) that counts as traffic.
The causes examine the slowest tenth, which is then ten requests."""
FEWEST_CPU_SECONDS = 0.005
"""CPU time of a hundred small responses, for windows without counts of requests or loop turns."""


class OtherNginx(Part, frozen=True, kw_only=True):
    """A running nginx that was not watched."""

    pid: int
    binary: str | None = None
    reason: str = ""
    """The reason why it was not chosen."""
    cpu_seconds: float | None = None
    """CPU time of its master and workers in the window."""


class Observation(Document, frozen=True, kw_only=True, tag="nginx-tune/observation/1"):
    """A running nginx under its own traffic."""

    duration_seconds: float = 0.0
    pid: int | None = None
    """Process id of the master."""
    nginx_version: str | None = None
    nginx_choice: str = ""
    """The reason for the choice of this nginx, in a sentence."""
    others: list[OtherNginx] = []
    """Other candidates, if the user named none."""
    worker_processes: int = 0
    objective_seconds: float | None = None
    """Time limit of a request; null if not given."""
    server: ServerMeasurement = ServerMeasurement()
    causes: list[Cause] = []
    """The causes, most certain first."""
    flags: list[str] = []
    """Reasons not to draw conclusions from the window, such as replaced workers."""
    unknown: list[Unknown] = []


_BUSIER = 10.0


def busier_other(observation: Observation) -> OtherNginx | None:
    """The busiest of the others, if the watched nginx was almost idle in comparison."""
    known = [other for other in observation.others if other.cpu_seconds is not None]
    busiest = max(known, key=lambda other: other.cpu_seconds or 0.0, default=None)
    if busiest is None or (used := busiest.cpu_seconds or 0.0) < FEWEST_CPU_SECONDS:
        return None
    own = observation.server.cpu_seconds
    return busiest if own is not None and used >= _BUSIER * own else None
