"""``measurement``: one measured load run; ``capacity`` and ``histograms``, made from such runs.

A capacity document has the highest rate at which an objective holds, and the search for that rate.
Histograms count latencies by powers of two, like those in the published texts on accept balancing.
"""

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part, Unknown
from nginx_tune.documents.loadplan import Stripe
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measured_server import ServerMeasurement


class IdleConnections(Part, frozen=True, kw_only=True):
    """Open connections without requests."""

    wanted: int = 0
    open: int = 0
    """Connections open at the end."""
    lost: int = 0
    """Connections that the server closed and the probe opened again."""
    failed: int = 0
    """Failed attempts to open a connection."""


class Generator(Part, frozen=True, kw_only=True):
    """The load probe's figures about itself."""

    version: str = ""
    cpu_seconds: float = 0.0
    cpu_ratio: float = 0.0
    """CPU seconds per second of all threads."""
    threads: int = 1
    """Concurrent engines."""
    lateness_seconds: Latency = Latency()
    """Delay of arrivals after their intended time."""
    receive_lag_seconds: Latency = Latency()
    """For a sample of responses, the time from the first byte's arrival in the kernel until the
    probe read it."""
    max_rss_bytes: int = 0
    host_busy_seconds: float | None = None
    """CPU time of all processes on the probe's host in the measured time, without interrupts."""
    host_cpu_seconds: float | None = None
    """Total time of all CPUs of that host, busy or idle."""
    foreign_cpu_ratio: float | None = None
    """Share of ``host_cpu_seconds`` that other processes used."""
    steal_ratio: float | None = None
    """Share of ``host_cpu_seconds`` that the hypervisor gave to other guests."""
    throttled_periods: int | None = None
    """Periods in which the probe's control groups were throttled."""
    clock_source: str = ""
    source_addresses: int = 1
    """Number of local addresses of the connections; one is added when the ports run out."""
    start_skew_seconds: float | None = None
    """Delay of this load host's start after the planned one; null if the plan has no time."""
    idle_connections: IdleConnections | None = None


class Agent(Part, frozen=True, kw_only=True):
    """One load host's part in a merged measurement."""

    name: str
    stripe: Stripe = Stripe()
    started_unix_seconds: float | None = None
    duration_seconds: float = 0.0
    requests: int = 0
    requests_per_second: float = 0.0
    cpu_ratio: float = 0.0
    lateness_p99_seconds: float | None = None
    flags: list[str] = []


class ClassSecond(Part, frozen=True, kw_only=True):
    """One class in one second, by completion time.

    Requests that timed out count in the latencies with their age.
    """

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None
    histogram: str = ""
    """Response times (HdrHistogram V2 in base64), if the plan has ``second_histograms``."""


class SeriesPoint(Part, frozen=True, kw_only=True):
    """One second of the run; the measured time begins with second 0."""

    second: int
    classes: dict[str, ClassSecond]


class Measurement(Document, frozen=True, kw_only=True, tag="nginx-tune/measurement/1"):
    """The result of one load run."""

    variant: str = msgspec.field(default="", name="arm")
    number: int = msgspec.field(default=0, name="block")
    """Index of the run, from 0."""
    seed: int = 1
    plan_digest: str = ""
    """Digest of classes and durations, equal on all load hosts of a load."""
    stripe: Stripe = Stripe()
    """This load host's share of the arrivals."""
    started_unix_seconds: float | None = None
    """Start of the measured time by the load host's clock."""
    duration_seconds: float = 0.0
    classes: dict[str, ClassMeasurement] = {}
    server: ServerMeasurement = ServerMeasurement()
    generator: Generator = Generator()
    flags: list[str] = []
    """Reasons for a degraded result; empty for a valid result."""
    series: list[SeriesPoint] = []
    agents: list[Agent] = []
    """Load hosts of a merged measurement."""
    start_skew_seconds: float | None = None
    """Time between the first and the last start of the load hosts."""
    unknown: list[Unknown] = []


LimitedBy = Literal[
    "objective", "failures", "connections", "probe", "samples", "bound", "steps", "interrupted"
]
"""The reason that no higher rate was reached: a missed objective; failed or unanswered requests;
arrivals that wait at the probe's limit of connections; the probe itself; too few samples for the
objective; the caller's highest rate; the number of tries; or an interrupt."""


class CapacityStep(Part, frozen=True, kw_only=True):
    """One run of the search."""

    rate_per_second: float
    met: bool
    limited_by: LimitedBy | None = None
    """The limit, if the objective was not met."""
    measured: dict[str, float | None] = {}
    """Value of each metric of the objective: seconds, a rate or a count."""
    reason: str = ""
    flags: list[str] = []
    good_requests: int | None = None
    """Successful requests of all classes; null in documents of older versions."""


class Capacity(Document, frozen=True, kw_only=True, tag="nginx-tune/capacity/1"):
    """The highest rate at which an objective holds."""

    objectives: list[str] = []
    capacity_per_second: float | None = None
    """The capacity; null if none was found: no rate met the objective, or the server was not the
    limit."""
    at_least_per_second: float | None = None
    """The highest rate that met the objective."""
    missed_per_second: float | None = None
    """The lowest rate that missed the objective; the capacity is below it."""
    limited_by: LimitedBy | None = None
    reason: str = ""
    steps: list[CapacityStep] = []
    measurement: Measurement | None = None
    """The last run at the highest rate that met the objective."""


class Bucket(Part, frozen=True, kw_only=True):
    """The samples from ``from_seconds`` (inclusive) to ``below_seconds`` (exclusive)."""

    from_seconds: float
    below_seconds: float
    """Twice ``from_seconds``, both powers of two in nanoseconds, unless ``from_seconds`` is 0."""
    count: int


class LatencyHistogram(Part, frozen=True, kw_only=True):
    """The histogram of one latency; without samples its statistics are null."""

    latency: str
    """Name of the latency in gates, without the statistic: ``hot``, ``hot.ttfb``,
    ``server.loop_turn_seconds``."""
    variant: str = msgspec.field(default="", name="arm")
    """The variant in a kept result."""
    runs: int = msgspec.field(default=1, name="blocks")
    """Runs in the histogram."""
    left_out: int = 0
    """Runs discarded for their flags."""
    count: int = 0
    min_seconds: float | None = None
    """Start of the lowest non-empty counter, as the histogram does not keep exact values."""
    mean_seconds: float | None = None
    median_seconds: float | None = None
    max_seconds: float | None = None
    stdev_seconds: float | None = None
    censored: int = 0
    """Samples of requests that never finished or timed out, counted with their age."""
    at_least: list[str] = []
    """The statistics (``mean``, ``median``, ``max``) that are lower bounds due to censored
    samples."""
    buckets: list[Bucket] = []
    """The buckets from the first non-empty one to the last, including empty ones in between."""
