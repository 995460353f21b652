"""The cost of one cold read, from the disk's measured curve or else its class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nginx_tune.decide.model.volumes import is_known, volume_bounds
from nginx_tune.decide.model.waiting import Stalls
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import Disk, DiskClass
from nginx_tune.documents.facts_storage import Curve, CurvePoint, SharedCurve

MILLISECOND = 1e-3
MEGABYTE = 1e6


@dataclass(frozen=True)
class ModelDisk:
    """A disk in the model, or several disks that share the reads."""

    latency_seconds: float
    """Mean time to the first byte of one random read on the idle disk."""
    bytes_per_second: float
    """Sequential bandwidth of one head or channel."""
    heads: float
    """Reads that make progress concurrently: 1 on a hard disk, the parallel channels of flash."""
    spread: float
    """Coefficient of variation of the read time."""
    name: str = ""
    provenance: Provenance = "assumed"
    most_bytes_per_second: float = math.inf
    """Bound on all heads together: of the bus, the product, or the volume's provisioned figure."""
    most_reads_per_second: float = math.inf
    """Bound on all heads together, in reads of any size."""
    is_provisioned: bool = False
    """True if the two bounds above are a volume's provisioned figures, which are exact."""
    stalls: Stalls | None = None
    """Measured stalls. ``latency_seconds`` and ``spread`` include the stalls, as consecutive reads
    meet stalls too."""
    parts: tuple[tuple[float, ModelDisk], ...] = ()
    """Each disk with its share of the reads, if the model represents several disks."""

    @property
    def spread_moving(self) -> float:
        """Coefficient of variation of the read time outside stalls."""
        return self.spread if self.stalls is None else self.stalls.spread_between

    def spread_of(self, read_bytes: float, *, moving: bool = False) -> float:
        """Coefficient of variation of a read's time over all disks; ``moving``: outside stalls."""
        if not self.parts:
            return self.spread_moving if moving else self.spread
        moving = moving and self.stalls is not None
        return _spread_over(
            (share, disk.read_seconds(read_bytes), disk.spread_moving if moving else disk.spread)
            for share, disk in self.parts
        )

    @property
    def moving_latency_seconds(self) -> float:
        """Mean time to the first byte outside stalls."""
        if self.stalls is None:
            return self.latency_seconds
        if self.parts:
            return sum(share * disk.moving_latency_seconds for share, disk in self.parts)
        return self.latency_seconds * (1.0 - self.stalls.ratio)

    def spread_between_disks(self, read_bytes: float) -> float:
        """Coefficient of variation of the mean read times of the disks; 0 for one disk."""
        return _spread_over(
            (share, disk.read_seconds(read_bytes), 0.0) for share, disk in self.parts
        )

    def read_seconds(self, read_bytes: float) -> float:
        """Mean time of one cold read of ``read_bytes`` on the idle disk."""
        return self.latency_seconds + read_bytes / self.bytes_per_second

    def reads_per_second(self, read_bytes: float) -> float:
        """Maximum number of cold reads of a size that the disk finishes a second."""
        reads = self.heads / self.read_seconds(read_bytes)
        return min(reads, self.bound_of(read_bytes))

    def bound_of(self, read_bytes: float, reads: float = 1.0) -> float:
        """Maximum number of objects of a size to read per second, each in ``reads`` reads."""
        by_bytes = self.most_bytes_per_second / max(read_bytes, 1.0)
        return min(by_bytes, self.most_reads_per_second / reads)

    def heads_for(self, read_bytes: float) -> float:
        """Concurrent reads of a size: as many as heads, or fewer if a bound limits the disk."""
        return self.reads_per_second(read_bytes) * self.read_seconds(read_bytes)

    @property
    def plausible_factors(self) -> tuple[float, float]:
        """Factors on the read time for the fastest and the slowest plausible disk of the class."""
        return (1 / 2 if self.heads == max(1, len(self.parts)) else 1 / _OFF, _OFF)

    def scaled(self, factor: float) -> ModelDisk:
        """The disk, slower by ``factor``; provisioned bounds stay the same."""
        if self.parts:
            shares = [share for share, _ in self.parts]
            return disks_together([disk.scaled(factor) for _, disk in self.parts], shares)
        bounds = 1.0 if self.is_provisioned else factor
        return replace(
            self,
            latency_seconds=self.latency_seconds * factor,
            bytes_per_second=self.bytes_per_second
            / (factor**_OF_A_STREAM if self.heads == 1 else factor),
            most_bytes_per_second=self.most_bytes_per_second / bounds,
            most_reads_per_second=self.most_reads_per_second / bounds,
        )


