"""``check``: the first look at a host and its configuration, on one screen."""

from typing import Literal

from nginx_tune.documents.base import Bytes, Count, Document, Part
from nginx_tune.documents.decisions import DecisionId
from nginx_tune.documents.findings import Finding, Unparsed

SwitchName = Literal["thread pools", "pool per disk", "sendfile_max_chunk", "reuseport"]
SwitchVerdict = Literal["on", "off", "set", "default", "measure"]


class DiskGroup(Part, frozen=True, kw_only=True):
    """Disks of one class and size."""

    count: Count
    class_name: str
    size_bytes: Bytes | None = None
    measured: bool = False
    """True if ``inspect --disks`` measured all of the disks."""
    reads_per_second: float | None = None
    """The highest measured rate of random reads, of the slowest of these disks."""


class CheckedHost(Part, frozen=True, kw_only=True):
    """The decisive facts of a host, in four lines."""

    cpus: float | None = None
    """CPUs that nginx may use: the online CPUs within cpuset and quota."""
    page_cache_bytes: Bytes | None = None
    """Largest size of the page cache."""
    data_bytes: Bytes | None = None
    short_log_bytes: Bytes | None = None
    """Part of ``data_bytes`` that a log of less than a day requests; null without such a log."""
    data_is_lower_bound: bool = False
    """True if the count of the served files did not finish in its time."""
    disks: list[DiskGroup] = []
    link_bits_per_second: Count | None = None
    """Speed of the fastest physical link that is up; null if no speed is known."""
    kernel: str = ""
    nginx: str = ""
    """Product and version; empty if no nginx was found."""
    nginx_has_threads: bool | None = None


class Switch(Part, frozen=True, kw_only=True):
    """A setting that is on or off: thread pools, a pool per disk, sendfile_max_chunk, reuseport."""

    name: SwitchName
    decision: DecisionId
    verdict: SwitchVerdict
    """``measure``: the facts do not settle the decision, but its next command does."""
    value: str = ""
    """The directive's argument, with the verdict ``set``."""
    differs: bool = False
    """True if the current configuration differs from the verdict."""
    why: str
    """The reason, as a clause with the decisive figure."""


class NextStep(Part, frozen=True, kw_only=True):
    """A command to type."""

    command: str
    reason: str


class FirstLook(Document, frozen=True, kw_only=True, tag="nginx-tune/check/1"):
    """The result of ``check``."""

    conf_path: str | None = None
    """The main file of the configuration; null if no such file was found."""
    headline: str = ""
    binding: str = ""
    """Unmet demand and the first limit, as in ``recommend``."""
    host: CheckedHost = CheckedHost()
    switches: list[Switch] = []
    findings: list[Finding] = []
    """The worst findings, at most three."""
    findings_by_severity: dict[str, Count] = {}
    files_not_read: Count = 0
    """Includes and files that could not be read, and so were not judged."""
    files_unparsed: list[Unparsed] = []
    """Files with a syntax error; if there are any, nothing is decided."""
    next_command: str = ""
    next_reason: str = ""
    also: list[NextStep] = []
    """Further commands, which settle each ``measure``."""
