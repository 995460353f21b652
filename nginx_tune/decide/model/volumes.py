"""The performance of cloud volumes, as provisioned or as documented by the cloud provider.

The type of a volume and its provisioned figures are not visible on the host; the operator declares
them (``inspect --volume``). If a disk's model name shows the cloud, the default type of that cloud
is assumed.
"""

import math
from typing import NamedTuple

from nginx_tune.documents.facts import Disk

_MILLISECOND = 1e-3
_MEGABYTE = 1e6
_MEBIBYTE = 1 << 20
_GIBIBYTE = 1 << 30
_LEAST_BYTES = 4096.0
"""Minimum number of bytes a second that may be declared, which is one read."""


class VolumeType(NamedTuple):
    """The documented performance of a volume type, for volumes without provisioned figures."""

    reads: float
    """Reads a second of any volume; each GiB adds ``reads_each``, to at most ``most_reads``."""
    mebibytes: float
    """MiB a second of any volume; each GiB adds ``mebibytes_each``, to at most
    ``most_mebibytes``."""
    reads_each: float = 0.0
    mebibytes_each: float = 0.0
    most_reads: float = math.inf
    most_mebibytes: float = math.inf
    latency_seconds: float = 1 * _MILLISECOND
    least: tuple[float, float] = (1.0, 1.0)
    """Reads and MiB a second of the smallest volume."""

    def of_size(self, size_bytes: float | None) -> tuple[float, float]:
        """Reads and bytes a second of a volume by its size; None counts as the smallest."""
        gibibytes = (size_bytes or 0.0) / _GIBIBYTE
        reads = min(self.most_reads, self.reads + self.reads_each * gibibytes)
        mebibytes = min(self.most_mebibytes, self.mebibytes + self.mebibytes_each * gibibytes)
        return max(self.least[0], reads), max(self.least[1], mebibytes) * _MEBIBYTE


_HALF, _SLOW = 0.5 * _MILLISECOND, 8 * _MILLISECOND
VOLUME_TYPES: dict[str, VolumeType] = {
    # Amazon EBS User Guide, "Amazon EBS volume types": baseline figures, without bursts.
    "gp3": VolumeType(3_000, 125),
    "gp2": VolumeType(0, 0, 3, 0.75, 16_000, 250, least=(100, 128)),
    "io1": VolumeType(3_000, 125, latency_seconds=_HALF),
    "io2": VolumeType(3_000, 125, latency_seconds=_HALF),
    "st1": VolumeType(0, 0, 0.0390625, 0.0390625, 500, 500, _SLOW),
    "sc1": VolumeType(0, 0, 0.01171875, 0.01171875, 250, 192, _SLOW),
    # Google Cloud, "Performance limits of Persistent Disk" (for each GiB, and the most of an
    # instance) and "About Hyperdisk Balanced", section "Baseline performance": the performance at
    # no extra charge (https://cloud.google.com/compute/docs/disks/hd-types/hyperdisk-balanced).
    "pd-standard": VolumeType(0, 0, 0.75, 0.12, 7_500, 1_200, _SLOW),
    "pd-balanced": VolumeType(3_000, 140, 6, 0.28, 80_000, 1_200),
    "pd-ssd": VolumeType(6_000, 240, 30, 0.48, 100_000, 1_200),
    "hyperdisk-balanced": VolumeType(3_000, 140),
    # Microsoft Learn, "Azure managed disk types": 3,000 IOPS and 125 MB/s of any size.
    "premium-v2": VolumeType(3_000, 119, latency_seconds=_HALF),
}
"""Volume types by the cloud's name for them. io1 and io2 always have provisioned figures; if they
are not declared, the defaults of the EC2 console apply."""


class SizeSteps(NamedTuple):
    """The documented performance of a volume type that is sold in fixed sizes."""

    rows: tuple[tuple[int, float, float], ...]
    """For each size: the most GiB, reads a second, megabytes a second."""
    latency_seconds: float = 1 * _MILLISECOND

    def of_size(self, size_bytes: float | None) -> tuple[float, float]:
        """Reads and bytes a second of a volume by its size; None counts as the smallest."""
        gibibytes = (size_bytes or 0.0) / _GIBIBYTE
        row = next((row for row in self.rows if gibibytes <= row[0]), self.rows[-1])
        return row[1], row[2] * _MEGABYTE


SOLD_IN_SIZES: dict[str, SizeSteps] = {
    # Microsoft Learn, "Azure managed disk types": P4 to P80, E1 to E80, S4 to S80, without bursts.
    "premium": SizeSteps(
        (
            (32, 120, 25), (64, 240, 50), (128, 500, 100), (256, 1_100, 125), (512, 2_300, 150),
            (1 << 10, 5_000, 200), (4 << 10, 7_500, 250), (8 << 10, 16_000, 500),
            (16 << 10, 18_000, 750), (32 << 10, 20_000, 900),
        )
    ),
    "standard-ssd": SizeSteps(
        ((4 << 10, 500, 100), (8 << 10, 2_000, 400), (16 << 10, 4_000, 600), (32 << 10, 6_000, 750))
    ),
    "standard-hdd": SizeSteps(
        ((4 << 10, 500, 60), (8 << 10, 1_300, 300), (32 << 10, 2_000, 500)), _SLOW
    ),
}  # fmt: skip

VOLUME_NAMES = (*VOLUME_TYPES, *SOLD_IN_SIZES)
"""Every known type of volume."""

_SOLD_AS: tuple[tuple[str, str], ...] = (
    ("Amazon Elastic Block Store", "gp3"),
    ("nvme_card-pd", "pd-balanced"),
    ("PersistentDisk", "pd-balanced"),
    ("MSFT NVMe Accelerator", "premium"),
    ("Msft Virtual Disk", "premium"),
)
"""(part of a disk's model name that shows its cloud, default volume type of that cloud)."""


def volume_name(disk: Disk) -> str | None:
    """The type of a cloud volume: as declared, else the default type of its cloud.

    None for anything but a volume of a known cloud.
    """
    if disk.class_ not in ("network", "virtual", "unknown"):
        return None
    if disk.volume and disk.volume.type:
        return disk.volume.type.lower().replace("_", "-")
    model = (disk.model or "").lower()
    return next((name for part, name in _SOLD_AS if part.lower() in model), None)


def volume_bounds(disk: Disk) -> tuple[float, float, float] | None:
    """Reads a second, bytes a second and seconds to the first byte of a cloud volume.

    Provisioned figures take precedence over those of the type. None for other disks.
    """
    declared, name = disk.volume or None, volume_name(disk)
    kind = VOLUME_TYPES.get(name or "") or SOLD_IN_SIZES.get(name or "")
    reads, size = math.inf, math.inf
    if kind is not None:
        reads, size = kind.of_size(disk.size_bytes)
    elif declared is None:
        return None
    if declared is not None:
        reads = max(1.0, declared.reads_per_second or reads)
        size = max(_LEAST_BYTES, declared.bytes_per_second or size)
    return reads, size, (kind or VOLUME_TYPES["gp3"]).latency_seconds


def is_known(disk: Disk) -> bool:
    """True if the volume's figures are declared, or follow from its declared type."""
    declared = disk.volume
    if not declared:
        return False
    figures = declared.reads_per_second or declared.bytes_per_second
    return bool(figures) or declared.type not in (None, "io1", "io2")
