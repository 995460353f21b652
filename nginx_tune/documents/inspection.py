"""A host inspected: its recorded answers, the reads of its disks, its means to measure.

``capture`` holds all that a Host was asked and answered, so that it can be replayed anywhere.
``diskplan`` is everything the disk probe needs, and ``diskrun`` all that it saw. ``doctor`` tells
which measurements the host allows.
"""

from __future__ import annotations

from typing import Any, Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.facts_storage import DiskProbe
from nginx_tune.documents.measured_class import Latency


class Answer(Part, frozen=True, kw_only=True):
    """One answer of the host; exactly one of ``value`` and ``error`` is set."""

    value: Any = None
    """Text, ``{"base64": …}`` for bytes that are no UTF-8, a list of names, a number, or the
    parts of a process result, of links or of a dataset: by the kind of question."""
    error: str | None = None


class Request(Part, frozen=True, kw_only=True):
    """What the recorded inspection was asked for; a replay asks the same."""

    paths: list[str] = []
    datasets: list[str] = []
    nginx_binary: str | None = None
    pid: int | None = None
    link_speeds: dict[str, int] = {}
    """Bits per second by link."""
    watch_seconds: float = 0.0
    """How long the disks were watched for how busy they are; 0: not at all."""
    sample_ratio: float = 1.0
    """Share of a dataset's files whose size was asked."""


class Capture(Document, frozen=True, kw_only=True, tag="nginx-tune/capture/1"):
    """A recorded host.

    Secrets (serial numbers, MAC addresses, command-line values) are redacted when it is written.
    """

    tool_version: str = ""
    request: Request = Request()
    disk_probes: list[DiskProbe] = []
    """What probing the disks gave, when that was asked for."""
    answers: dict[str, Answer] = {}
    """By question, e.g. ``read /proc/meminfo``, ``list /sys/block``, ``run nginx -V``."""


ReadKind = Literal["random", "sequential"]


class DiskStep(Part, frozen=True, kw_only=True):
    """Reads of one kind at one depth."""

    kind: ReadKind = "random"
    """``random`` reads anywhere in the files, ``sequential`` on from the last one."""
    read_bytes: int
    """A multiple of 4096."""
    depth: int = 1
    """Reads under way at once; 1 for a sequential step."""
    warmup_seconds: float = 0.0
    """Reads that start before this are not counted."""
    seconds: float
    """Measured time after the warm-up."""


class DiskCaps(Part, frozen=True, kw_only=True):
    """Bounds the run cannot pass."""

    seconds: float = 60.0
    bytes: int = 64 << 30


class DiskPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/diskplan/1"):
    """One disk measurement."""

    paths: list[str]
    """Regular files or block devices, without symbolic links; read-only, past the page cache."""
    steps: list[DiskStep]
    seed: int = 1
    open_seconds: float = 2.0
    """Time for opening the files; those that are open by then are read."""
    most_wait_seconds: float = 0.7
    """A deeper step is left out where each read would wait longer than this."""
    caps: DiskCaps = DiskCaps()


class DiskStepRun(Part, frozen=True, kw_only=True):
    """What one step saw."""

    kind: ReadKind
    read_bytes: int
    depth: int
    skipped: str = ""
    """Why it was left out."""
    seconds: float = 0.0
    reads: int = 0
    """Reads that ended in the measured time."""
    reads_per_second: float = 0.0
    bytes_per_second: float = 0.0
    interval_reads_per_second: list[float] = []
    """The rate in each part of the measured time."""
    latency_seconds: Latency = Latency()
    """Of the reads that started in the measured time."""
    outliers: int = 0
    """Reads that took more than ten times the median."""
    errors: int = 0
    unfinished: int = 0
    """Reads that had not come back when the probe ended; they stand at their age."""
    cpu_ratio: float = 0.0
    """CPU time of the probe over the time of the step and the CPUs it may use."""


class DiskRun(Document, frozen=True, kw_only=True, tag="nginx-tune/diskrun/1"):
    """What one run of the disk probe saw."""

    seed: int = 1
    files: int = 0
    file_bytes: int = 0
    """Size of all files."""
    bytes: int = 0
    """What all reads gave, the warm-up's too."""
    device_bytes: int | None = None
    """What the kernel fetched from block devices for it; less than ``bytes`` when files have
    holes or something else than the disk answered."""
    steps: list[DiskStepRun] = []
    flags: list[str] = []
    """Why the result is degraded: a stable word, a colon and a sentence."""


CheckStatus = Literal["ok", "missing", "unknown"]


class Check(Part, frozen=True, kw_only=True):
    """One thing that some measurement needs."""

    name: str
    status: CheckStatus
    """``unknown``: it cannot be told from here."""
    detail: str
    """What was found, or why it is missing."""
    needed_for: str
    fix: str = ""
    """The command that puts it right; empty when it is there or nothing here would."""


class Doctor(Document, frozen=True, kw_only=True, tag="nginx-tune/doctor/1"):
    """What is there to measure with, and what is not."""

    checks: list[Check] = []