_OFF = 3.0
"""Assumed: largest factor in latency and bandwidth between the typical disk of a class and others.
For hard disks it only means slower: none starts a read in a third of the typical time."""
_OF_A_STREAM = math.log(2) / math.log(_OFF)
"""Assumed: exponent that turns a factor of three in latency into a factor of two in bandwidth."""


def _spread_over(reads: Iterable[tuple[float, float, float]]) -> float:
    """Coefficient of variation of a mixture of times, given as (share, mean, variation).

    A few reads of a slow disk among many of a fast disk cause nearly all of the variation.
    Source: E[S^2] of a mixture is the sum of the shares times m^2 (1 + cv^2).
    """
    mean = square = 0.0
    for share, seconds, spread in reads:
        mean += share * seconds
        square += share * seconds**2 * (1 + spread**2)
    return math.sqrt(max(0.0, square / mean**2 - 1)) if mean > 0 else 0.0


def _typical(
    name: str,
    latency_milliseconds: float,
    megabytes_per_second: float,
    *,
    heads: float,
    spread: float,
    most: tuple[float, float] = (math.inf, math.inf),
) -> ModelDisk:
    """A row of the table; ``most`` is megabytes and reads a second of all heads together."""
    return ModelDisk(
        latency_milliseconds * MILLISECOND,
        megabytes_per_second * MEGABYTE,
        heads,
        spread,
        name,
        most_bytes_per_second=most[0] * MEGABYTE,
        most_reads_per_second=most[1],
    )


TYPICAL: dict[DiskClass, ModelDisk] = {
    "hdd": _typical("hdd", 8, 120, heads=1, spread=0.6),
    "ssd": _typical("ssd", 0.12, 500, heads=8, spread=3, most=(550, 98_000)),
    "nvme": _typical("nvme", 0.09, 2000, heads=32, spread=3, most=(3_200, 540_000)),
    "card": _typical("card", 0.6, 80, heads=1, spread=3),
    "network": _typical("network", 1, 125, heads=16, spread=3, most=(131.072, 3_000)),
    "virtual": _typical("virtual", 0.8, 147, heads=8, spread=3, most=(147, 3_000)),
    "memory": _typical("memory", 1e-3, 5000, heads=64, spread=0.1),
    "unknown": _typical("unknown", 1, 150, heads=4, spread=3, most=(550, 98_000)),
}
"""Typical disks by class: positioning time and bandwidth of 7200-rpm drives, data-sheet latency of
SATA and NVMe flash, one data-centre round trip; for a card the figures of its class (SD Application
Performance A1: 1500 random reads a second, one command at a time; UHS-I). The spread of flash
allows for rare stalls (source row C2: under 100 µs on average, outliers up to a second).

Upper bounds: SATA at 6 Gbit/s with 8b/10b coding carries 600 MB/s; the data sheet of Samsung's
PM893 gives 550 MB/s and 98,000 reads a second. PCIe 3.0 x4 carries 3.9 GB/s; the data sheet of the
PM983 gives 3.2 GB/s and 540,000 reads a second. A network volume of unknown type gets the baseline
of gp3 (Amazon EBS User Guide), and a virtual disk that of pd-balanced (Google Cloud, Persistent
Disk performance): each is the default of its cloud. A hard disk has one head."""

