"""What one cold read costs: from a measured curve, or typical for the class of disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nginx_tune.decide.model.waiting import Stalls
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.curve import Curve, CurvePoint, SharedCurve
from nginx_tune.documents.facts import Disk, DiskClass

MILLISECOND = 1e-3
MEGABYTE = 1e6


@dataclass(frozen=True)
class ModelDisk:
    """A disk, or several that share the reads, as the model sees it."""

    latency_seconds: float
    """Mean time to the first byte of one random read, nothing else going on."""
    bytes_per_second: float
    """Sequential bandwidth of one head or channel."""
    heads: float
    """Reads that make progress at once: 1 for a hard disk, the parallel channels of flash."""
    spread: float
    """Coefficient of variation of the read time."""
    name: str = ""
    provenance: Provenance = "assumed"
    most_bytes_per_second: float = math.inf
    """What all heads together can move, where that was measured."""
    stalls: Stalls | None = None
    """Times at which nothing moves, where they were measured; they are part of the means above and
    of ``spread``, as reads one after the other meet them."""
    parts: tuple[tuple[float, ModelDisk], ...] = ()
    """The disks of several together, each with its share of the reads."""

    @property
    def spread_moving(self) -> float:
        """Coefficient of variation of the read time outside of stalls."""
        return self.spread if self.stalls is None else self.stalls.spread_between

    def spread_of(self, read_bytes: float, *, moving: bool = False) -> float:
        """Coefficient of variation of the time of such a read, whichever of the disks it goes to.

        ``moving``: outside of stalls.
        """
        if not self.parts:
            return self.spread_moving if moving else self.spread
        moving = moving and self.stalls is not None
        return _spread_over(
            (share, disk.read_seconds(read_bytes), disk.spread_moving if moving else disk.spread)
            for share, disk in self.parts
        )

    @property
    def moving_latency_seconds(self) -> float:
        """Mean time to the first byte outside of stalls."""
        if self.stalls is None:
            return self.latency_seconds
        if self.parts:
            return sum(share * disk.moving_latency_seconds for share, disk in self.parts)
        return self.latency_seconds * (1.0 - self.stalls.ratio)

    def spread_between_disks(self, read_bytes: float) -> float:
        """Coefficient of variation of the disks' mean times of such a read; 0 for one disk."""
        return _spread_over(
            (share, disk.read_seconds(read_bytes), 0.0) for share, disk in self.parts
        )

    def read_seconds(self, read_bytes: float) -> float:
        """Mean time of one cold read of ``read_bytes`` on the idle disk."""
        return self.latency_seconds + read_bytes / self.bytes_per_second

    def reads_per_second(self, read_bytes: float) -> float:
        """Cold reads of that size that the disk can finish in a second."""
        reads = self.heads / self.read_seconds(read_bytes)
        return min(reads, self.most_bytes_per_second / max(read_bytes, 1.0))


def _spread_over(reads: Iterable[tuple[float, float, float]]) -> float:
    """Coefficient of variation of times that are mixed: share, mean and variation of each kind.

    A few reads of a slow disk among many of a fast one are nearly all of it.
    Source: E[S^2] of a mixture is the sum of the shares times m^2 (1 + cv^2).
    """
    mean = square = 0.0
    for share, seconds, spread in reads:
        mean += share * seconds
        square += share * seconds**2 * (1 + spread**2)
    return math.sqrt(max(0.0, square / mean**2 - 1)) if mean > 0 else 0.0


TYPICAL: dict[DiskClass, ModelDisk] = {
    "hdd": ModelDisk(8 * MILLISECOND, 120 * MEGABYTE, heads=1, spread=0.6, name="hdd"),
    "ssd": ModelDisk(0.12 * MILLISECOND, 500 * MEGABYTE, heads=8, spread=3, name="ssd"),
    "nvme": ModelDisk(0.09 * MILLISECOND, 2000 * MEGABYTE, heads=32, spread=3, name="nvme"),
    "card": ModelDisk(0.6 * MILLISECOND, 80 * MEGABYTE, heads=1, spread=3, name="card"),
    "network": ModelDisk(1 * MILLISECOND, 125 * MEGABYTE, heads=16, spread=3, name="network"),
    "virtual": ModelDisk(0.8 * MILLISECOND, 200 * MEGABYTE, heads=8, spread=3, name="virtual"),
    "memory": ModelDisk(1e-6, 5000 * MEGABYTE, heads=64, spread=0.1, name="memory"),
    "unknown": ModelDisk(1 * MILLISECOND, 150 * MEGABYTE, heads=4, spread=3, name="unknown"),
}
"""Class-typical disks: positioning time and bandwidth of 7200-rpm drives, data-sheet latency of
SATA and NVMe flash, one data-centre round trip; of a card what its class promises (SD Application
Performance A1: 1500 random reads a second, one command at a time; UHS-I). The spread of flash
stands for its rare stalls (the sources, C2: under 100 µs on average, outliers up to a second)."""


_CONTRADICTION = 0.3
"""Share of a read's time by which a stream's bandwidth may miss the measured read."""


