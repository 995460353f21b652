"""``decisions``: verdicts with their evidence, and the settings they yield."""

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, MissingInclude, Part, Provenance, Unknown

DecisionId = Literal[
    "thread-pools",
    "thread-pool-size",
    "per-disk-pools",
    "aio-write",
    "cache-layout",
    "cache-key",
    "cache-misses",
    "cache-updates",
    "slice",
    "sendfile",
    "sendfile-max-chunk",
    "output-buffers",
    "directio",
    "open-file-cache",
    "reuseport",
    "accept",
    "backlog",
    "workers",
    "connections",
    "file-limits",
    "upstream-keepalive",
    "access-log",
    "read-ahead",
    "ktls",
    "http2",
    "http3",
    "streaming",
    "gzip",
]

DecisionVerdict = Literal[
    "enable", "disable", "raise", "lower", "set", "keep", "not_applicable", "not_enough_evidence"
]

Confidence = Literal["high", "medium", "low"]

DirectiveContext = Literal["main", "events", "http", "server", "location", "upstream"]


class Evidence(Part, frozen=True, kw_only=True):
    """A fact behind a decision or a finding."""

    fact: str
    value: float | int | str | bool | None
    unit: str = ""
    provenance: Provenance = "measured"


class Place(Part, frozen=True, kw_only=True):
    """A place in a configuration for a setting."""

    file: str
    line: int
    text: str
    """The line to change, or the block for the new line; without secrets."""
    change: bool
    """True if ``text`` is a line to change; false if it is the block for the setting."""


class Setting(Part, frozen=True, kw_only=True):
    """One directive with its reason. Decisions reach configurations only as settings."""

    context: DirectiveContext
    directive: str
    args: list[str]
    reason: str = ""
    """The reason in one line, for a comment."""
    evidence: list[Evidence] = []
    decision: str = ""
    """The decision's id."""
    block: str = ""
    """The block in the context, such as a location's name; empty for every block."""
    lines: list[list[str]] = []
    """The lines inside, for a directive with a block (``split_clients``)."""
    same: list[str] = []
    """Other first arguments with the same effect on this host, which need no change."""
    places: list[Place] = []
    """The lines to change, or the blocks for a new line; only in a comparison with a
    configuration."""
    needs: list[str] = []
    """In a comparison with a configuration: other lines that the setting needs (``thread_pool``,
    ``log_format``, ``keys_zone``), each with its place if it exists, or else to be added."""


class HostSetting(Part, frozen=True, kw_only=True):
    """A setting of the host; changes of nginx's files never include it."""

    kind: Literal["sysctl", "unit", "udev"]
    """A kernel setting (sysctl.d), a line of the systemd unit that starts nginx, or the read-ahead
    of a block device in KiB (udev)."""
    name: str
    """The name as the kernel or systemd spells it; for udev the kernel's name of the device."""
    value: str
    before: str = ""
    """The current value; empty where it is not known."""
    reason: str
    decision: str
    """The decision's id."""


class Predicted(Part, frozen=True, kw_only=True):
    """A predicted number with its range."""

    metric: str
    low: float
    expected: float
    high: float
    unit: str = ""


class BreakEven(Part, frozen=True, kw_only=True):
    """The value of one fact at which the verdict flips, all else being equal."""

    fact: str
    value: float
    unit: str = ""
    now: float | int
    """The fact's value in this decision."""
    above: DecisionVerdict
    """The verdict above that value."""
    below: DecisionVerdict | None = None
    """The verdict below that value; null for the opposite of ``above`` (enable, disable)."""


class Decision(Part, frozen=True, kw_only=True):
    """One decision with its evidence."""

    id: DecisionId
    verdict: DecisionVerdict
    summary: str
    """The decision and its reason in one sentence."""
    settings: list[Setting] = []
    proposed: list[Setting] = []
    """Settings that would be written if the assumed inputs were known; only written as comments.
    ``next_command`` measures the inputs."""
    host_settings: list[HostSetting] = []
    evidence: list[Evidence] = []
    predicted: list[Predicted] = []
    confidence: Confidence = "low"
    flips_when: list[str] = []
    break_evens: list[BreakEven] = []
    """The computed entries of ``flips_when``, as numbers."""
    risks: list[str] = []
    blocked_by: str = msgspec.field(default="", name="withheld")
    """The reason why the settings cannot be written; only in a comparison with a configuration."""
    next_command: str = ""


Resource = Literal["link", "disks", "cpu", "memory", "clients", "origin"]


class BindingResource(Part, frozen=True, kw_only=True):
    """Ceiling of one resource, in responses of the mean sent size."""

    resource: Resource
    requests_per_second: float
    bytes_per_second: float
    provenance: Provenance
    """Provenance of the figure that matters most for the ceiling."""


class Decisions(Document, frozen=True, kw_only=True, tag="nginx-tune/decisions/1"):
    """All decisions for one host and workload."""

    kind: Literal["static", "media", "cache", "proxy"] = "static"
    kind_provenance: Provenance = "assumed"
    kind_reason: str = ""
    """The line that shows the kind, and the other kinds that the configuration shows."""
    nginx_choice: str = ""
    """The chosen nginx of the host, with the reason, from the facts."""
    headline: str = ""
    """Demand that the host cannot meet with any settings; empty if it can meet all demand."""
    binding: str = ""
    """The first limit with its figure, and the unknowns."""
    bindings: list[BindingResource] = []
    """Every resource with a known ceiling, the lowest first."""
    decisions: list[Decision] = []
    files_missing: list[MissingInclude] = []
    """Missing files of the current configuration, which were not read."""
    unknown: list[Unknown] = []