NETWORK_FILES = _typical("network files", 1, 125, heads=64, spread=3)
"""A network file system: a round trip and a server's read; one connection of 1 Gbit/s, unless the
link is known; as many concurrent requests as an NFSv4.1 session has slots (Linux
fs/nfs/nfs4session.h, NFS4_DEF_SLOT_TABLE_SIZE)."""


def network_files(name: str, link_bytes_per_second: float | None) -> ModelDisk:
    """A network file system, bounded by the speed of its link."""
    way = link_bytes_per_second or NETWORK_FILES.bytes_per_second
    return replace(NETWORK_FILES, name=name, bytes_per_second=way, most_bytes_per_second=way)


def _typical_of(disk: Disk) -> ModelDisk:
    """The typical disk of a class, or the known volume."""
    typical = replace(TYPICAL[disk.class_], name=disk.name or TYPICAL[disk.class_].name)
    bounds = volume_bounds(disk)
    if bounds is None or disk.class_ not in ("network", "virtual", "unknown"):
        return typical
    reads, size, latency = bounds
    return replace(
        typical,
        latency_seconds=latency,
        bytes_per_second=min(size, _STREAM_BYTES_PER_SECOND),
        # As many concurrent reads as reach the provisioned rate.
        heads=max(TYPICAL["network"].heads, math.ceil(reads * latency) if reads < math.inf else 0),
        most_bytes_per_second=size,
        most_reads_per_second=reads,
        is_provisioned=is_known(disk),
    )


_STREAM_BYTES_PER_SECOND = 250 * MEGABYTE
"""Assumed: bandwidth of one sequential stream of a volume whose total bound is much greater."""
_CONTRADICTION = 0.3
"""Largest difference between a measured read and the time that a stream's bandwidth gives for it,
as a share of the read's time."""


def disk_model(disk: Disk) -> ModelDisk:
    """The model of a disk, from its measured curve or else its class."""
    typical = TYPICAL[disk.class_]
    curve = disk.curve
    points = _by_depth(curve.points) if curve else []
    if curve is None or not points:
        return _typical_of(disk)
    best = max(p.reads_per_second for p in points)
    single = 1 / _read_seconds(points[0])
    bandwidth = curve.sequential_bytes_per_second or max(
        typical.bytes_per_second, best * curve.read_bytes
    )
    latency, bandwidth = _latency_and_bandwidth(curve, 1 / single, bandwidth)
    measured = curve.provenance == "measured"
    return ModelDisk(
        latency_seconds=latency,
        bytes_per_second=bandwidth,
        # The mean of the plateau: the best of several noisy points is too high.
        heads=max(1.0, (curve.plateau_reads_per_second or best) / single),
        spread=_spread(points[0], typical.spread),
        stalls=_stalls(points[0]),
        name=disk.name,
        provenance=curve.provenance,
        most_bytes_per_second=max(bandwidth, best * curve.read_bytes) if measured else math.inf,
    )


_STEPS = 50
_SURVIVE_P50, _SURVIVE_P99, _SURVIVE_P999 = 0.5, 0.01, 0.001

_STANDS_OUT = 10.0
"""Factor by which the longest read must exceed the 99.9th percentile to count as a stall instead of
the tail of usual read times."""
_LEAST_STALL_SECONDS = 0.05
"""Assumed length of the shortest stall. A shorter delay affects a single read on one channel (a
retry, a pause of one die), and other reads overtake it. A stall of a whole disk is longer
(source row C2: up to a second)."""
_LEAST_STALLED = 1e-3
"""Minimum share of time in stalls that a probe can detect."""


