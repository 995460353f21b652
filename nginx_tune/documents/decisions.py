"""``decisions``: verdicts with their evidence, and the settings they yield."""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part, Provenance, Unknown

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
    "enable",
    "disable",
    "raise",
    "lower",
    "set",
    "keep",
    "not_applicable",
    "not_enough_evidence",
]

Confidence = Literal["high", "medium", "low"]

DirectiveContext = Literal["main", "events", "http", "server", "location", "upstream"]


class Evidence(Part, frozen=True, kw_only=True):
    """One fact that a decision or a finding stands on."""

    fact: str
    value: float | int | str | bool | None
    unit: str = ""
    provenance: Provenance = "measured"


class Place(Part, frozen=True, kw_only=True):
    """Where in a configuration a setting goes."""

    file: str
    line: int
    text: str
    """The line to change, or the block to put it into; without secrets."""
    change: bool
    """Whether that line is to be changed; else it is the block that the setting goes into."""


class Setting(Part, frozen=True, kw_only=True):
    """One directive: the only currency between deciding and writing."""

    context: DirectiveContext
    directive: str
    args: list[str]
    reason: str = ""
    """One line, printed beside the directive."""
    evidence: list[Evidence] = []
    decision: str = ""
    """The decision's id."""
    block: str = ""
    """Which block of the context, where there are several (a location's name); empty: every one."""
    lines: list[list[str]] = []
    """The lines inside, for a directive that is a block of its own (``split_clients``)."""
    same: list[str] = []
    """Other first arguments that come to the same on this host: nothing is to be changed there."""
    places: list[Place] = []
    """Held against a configuration: the lines to change, or the blocks to put it into."""
    needs: list[str] = []
    """Held against a configuration: what it names and cannot do without (``thread_pool``,
    ``log_format``, ``keys_zone``), with the place where that is, or as the line to add."""


class HostSetting(Part, frozen=True, kw_only=True):
    """What a decision asks of the host: never written by a change of nginx's files."""

    kind: Literal["sysctl", "unit", "udev"]
    """A kernel setting (sysctl.d), a line of the systemd unit that starts nginx, or the read-ahead
    of a block device in KiB (udev)."""
    name: str
    """As the kernel or systemd spells it; of udev the kernel's name of the device."""
    value: str
    before: str = ""
    """What it is now; empty where that is not known."""
    reason: str
    decision: str
    """The decision's id."""


class Predicted(Part, frozen=True, kw_only=True):
    """A number of the model with its range."""

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
    now: float
    """The fact's value in this decision."""
    above: DecisionVerdict
    """The verdict above that value."""
    below: DecisionVerdict | None = None
    """The verdict below it; null: the other one of ``enable`` and ``disable``."""


class Decision(Part, frozen=True, kw_only=True):
    """One answer."""

    id: DecisionId
    verdict: DecisionVerdict
    summary: str
    """One sentence: what and why."""
    settings: list[Setting] = []
    proposed: list[Setting] = []
    """What would be set if what is assumed were known to be so; written as comments, never as
    lines. ``next_command`` settles it."""
    host_settings: list[HostSetting] = []
    evidence: list[Evidence] = []
    predicted: list[Predicted] = []
    confidence: Confidence = "low"
    flips_when: list[str] = []
    break_evens: list[BreakEven] = []
    """The computed part of ``flips_when``."""
    risks: list[str] = []
    blocked_by: str = msgspec.field(default="", name="withheld")
    """Held against a configuration: what speaks against writing what would change something."""
    next_command: str = ""


Resource = Literal["link", "disks", "cpu", "memory", "clients", "origin"]


class BindingResource(Part, frozen=True, kw_only=True):
    """The most that one resource gives, in answers of the mean size that is sent."""

    resource: Resource
    requests_per_second: float
    bytes_per_second: float
    provenance: Provenance
    """Of the figure that it stands on most."""


class Decisions(Document, frozen=True, kw_only=True, tag="nginx-tune/decisions/1"):
    """All decisions for one host and workload."""

    kind: Literal["static", "media", "cache", "proxy"] = "static"
    kind_provenance: Provenance = "assumed"
    kind_reason: str = ""
    """Where a configuration shows the kind, and what other kinds it has."""
    nginx_choice: str = ""
    """Which nginx of the host was taken, and why, as its facts say."""
    headline: str = ""
    """What this host cannot do of what is asked for, whatever is decided; empty for nothing."""
    binding: str = ""
    """What binds first, with its figure, and what is not known of it."""
    bindings: list[BindingResource] = []
    """Every resource whose most is known, the least first."""
    decisions: list[Decision] = []
    unknown: list[Unknown] = []