def disk_model(disk: Disk) -> ModelDisk:
    """The disk from its measured curve where there is one, else typical for its class."""
    typical = TYPICAL[disk.class_]
    curve = disk.curve
    points = _by_depth(curve.points) if curve else []
    if curve is None or not points:
        return _renamed(typical, disk.name, typical.heads)
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
        # The mean of the plateau: the best of several noisy points is the luckiest.
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
"""A longest read of more than so many times the 99.9th percentile belongs to no tail of the reads'
own times: something else held it up."""
_LEAST_STALL_SECONDS = 0.05
"""Assumed: what is shorter holds up one read on its channel, and others pass it (a retry, a pause
of one die). What stops a whole disk is longer (the sources, C2: up to a second)."""
_LEAST_STALLED = 1e-3
"""Less of the time in stalls is within what a probe can tell."""


def _spread(point: CurvePoint, typical: float) -> float:
    """Coefficient of variation of a read's time, from the quantiles of a measured depth.

    What the mean has more than the quantiles, rare stalls added: reads as long as the longest.
    Without the quantile that only thousands of reads give, nobody has seen what is rare, and the
    class's spread stands.
    """
    moments = _quantile_moments(point)
    if moments is None:
        return typical
    mean, square = moments
    share, longest = _held_up(point, mean)
    mean, square = mean + share * longest, square + share * longest**2
    return math.sqrt(max(0.0, square / mean**2 - 1))


def _stalls(point: CurvePoint) -> Stalls | None:
    """The disk's stalls, from reads one after the other; None where none stands out.

    Of such reads each stall meets one, and their mean is above what the quantiles explain by the
    share of the time that is spent in stalls.
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
    """Share of the reads that took as long as the longest, and how long that is."""
    longest = point.max_seconds or 0.0
    if longest <= (point.p999_seconds or 0.0):
        return 0.0, 0.0
    share = max(0.0, _read_seconds(point) - mean_seconds) / longest
    if point.outliers is not None and point.reads:
        share = min(share, point.outliers / point.reads)
    return share, longest


def _quantile_moments(point: CurvePoint) -> tuple[float, float] | None:
    """Mean of a read's time and of its square, as far as the quantiles tell; None without them.

    Between two quantiles, and past the last, times are taken to fall off exponentially; below
    the median they mirror what is above.
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
    """Times between two quantiles and their shares, falling off exponentially."""
    share = (survive_low - survive_high) / _STEPS
    times = []
    for n in range(_STEPS):
        left = math.log(survive_low / (survive_low - (n + 0.5) * share))
        times.append((low + (high - low) * left / math.log(survive_low / survive_high), share))
    return times


def disk_models(disks: Sequence[Disk], shared: Sequence[SharedCurve]) -> list[ModelDisk]:
    """A model for each disk; one for several that were measured as one."""
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
    """How one read's time splits into a part for its start and one for its bytes.

    Reads of 4 KiB, where they were measured at the same depth, are next to all start. Without
    them the bytes take what they take in a stream. Where a stream contradicts the reads (some
    virtual disks serve one slower than scattered reads) the reads are right.
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
    """Several disks that share the reads: as slow as the mean, as parallel as all.

    They are known as well as the one that is known least. ``shares`` are those of the reads, in
    proportion; evenly without.
    """
    if not disks:
        return TYPICAL["unknown"]
    total = math.fsum(shares)
    part = [share / total for share in shares] if total > 0 else [1 / len(disks)] * len(disks)
    shared = list(zip(part, disks, strict=True))
    return ModelDisk(
        latency_seconds=sum(p * d.latency_seconds for p, d in shared),
        # The mean is of the time that a byte takes, to which a slow disk adds most.
        bytes_per_second=1 / sum(p / d.bytes_per_second for p, d in shared),
        heads=sum(d.heads for d in disks),
        spread=disks[0].spread
        if len(disks) == 1
        else _spread_over((p, d.latency_seconds, d.spread) for p, d in shared),
        name="+".join(d.name for d in disks),
        provenance=min((d.provenance for d in disks), key=_LEAST_SURE.index),
        stalls=_stalls_together([(p, d.stalls) for p, d in shared if d.stalls is not None]),
        parts=tuple(shared) if len(shared) > 1 else (),
    )


def _stalls_together(each: Sequence[tuple[float, Stalls]]) -> Stalls | None:
    """The stalls of several disks, each met by the reads of its own disk alone."""
    ratio = sum(one.ratio for _, one in each)
    if not each or not ratio:
        return None
    return Stalls(
        ratio=min(1.0, ratio),
        seconds=max(one.seconds for _, one in each),
        spread_between=max(one.spread_between for _, one in each),
        share=sum(share * one.ratio for share, one in each) / ratio,
    )


def _renamed(model: ModelDisk, name: str, heads: float) -> ModelDisk:
    return ModelDisk(
        model.latency_seconds,
        model.bytes_per_second,
        heads,
        model.spread,
        name or model.name,
        model.provenance,
    )