def _spread(point: CurvePoint, typical: float) -> float:
    """Coefficient of variation of a read's time, from the quantiles of a measured depth.

    If the mean exceeds the mean of the quantiles, some reads are assumed to take as long as the
    longest. Without the 99.9th percentile, which needs thousands of reads, rare slow reads are not
    visible, and the spread of the class applies.
    """
    moments = _quantile_moments(point)
    if moments is None:
        return typical
    mean, square = moments
    share, longest = _held_up(point, mean)
    mean, square = mean + share * longest, square + share * longest**2
    return math.sqrt(max(0.0, square / mean**2 - 1))


def _stalls(point: CurvePoint) -> Stalls | None:
    """The disk's stalls, from consecutive reads; None if no read is exceptionally long.

    Each stall delays one of these reads. So the share of the time in stalls follows from the
    difference between the mean read time and the mean of the quantiles.
    """
    moments = _quantile_moments(point)
    if moments is None or point.depth != 1 or point.p999_seconds is None:
        return None
    mean, square = moments
    share, longest = _held_up(point, mean)
    ratio = share * longest / (mean + share * longest)
    stands_out = max(_STANDS_OUT * point.p999_seconds, _LEAST_STALL_SECONDS)
    if longest < stands_out or ratio < _LEAST_STALLED:
        return None
    return Stalls(ratio, longest, math.sqrt(max(0.0, square / mean**2 - 1)))


def _held_up(point: CurvePoint, mean_seconds: float) -> tuple[float, float]:
    """The share of reads that took as long as the longest read, and the time of that read."""
    longest = point.max_seconds or 0.0
    if longest <= (point.p999_seconds or 0.0):
        return 0.0, 0.0
    share = max(0.0, _read_seconds(point) - mean_seconds) / longest
    if point.outliers is not None and point.reads:
        share = min(share, point.outliers / point.reads)
    return share, longest


def _quantile_moments(point: CurvePoint) -> tuple[float, float] | None:
    """Means of a read's time and of its square, from the quantiles; None without quantiles.

    Between two quantiles and above the last, the distribution falls off exponentially; below the
    median it mirrors the one above.
    """
    p50, p99, p999 = point.p50_seconds, point.p99_seconds, point.p999_seconds
    if p50 is None or p99 is None or p999 is None or not 0 < p50 <= p99 <= p999:
        return None
    low = max(0.0, 2 * p50 - p99)
    below = [low + (p50 - low) * (n + 0.5) / _STEPS for n in range(_STEPS)]
    weighted = [
        *((time, _SURVIVE_P50 / _STEPS) for time in below),
        *_falling(p50, _SURVIVE_P50, p99, _SURVIVE_P99),
        *_falling(p99, _SURVIVE_P99, p999, _SURVIVE_P999),
    ]
    beyond = (p999 - p99) / math.log(_SURVIVE_P99 / _SURVIVE_P999)
    mean = sum(t * share for t, share in weighted) + _SURVIVE_P999 * (p999 + beyond)
    square = sum(t * t * share for t, share in weighted)
    return mean, square + _SURVIVE_P999 * ((p999 + beyond) ** 2 + beyond**2)


def _falling(
    low: float, survive_low: float, high: float, survive_high: float
) -> list[tuple[float, float]]:
    """(time, share) of points between two quantiles, with exponentially decreasing shares."""
    share = (survive_low - survive_high) / _STEPS
    times = []
    for n in range(_STEPS):
        left = math.log(survive_low / (survive_low - (n + 0.5) * share))
        times.append((low + (high - low) * left / math.log(survive_low / survive_high), share))
    return times


def disk_models(disks: Sequence[Disk], shared: Sequence[SharedCurve]) -> list[ModelDisk]:
    """A model for each disk, or for several disks that were measured together."""
    left = {disk.name: disk for disk in disks}
    models = []
    for part in shared:
        if part.disks and all(name in left for name in part.disks):
            members = [left.pop(name) for name in part.disks]
            name = "+".join(part.disks)
            together = Disk(name=name, class_=members[0].class_, curve=part.curve)
            models.append(disk_model(together))
    return [*models, *map(disk_model, left.values())]


