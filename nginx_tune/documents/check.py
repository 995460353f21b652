"""``check``: the first look at a host and its configuration, on one screen."""

from __future__ import annotations

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
    """Whether ``inspect --disks`` measured every one of them."""


class CheckedHost(Part, frozen=True, kw_only=True):
    """What decides about a host, in four lines."""

    cpus: float | None = None
    """CPUs that nginx may use: those online, less what cpuset and quota take."""
    page_cache_bytes: Bytes | None = None
    """The most that the page cache can hold."""
    data_bytes: Bytes | None = None
    data_is_bound: bool = False
    """True where nobody counted the data: the used bytes of its file systems are an upper bound."""
    disks: list[DiskGroup] = []
    link_bits_per_second: Count | None = None
    """Of all physical links that are up, together; null where one is not known."""
    kernel: str = ""
    nginx: str = ""
    """Product and version; empty where none was found."""
    nginx_has_threads: bool | None = None


class Switch(Part, frozen=True, kw_only=True):
    """One of the four switches."""

    name: SwitchName
    decision: DecisionId
    verdict: SwitchVerdict
    """``measure``: what is known does not decide it; ``next`` of the decision settles it."""
    value: str = ""
    """The argument, for ``set``."""
    differs: bool = False
    """Whether the configuration says otherwise."""
    why: str
    """One clause with the figure that decides."""


class FirstLook(Document, frozen=True, kw_only=True, tag="nginx-tune/check/1"):
    """The result of ``check``."""

    conf_path: str | None = None
    """The main file of the configuration; null where none was found."""
    headline: str = ""
    binding: str = ""
    """What the host cannot do of what is asked for, and what binds first, as ``recommend`` has
    them."""
    host: CheckedHost = CheckedHost()
    switches: list[Switch] = []
    findings: list[Finding] = []
    """The worst, at most three."""
    findings_by_severity: dict[str, Count] = {}
    files_not_read: Count = 0
    """Includes and files that could not be read, so not judged."""
    files_unparsed: list[Unparsed] = []
    """Files in which a syntax error ends the reading; nothing is decided then."""
    next_command: str = ""
    next_reason: str = ""
