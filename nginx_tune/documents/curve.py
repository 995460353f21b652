"""A disk's behaviour under random reads: part of ``facts``."""

from __future__ import annotations

from nginx_tune.documents.base import Part, Provenance


class CurvePoint(Part, frozen=True, kw_only=True):
    """One depth of a disk's random-read curve."""

    depth: int
    reads_per_second: float
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    p999_seconds: float | None = None
    """Quantiles with fewer than ten reads beyond them are null."""
    max_seconds: float | None = None
    reads: int | None = None
    """How many reads the point stands on."""
    deviation_ratio: float | None = None
    """Standard deviation of the rate over parts of the measured time, relative to the rate."""
    error_ratio: float | None = None
    """Standard error of the rate, relative to the rate."""
    outliers: int | None = None
    """Reads that took more than ten times the median."""


class Sweep(Part, frozen=True, kw_only=True):
    """Random reads of one size at growing depths."""

    read_bytes: int
    """Size of one read."""
    points: list[CurvePoint]
    knee_depth: int | None = None
    """Depth past which reads per second gain less than 5 % or p99 doubles; null for a plateau
    from depth 1, and where the rate still grows at the last depth."""
    knee_reason: str = ""
    """Why the knee is there, or why there is none."""
    plateau_reads_per_second: float | None = None
    """The rate that more depth does not pass; null where it still grows at the last depth."""


class Curve(Sweep, frozen=True, kw_only=True):
    """A disk's behaviour under random reads of the size that nginx makes."""

    small_reads: Sweep | None = None
    """The same with reads of 4 KiB."""
    sequential_bytes_per_second: float | None = None
    """One stream that reads on, a read after the other."""
    target: str = ""
    """What was read."""
    notes: list[str] = []
    """What to know before the numbers are believed."""
    provenance: Provenance = "measured"


class SharedCurve(Part, frozen=True, kw_only=True):
    """The curve of several leaf disks that serve the same files and were measured as one."""

    disks: list[str]
    curve: Curve


class DiskProbe(Part, frozen=True, kw_only=True):
    """What probing the disks under some paths gave."""

    disks: list[str]
    curve: Curve | None = None
    reason: str = ""
    """Why there is no curve."""
