"""A recorded host, its disk probe and ``doctor``."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.facts_storage import DiskProbe
from nginx_tune.documents.measured_class import Latency


class Answer(Part, frozen=True, kw_only=True):
    """The host's answer to one question, with either ``value`` or ``error`` set."""

    value: Any = None
    """The value, whose type depends on the question: text (``{"base64": …}`` if not UTF-8), a list
    of names, a number, or the parts of a process result, of links or of a dataset."""
    error: str | None = None
    refused: str | UnsetType = UNSET
    """The reason why root must not run a program that is there; absent for other answers."""


class Request(Part, frozen=True, kw_only=True):
    """The options of the recorded inspection, which a replay uses again."""

    paths: list[str] = []
    datasets: list[str] = []
    nginx_binary: str | None = None
    pid: int | None = None
    link_speeds: dict[str, int] = {}
    """Declared speed of links in bits per second, by name."""
    watch_seconds: float = 0.0
    """Time for which the disks' utilisation is observed; 0 to skip this."""
    sample_ratio: float = 1.0
    """Share of a dataset's files whose size was read."""


class Capture(Document, frozen=True, kw_only=True, tag="nginx-tune/capture/1"):
    """A recorded host.

    Secrets (serial numbers, MAC addresses, command-line values) are redacted when it is written.
    """

    tool_version: str = ""
    request: Request = Request()
    disk_probes: list[DiskProbe] = []
    """Results of the disk probe, if requested."""
    answers: dict[str, Answer] = {}
    """Answers by question, e.g. ``read /proc/meminfo``, ``list /sys/block``, ``run nginx -V``."""


ReadKind = Literal["random", "sequential"]


class DiskStep(Part, frozen=True, kw_only=True):
    """Reads of one kind at one depth."""

    kind: ReadKind = "random"
    """``random``: reads at random offsets of the files; ``sequential``: each read begins where the
    last one ended."""
    read_bytes: int
    """Size of one read, a multiple of 4096."""
    depth: int = 1
    """Concurrent reads; 1 for a sequential step."""
    warmup_seconds: float = 0.0
    """Reads that start before this are not counted."""
    seconds: float
    """Measured time after the warm-up."""


class DiskCaps(Part, frozen=True, kw_only=True):
    """Limits of the run."""

    seconds: float = 60.0
    bytes: int = 64 << 30


class DiskPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/diskplan/1"):
    """One disk measurement."""

    paths: list[str]
    """Regular files or block devices, without symbolic links; read with O_DIRECT."""
    steps: list[DiskStep]
    seed: int = 1
    open_seconds: float = 2.0
    """Time limit for opening the files; those opened within it are read."""
    most_wait_seconds: float = 0.7
    """A deeper step is skipped if each read would wait longer than this."""
    caps: DiskCaps = DiskCaps()


class DiskStepRun(Part, frozen=True, kw_only=True):
    """The result of one step."""

    kind: ReadKind
    read_bytes: int
    depth: int
    skipped: str = ""
    """The reason for skipping it."""
    seconds: float = 0.0
    reads: int = 0
    """Reads completed in the measured time."""
    reads_per_second: float = 0.0
    bytes_per_second: float = 0.0
    interval_reads_per_second: list[float] = []
    """The rate in each part of the measured time."""
    latency_seconds: Latency = Latency()
    """Latency of the reads started in the measured time."""
    outliers: int = 0
    """Reads that took more than ten times the median."""
    errors: int = 0
    unfinished: int = 0
    """Reads that were incomplete at the end of the probe; they count with their age."""
    cpu_ratio: float = 0.0
    """CPU time of the probe in the step, as a share of the time that its CPUs offered."""


class DiskRun(Document, frozen=True, kw_only=True, tag="nginx-tune/diskrun/1"):
    """The result of one run of the disk probe."""

    seed: int = 1
    files: int = 0
    file_bytes: int = 0
    """Total size of the files."""
    bytes: int = 0
    """Bytes read, including the warm-up."""
    device_bytes: int | None = None
    """Bytes that the kernel read from block devices for the probe; less than ``bytes`` if files
    have holes or a cache answered."""
    steps: list[DiskStepRun] = []
    flags: list[str] = []
    """Reasons for a degraded result, each a fixed keyword, a colon and a sentence."""


CheckStatus = Literal["ok", "missing", "unknown"]


class Check(Part, frozen=True, kw_only=True):
    """One requirement of a measurement."""

    name: str
    status: CheckStatus
    """``unknown`` if the requirement cannot be checked from here."""
    detail: str
    """The finding, or the reason why the check was impossible."""
    needed_for: str
    fix: str = ""
    """The command that fixes it; empty if the requirement is met, or if no command can."""


class Doctor(Document, frozen=True, kw_only=True, tag="nginx-tune/doctor/1"):
    """The requirements of measurements on this host, met or not."""

    checks: list[Check] = []