def _by_depth(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    return sorted((p for p in points if p.reads_per_second > 0), key=lambda p: p.depth)


def _read_seconds(point: CurvePoint) -> float:
    """Mean time of a read (Little's law)."""
    return 1 / max(point.reads_per_second / point.depth, 1e-3)


def _latency_and_bandwidth(
    curve: Curve, read_seconds: float, bandwidth: float
) -> tuple[float, float]:
    """The latency of one read, and the bandwidth for its bytes.

    If reads of 4 KiB at the same depth were measured, their time is nearly all latency. Without
    them, the bytes of a read are assumed to take as long as in a sequential stream. If the stream
    contradicts the reads (some virtual disks are slower with a stream than with scattered reads),
    the reads take precedence.
    """
    small = _by_depth(curve.small_reads.points) if curve.small_reads else []
    first = _by_depth(curve.points)[0]
    if not small or small[0].depth != first.depth:
        return max(read_seconds - curve.read_bytes / bandwidth, 1e-6), bandwidth
    start = min(_read_seconds(small[0]), read_seconds)
    transfer = read_seconds - start
    if curve.read_bytes / bandwidth > transfer + _CONTRADICTION * read_seconds:
        bandwidth = curve.read_bytes / max(transfer, 0.1 * read_seconds)
    return start, bandwidth


_LEAST_SURE: tuple[Provenance, ...] = ("assumed", "declared", "learnt", "measured")


def disks_together(disks: Sequence[ModelDisk], shares: Sequence[float] = ()) -> ModelDisk:
    """One model for disks that share the reads: their mean latency, and all of their heads.

    The provenance is the least certain of the disks. ``shares`` are in proportion to the reads; by
    default all are equal.
    """
    if not disks:
        return TYPICAL["unknown"]
    total = math.fsum(shares)
    part = [share / total for share in shares] if total > 0 else [1 / len(disks)] * len(disks)
    shared = list(zip(part, disks, strict=True))
    return ModelDisk(
        latency_seconds=sum(p * d.latency_seconds for p, d in shared),
        bytes_per_second=_stream_of(shared),
        heads=sum(d.heads for d in disks),
        spread=disks[0].spread
        if len(disks) == 1
        else _spread_over((p, d.latency_seconds, d.spread) for p, d in shared),
        name="+".join(d.name for d in disks),
        # With different shares, the disk with most reads reaches its bound first.
        most_bytes_per_second=min(_over(d.most_bytes_per_second, p) for p, d in shared),
        most_reads_per_second=min(_over(d.most_reads_per_second, p) for p, d in shared),
        is_provisioned=all(d.is_provisioned for d in disks),
        provenance=min((d.provenance for d in disks), key=_LEAST_SURE.index),
        stalls=_stalls_together([(p, d.stalls) for p, d in shared if d.stalls is not None]),
        parts=tuple(shared) if len(shared) > 1 else (),
    )


def _stream_of(shared: Sequence[tuple[float, ModelDisk]]) -> float:
    """The bandwidth of one head of several disks, from the mean time of a byte."""
    first = shared[0][1].bytes_per_second
    if all(disk.bytes_per_second == first for _, disk in shared):
        return first
    return 1 / sum(part / disk.bytes_per_second for part, disk in shared)


def _over(bound: float, share: float) -> float:
    return bound / share if share > 0 else math.inf


def _stalls_together(each: Sequence[tuple[float, Stalls]]) -> Stalls | None:
    """The stalls of several disks; each stall delays reads of its own disk only."""
    ratio = sum(stalls.ratio for _, stalls in each)
    if not each or not ratio:
        return None
    return Stalls(
        ratio=min(1.0, ratio),
        seconds=max(stalls.seconds for _, stalls in each),
        spread_between=max(stalls.spread_between for _, stalls in each),
        share=sum(share * stalls.ratio for share, stalls in each) / ratio,
    )
