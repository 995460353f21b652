"""``size``: the load that a host carries under an objective, and the hosts for a rate."""

from typing import Literal

from nginx_tune.documents.base import Bytes, Count, Document, Number, Part, Provenance, Ratio
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.workload import Kind

AnswerResource = Literal["disks", "link", "cpu", "loops", "clients"]
"""The resource for which most answers miss the objective. ``loops``: workers that wait in disk
reads, without thread pools; ``clients``: the rate at which they receive."""

SizeVerdict = Literal["carries", "in_doubt", "cannot"]
"""The position of the range of rates that a host may carry: wholly above the wanted rate, around
it, or wholly below it."""


class SizeRange(Part, frozen=True, kw_only=True):
    """A modelled number with its range."""

    low: Number
    expected: Number
    high: Number


class DiskChoice(Part, frozen=True, kw_only=True):
    """The disks of some hosts: a column of the table of hosts."""

    count: Count
    class_name: str
    """A class of disk; several classes of the host's own disks are joined by ``+``."""
    is_own: bool = False
    """True for the host's own disks, or a larger number of such disks."""
    provenance: Provenance = "assumed"
    """Provenance of their speed."""


class SizedHost(Part, frozen=True, kw_only=True):
    """A host with other memory and disks, and everything else the same."""

    memory_bytes: Bytes
    disks: Count
    """Index in ``columns``."""
    is_this: bool = False
    """True for the host of the facts."""
    carried_per_second: SizeRange
    """Requests per second for files."""
    is_prediction: bool = True
    """False for a range of more than a factor of ten: ``expected`` is then a guess."""
    verdict: SizeVerdict | None = None
    """The verdict on the wanted rate; null if no rate is wanted."""
    binds: AnswerResource
    """The resource that limits the rate; for a verdict in doubt, at the low end of the range."""
    pools: bool
    """True if the host carries more with thread pools."""
    workers: Count
    """Worker processes; fewer than CPUs if workers read disks themselves and more workers would
    read the same disks."""
    hit_ratio: Ratio
    """Share of requests from the page cache."""
    origin_per_second: Number | None = None
    """Requests per second to a cache's origin at the wanted rate, or at the expected
    ``carried_per_second`` if no rate is wanted; null if the site is not a cache, or if the size of
    its objects is unknown."""
    seconds: SizeRange | None = None
    """The objective's time at the wanted rate, or the p99 without an objective; null without a
    rate, if the rate is not sustained, or for a range of more than a factor of ten."""
    cost: float | None = None
    """Cost by the given prices; null if one is missing."""


class MemoryBoundary(Part, frozen=True, kw_only=True):
    """The memory from which the disks of a column carry the wanted rate."""

    disks: Count
    """Index in ``columns``."""
    memory_bytes: SizeRange | None = None
    """The memory; null if none of the sizes changes the answer."""
    reason: str = ""
    """The reason why ``memory_bytes`` is null."""


class MissPoint(Part, frozen=True, kw_only=True):
    """The share of requests that miss this host's page cache with another size of memory."""

    memory_bytes: Bytes
    miss_ratio: Ratio


class LatencyPoint(Part, frozen=True, kw_only=True):
    """The response time of the objective's metric on this host at one rate."""

    per_second: Number
    seconds: Number


class Sizing(Document, frozen=True, kw_only=True, tag="nginx-tune/sizing/1"):
    """The load that hosts carry."""

    kind: Kind = "static"
    objective: str = ""
    """A gate expression such as ``p99 <= 50ms``; empty for the resources' limits alone."""
    objective_provenance: Provenance = "assumed"
    asked_per_second: Number | None = None
    asked_provenance: Provenance = "assumed"
    columns: list[DiskChoice] = []
    hosts: list[SizedHost] = []
    """Hosts by memory in ascending order, and in the order of ``columns`` for each."""
    with_pools_per_second: Number = 0.0
    """The load that this host carries with thread pools."""
    without_pools_per_second: Number = 0.0
    """The load that this host carries without thread pools: workers then read files themselves."""
    without_objective_per_second: SizeRange | None = None
    """The load that this host's resources keep up with; null if there is no objective."""
    alone_seconds: SizeRange | None = None
    """The objective's time on this host without load; null if some rate may meet it."""
    cheapest: Count | None = None
    """Index in ``hosts`` of the cheapest host that carries the wanted rate. Without prices: this
    host if it carries the rate, else the host with the fewest disks of this host's class and the
    least memory, else such a host with other disks. Null if no host certainly carries the rate."""
    boundaries: list[MemoryBoundary] = []
    least_cpus: Count | None = None
    """CPUs that the wanted rate keeps busy for at most 95 % of the time."""
    least_link_bits_per_second: Count | None = None
    """Bandwidth with which the wanted rate uses at most 95 % of the link, at an available speed."""
    misses: list[MissPoint] = []
    latencies: list[LatencyPoint] = []
    evidence: list[Evidence] = []
    """The figures on which the answer is based."""
    next_command: str = ""
    """The command for the most important assumed figure; empty for none."""
    prove_command: str = ""
    """The commands that measure the nearest host in the lab; empty if no lab can."""
    no_proof: str = ""
    """The reason why no lab can measure it."""
