"""The volumes of clouds: what each gives, as provisioned for it or as its cloud documents.

A host cannot tell the type of a volume, nor what was bought for it: its operator declares that
(``inspect --volume``). Some models tell the cloud; the type is then what it makes by default.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nginx_tune.documents.facts import Disk

_MILLISECOND = 1e-3
_MEGABYTE = 1e6
_MEBIBYTE = 1 << 20
_GIBIBYTE = 1 << 30
_LEAST_BYTES = 4096.0
"""A second, of whatever is declared: one read."""


class VolumeType(NamedTuple):
    """The documented performance of a cloud's type of volume that has no figures of its own."""

    reads: float
    """Reads a second of any volume, and ``reads_each`` more for a GiB, up to ``most_reads``."""
    mebibytes: float
    """MiB a second, the same way."""
    reads_each: float = 0.0
    mebibytes_each: float = 0.0
    most_reads: float = math.inf
    most_mebibytes: float = math.inf
    latency_seconds: float = 1 * _MILLISECOND
    least: tuple[float, float] = (1.0, 1.0)
    """Reads and MiB a second of the smallest."""

    def of_size(self, size_bytes: float | None) -> tuple[float, float]:
        """Reads and bytes a second of a volume of that size; of a small one where nobody knows."""
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
    # Google Cloud, "Performance limits of Persistent Disk" (a GiB's share, and most of an instance)
    # and "About Hyperdisk Balanced": what a volume has at no extra charge.
    "pd-standard": VolumeType(0, 0, 0.75, 0.12, 7_500, 1_200, _SLOW),
    "pd-balanced": VolumeType(3_000, 140, 6, 0.28, 80_000, 1_200),
    "pd-ssd": VolumeType(6_000, 240, 30, 0.48, 100_000, 1_200),
    "hyperdisk-balanced": VolumeType(3_000, 140),
    # Microsoft Learn, "Azure managed disk types": 3,000 IOPS and 125 MB/s of any size.
    "premium-v2": VolumeType(3_000, 119, latency_seconds=_HALF),
}
"""Volumes by the name that their cloud gives them. io1 and io2 have what was bought: without that
what the console of EC2 proposes."""


class SizeSteps(NamedTuple):
    """The documented performance of a cloud's type of volume that is sold in sizes."""

    rows: tuple[tuple[int, float, float], ...]
    """Most GiB, reads and megabytes a second."""
    latency_seconds: float = 1 * _MILLISECOND

    def of_size(self, size_bytes: float | None) -> tuple[float, float]:
        """Reads and bytes a second of a volume of that size; of the smallest where nobody knows."""
        gibibytes = (size_bytes or 0.0) / _GIBIBYTE
        row = next((one for one in self.rows if gibibytes <= one[0]), self.rows[-1])
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
"""Every type of volume that is known here."""

_SOLD_AS: tuple[tuple[str, str], ...] = (
    ("Amazon Elastic Block Store", "gp3"),
    ("nvme_card-pd", "pd-balanced"),
    ("PersistentDisk", "pd-balanced"),
    ("MSFT NVMe Accelerator", "premium"),
    ("Msft Virtual Disk", "premium"),
)
"""Parts of models that tell the cloud and not the type: what it makes unless asked for another."""


def volume_name(disk: Disk) -> str | None:
    """The type of a cloud's volume: as declared, else what its cloud makes unless asked for more.

    None for what is no volume of a cloud that is known here.
    """
    if disk.class_ not in ("network", "virtual", "unknown"):
        return None
    if disk.volume and disk.volume.type:
        return disk.volume.type.lower().replace("_", "-")
    model = (disk.model or "").lower()
    return next((name for part, name in _SOLD_AS if part.lower() in model), None)


def volume_bounds(disk: Disk) -> tuple[float, float, float] | None:
    """Reads a second, bytes a second and seconds to the first byte of a volume of a cloud.

    What was provisioned goes before what its type has. None where nothing tells of a volume.
    """
    said, name = disk.volume or None, volume_name(disk)
    kind = VOLUME_TYPES.get(name or "") or SOLD_IN_SIZES.get(name or "")
    reads, size = math.inf, math.inf
    if kind is not None:
        reads, size = kind.of_size(disk.size_bytes)
    elif said is None:
        return None
    if said is not None:
        reads = max(1.0, said.reads_per_second or reads)
        size = max(_LEAST_BYTES, said.bytes_per_second or size)
    return reads, size, (kind or VOLUME_TYPES["gp3"]).latency_seconds


def is_known(disk: Disk) -> bool:
    """True if somebody declared what the volume gives, or a type that gives all the same."""
    said = disk.volume or None
    figures = said is not None and (said.reads_per_second or said.bytes_per_second)
    return bool(figures) or (said is not None and said.type not in (None, "io1", "io2"))
