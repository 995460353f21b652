"""``measurement``: one load run, measured; ``capacity`` and ``histograms``, made of such runs.

A capacity is the highest rate at which an objective holds, and the search for it. Histograms are
latencies by powers of two, as the texts on accept balancing show them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part, Unknown
from nginx_tune.documents.loadplan import Stripe
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measured_server import ServerMeasurement


class IdleConnections(Part, frozen=True, kw_only=True):
    """Connections that stayed open and asked nothing."""

    wanted: int = 0
    open: int = 0
    """At the end."""
    lost: int = 0
    """Closed by the server; each was opened again."""
    failed: int = 0
    """Attempts that came to nothing."""


class Generator(Part, frozen=True, kw_only=True):
    """What the load probe says about itself."""

    version: str = ""
    cpu_seconds: float = 0.0
    cpu_ratio: float = 0.0
    """CPU seconds per second, of all threads together."""
    threads: int = 1
    """Engines that ran side by side."""
    lateness_seconds: Latency = Latency()
    """How late the loop released an arrival after its intended time."""
    receive_lag_seconds: Latency = Latency()
    """From the arrival of a first byte in the kernel until the probe read it (of a sample)."""
    max_rss_bytes: int = 0
    host_busy_seconds: float | None = None
    """CPU time of all processes of the probe's host in the measured time, without interrupts."""
    host_cpu_seconds: float | None = None
    """All time of all its CPUs."""
    foreign_cpu_ratio: float | None = None
    """Share of it that neither the probe nor the server used."""
    steal_ratio: float | None = None
    """Share of it that a hypervisor gave to others."""
    throttled_periods: int | None = None
    """Periods in which the probe's control groups had used up their CPU time."""
    clock_source: str = ""
    source_addresses: int = 1
    """Local addresses that connections came from: one more where an address ran out of ports."""
    start_skew_seconds: float | None = None
    """How long after the plan's wall-clock moment this load host began; null without one."""
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

    Requests that failed by time stand in the latencies at their age.
    """

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None
    histogram: str = ""
    """Of the response times (HdrHistogram V2 in base64), where the plan has
    ``second_histograms``."""


class SeriesPoint(Part, frozen=True, kw_only=True):
    """One second of the run; second 0 starts with the measured time."""

    second: int
    classes: dict[str, ClassSecond]


class Measurement(Document, frozen=True, kw_only=True, tag="nginx-tune/measurement/1"):
    """What one load run saw."""

    variant: str = msgspec.field(default="", name="arm")
    number: int = msgspec.field(default=0, name="block")
    """Of the run, from 0."""
    seed: int = 1
    plan_digest: str = ""
    """Fingerprint of classes and durations: alike on all load hosts of one load."""
    stripe: Stripe = Stripe()
    """Which share of the arrivals was this load host's."""
    started_unix_seconds: float | None = None
    """When the measured time began, by the load host's clock."""
    duration_seconds: float = 0.0
    classes: dict[str, ClassMeasurement] = {}
    server: ServerMeasurement = ServerMeasurement()
    generator: Generator = Generator()
    flags: list[str] = []
    """Why the result is degraded; empty when it is valid."""
    series: list[SeriesPoint] = []
    agents: list[Agent] = []
    """The load hosts whose measurements were added."""
    start_skew_seconds: float | None = None
    """Between the first and the last of them to begin."""
    unknown: list[Unknown] = []


LimitedBy = Literal[
    "objective", "failures", "connections", "probe", "samples", "bound", "steps", "interrupted"
]
"""What is in the way of a higher rate: the objective is missed; requests fail or stay
unanswered; arrivals wait at the probe's cap of connections; the probe itself is the limit; too
few samples for the objective; the rate that the caller bounds; the number of tries; whoever
ended it."""


class CapacityStep(Part, frozen=True, kw_only=True):
    """One run of the search."""

    rate_per_second: float
    met: bool
    limited_by: LimitedBy | None = None
    """Why not, when it was not met."""
    measured: dict[str, float | None] = {}
    """Value of each metric of the objective; seconds, or per second, or a count."""
    reason: str = ""
    flags: list[str] = []
    good_requests: int | None = None
    """Of all classes; null in documents of before this was told."""


class Capacity(Document, frozen=True, kw_only=True, tag="nginx-tune/capacity/1"):
    """The highest rate at which an objective holds."""

    objectives: list[str] = []
    capacity_per_second: float | None = None
    """Null when it was not found: the objective never held, or what limits it is not the server."""
    at_least_per_second: float | None = None
    """The highest rate at which the objective held."""
    missed_per_second: float | None = None
    """The lowest rate at which it did not: the capacity lies below."""
    limited_by: LimitedBy | None = None
    reason: str = ""
    steps: list[CapacityStep] = []
    measurement: Measurement | None = None
    """The last run at the highest rate at which the objective held."""


class Bucket(Part, frozen=True, kw_only=True):
    """The samples of ``from_seconds`` or more, and below ``below_seconds``."""

    from_seconds: float
    below_seconds: float
    """Twice the former: both are powers of two in nanoseconds, or the former is 0."""
    count: int


class LatencyHistogram(Part, frozen=True, kw_only=True):
    """One latency; with no sample its statistics are null."""

    latency: str
    """As gates spell it, without the statistic: ``hot``, ``hot.ttfb``,
    ``server.loop_turn_seconds``."""
    variant: str = msgspec.field(default="", name="arm")
    """Of a kept result."""
    runs: int = msgspec.field(default=1, name="blocks")
    """Those added."""
    left_out: int = 0
    """Runs that their flags discard."""
    count: int = 0
    min_seconds: float | None = None
    """Where the least counter begins that holds a sample: what is below its precision is lost."""
    mean_seconds: float | None = None
    median_seconds: float | None = None
    max_seconds: float | None = None
    stdev_seconds: float | None = None
    censored: int = 0
    """Samples of what never finished, or failed by time: they stand here at their age."""
    at_least: list[str] = []
    """``mean``, ``median`` and ``max``, where these make them a lower bound."""
    buckets: list[Bucket] = []
    """From the first that holds a sample to the last, the empty ones between as well."""


class Histograms(Document, frozen=True, kw_only=True, tag="nginx-tune/histograms/1"):
    """Those that were asked for."""

    histograms: list[LatencyHistogram] = []
