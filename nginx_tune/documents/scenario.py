"""``scenario`` (TOML in), the ``lab`` it runs in, and ``scenario_run`` (what came out)."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Verdict
from nginx_tune.documents.workload import Kind


class LabDisk(Part, frozen=True, kw_only=True):
    """One emulated disk: an ext4 image on a loop device under an I/O limit (a plateau, no knee)."""

    name: str
    class_name: Literal["hdd", "ssd", "nvme", "memory"] = "hdd"
    mount: str
    """Where nginx sees it."""
    bytes_per_second: int | None = None
    reads_per_second: int | None = None


class LabData(Part, frozen=True, kw_only=True):
    """Files to fill a disk with; the bytes are random."""

    disk: str
    files: int
    file_bytes: int


class Lab(Document, frozen=True, kw_only=True, tag="nginx-tune/lab/1"):
    """The emulated host."""

    name: str = "none"
    memory_bytes: int | None = None
    """cgroup limit around nginx; null for none."""
    disks: list[LabDisk] = []
    data: list[LabData] = []
    separate_cpus: bool = True
    """nginx and the load probe on different CPUs where there are two."""
    worker_processes: int = 1


class ArmSpec(Part, frozen=True, kw_only=True):
    """How one arm's nginx.conf comes about."""

    decisions: Literal["none", "recommended"] = "none"
    """``none``: the plain static configuration of the source; ``recommended``: what we decide."""
    settings: list[Setting] = []
    """Forced on top, replacing the same directive in the same context."""


class ScenarioClass(Part, frozen=True, kw_only=True):
    """A request class of a scenario; ``data`` names where its paths come from."""

    name: str
    source: Literal["random", "hot", "memory"]
    """``random``: all files, uniformly; ``hot``: one file, primed; ``memory``: no file."""
    arrivals: Arrivals
    connections: int
    timeout_seconds: float = 60.0


class Claim(Part, frozen=True, kw_only=True):
    """Something the experiment must show."""

    name: str
    source_row: str
    """Row of the source, e.g. ``A7``."""
    expression: str
    """A gate expression, e.g. ``ratio(hot.requests_per_second) >= 10``."""
    source_figure: str = ""


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
    classes: list[ScenarioClass]
    primary_metric: str
    pairs: int = 6
    warmup_seconds: float = 2.0
    duration_seconds: float = 8.0
    claims: list[Claim] = []
    seed: int = 1


class ClaimResult(Part, frozen=True, kw_only=True):
    """A claim and what was measured."""

    name: str
    source_row: str
    expected: str
    source_figure: str
    measured: float | None
    held: bool
    reason: str = ""


class ArmText(Part, frozen=True, kw_only=True):
    """An arm's nginx.conf as it ran."""

    arm: str
    nginx_conf: str


class ScenarioRun(Document, frozen=True, kw_only=True, tag="nginx-tune/scenario_run/1"):
    """What a scenario showed."""

    name: str
    facts: Facts = Facts()
    """Of the emulated host, as the decisions had them."""
    prediction: Decisions
    """Made before the first block."""
    claims: list[ClaimResult] = []
    verdict: Verdict
    arms: list[ArmText] = []
    measurements: list[Measurement] = []
