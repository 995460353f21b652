"""What one cold read costs: from a measured curve, or typical for the class of disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import Disk, DiskClass

MILLISECOND = 1e-3
MEGABYTE = 1e6


@dataclass(frozen=True)
class DiskModel:
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

    def read_seconds(self, read_bytes: float) -> float:
        """Mean time of one cold read of ``read_bytes`` on the idle disk."""
        return self.latency_seconds + read_bytes / self.bytes_per_second

    def reads_per_second(self, read_bytes: float) -> float:
        """Cold reads of that size that the disk can finish in a second."""
        return self.heads / self.read_seconds(read_bytes)


TYPICAL: dict[DiskClass, DiskModel] = {
    "hdd": DiskModel(8 * MILLISECOND, 120 * MEGABYTE, heads=1, spread=0.6, name="hdd"),
    "ssd": DiskModel(0.12 * MILLISECOND, 500 * MEGABYTE, heads=8, spread=3, name="ssd"),
    "nvme": DiskModel(0.09 * MILLISECOND, 2000 * MEGABYTE, heads=32, spread=3, name="nvme"),
    "network": DiskModel(1 * MILLISECOND, 125 * MEGABYTE, heads=16, spread=3, name="network"),
    "virtual": DiskModel(0.8 * MILLISECOND, 200 * MEGABYTE, heads=8, spread=3, name="virtual"),
    "memory": DiskModel(1e-6, 5000 * MEGABYTE, heads=64, spread=0.1, name="memory"),
    "unknown": DiskModel(1 * MILLISECOND, 150 * MEGABYTE, heads=4, spread=3, name="unknown"),
}
"""Class-typical disks: positioning time and bandwidth of 7200-rpm drives, data-sheet latency of
SATA and NVMe flash, one data-centre round trip. The spread of flash stands for its rare stalls
(SOURCES C2: under 100 µs on average, outliers up to a second)."""


def disk_model(disk: Disk) -> DiskModel:
    """The disk from its measured curve where there is one, else typical for its class."""
    typical = TYPICAL[disk.class_]
    curve = disk.curve
    points = sorted(curve.points, key=lambda p: p.depth) if curve else []
    points = [p for p in points if p.reads_per_second > 0]
    if curve is None or not points:
        return _renamed(typical, disk.name, typical.heads)
    first = points[0]
    best = max(p.reads_per_second for p in points)
    single = max(first.reads_per_second / first.depth, 1e-3)
    bandwidth = curve.sequential_bytes_per_second or max(
        typical.bytes_per_second, best * curve.read_bytes
    )
    latency = max(1 / single - curve.read_bytes / bandwidth, 1e-6)
    return DiskModel(
        latency_seconds=latency,
        bytes_per_second=bandwidth,
        heads=max(1.0, best / single),
        spread=typical.spread,
        name=disk.name,
        provenance=curve.provenance,
    )


def disks_together(disks: Sequence[DiskModel]) -> DiskModel:
    """Several disks that share the reads evenly: as slow as the mean, as parallel as all."""
    if not disks:
        return TYPICAL["unknown"]
    count = len(disks)
    measured = all(d.provenance == "measured" for d in disks)
    return DiskModel(
        latency_seconds=sum(d.latency_seconds for d in disks) / count,
        bytes_per_second=sum(d.bytes_per_second for d in disks) / count,
        heads=sum(d.heads for d in disks),
        spread=max(d.spread for d in disks),
        name="+".join(d.name for d in disks),
        provenance="measured" if measured else disks[0].provenance if count == 1 else "assumed",
    )


def _renamed(model: DiskModel, name: str, heads: float) -> DiskModel:
    return DiskModel(
        model.latency_seconds,
        model.bytes_per_second,
        heads,
        model.spread,
        name or model.name,
        model.provenance,
    )
