"""``histograms``: latencies by powers of two, as the texts on accept balancing show them."""

from __future__ import annotations

from nginx_tune.documents.base import Document, Part


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
    arm: str = ""
    """Of a stored run."""
    blocks: int = 1
    """That were added."""
    left_out: int = 0
    """Blocks of a run whose flags discard them."""
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
