"""``size``: what a host carries under an objective, and which hosts would carry a rate."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Bytes, Count, Document, Number, Part, Provenance, Ratio
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.workload import Kind

AnswerResource = Literal["disks", "link", "cpu", "loops", "clients"]
"""The resource that takes most of the answers that miss the objective. ``loops``: workers that wait
in disk reads, without thread pools; ``clients``: what they take in a second."""

SizeVerdict = Literal["carries", "in_doubt", "cannot"]
"""A host against the rate that is asked for: the whole range above it, astride it, or below."""


class SizeRange(Part, frozen=True, kw_only=True):
    """A number of the model with its range."""

    low: Number
    expected: Number
    high: Number


class DiskChoice(Part, frozen=True, kw_only=True):
    """The disks of a column."""

    count: Count
    class_name: str
    """A class, or several of the host's own with ``+`` between them."""
    is_own: bool = False
    """True for the host's disks, as many or more of them."""
    provenance: Provenance = "assumed"
    """Of their speed."""


class SizedHost(Part, frozen=True, kw_only=True):
    """A host with that memory and those disks, all else as it is."""

    memory_bytes: Bytes
    disks: Count
    """Place in ``columns``."""
    is_this: bool = False
    """True for the host that the facts are of."""
    carried_per_second: SizeRange | None = None
    """Requests a second for files; null where the range is wider than a factor of ten."""
    verdict: SizeVerdict | None = None
    """Null without a rate that is asked for."""
    binds: AnswerResource
    pools: bool
    """True if it carries more with thread pools."""
    workers: Count
    """Worker processes: fewer than the CPUs where loops read from disks that more would share."""
    hit_ratio: Ratio
    """Share of the requests that the page cache answers."""
    origin_per_second: Number | None = None
    """Of a cache: what its origin still gets of the asked rate, or of what is carried; null where
    nobody knows how much is asked for in all."""
    seconds: SizeRange | None = None
    """The objective's time at the asked rate; null without a rate, or where it is not kept up
    with."""
    cost: float | None = None
    """By the prices that were given; null where one of them is missing."""


class MemoryBoundary(Part, frozen=True, kw_only=True):
    """The memory from which the disks of a column carry the asked rate."""

    disks: Count
    """Place in ``columns``."""
    memory_bytes: SizeRange | None = None
    """Null where no memory changes the answer."""
    reason: str = ""
    """Why it is null."""


class MissPoint(Part, frozen=True, kw_only=True):
    """Share of the requests that miss a page cache of this host with that memory."""

    memory_bytes: Bytes
    miss_ratio: Ratio


class LatencyPoint(Part, frozen=True, kw_only=True):
    """The objective's time on this host at a rate."""

    per_second: Number
    seconds: Number


class Sizing(Document, frozen=True, kw_only=True, tag="nginx-tune/sizing/1"):
    """What hosts carry."""

    kind: Kind = "static"
    objective: str = ""
    """A gate expression such as ``p99 <= 50ms``; empty: all that the resources keep up with."""
    objective_provenance: Provenance = "assumed"
    asked_per_second: Number | None = None
    asked_provenance: Provenance = "assumed"
    columns: list[DiskChoice] = []
    hosts: list[SizedHost] = []
    """Row by row, from the least memory; of each row in the order of ``columns``."""
    with_pools_per_second: Number = 0.0
    """What this host carries with thread pools …"""
    without_pools_per_second: Number = 0.0
    """… and without, where a worker reads by itself."""
    cheapest: Count | None = None
    """Place in ``hosts``: of those that carry the asked rate the cheapest. Without prices this
    host, else the one with the least of its own disks and memory, else of others. Null where none
    is sure to."""
    boundaries: list[MemoryBoundary] = []
    least_cpus: Count | None = None
    """CPUs that the asked rate keeps busy at most 95 % of the time."""
    least_link_bits_per_second: Count | None = None
    """The same of the link, at the next speed that is sold."""
    misses: list[MissPoint] = []
    latencies: list[LatencyPoint] = []
    evidence: list[Evidence] = []
    """What the answer rests on."""
    next_command: str = ""
    """The command that brings the most important of what is only assumed; else empty."""
    prove_command: str = ""
    """The commands that measure the nearest host in the lab; empty where no lab can."""
    no_proof: str = ""
    """Why no lab can."""
