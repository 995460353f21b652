"""What disks of a class do: limits for a plateau, and models."""

from __future__ import annotations

from nginx_tune.documents.diskmodel import DiskModel

MIB = 1 << 20

LIMITS: dict[str, tuple[int | None, int | None]] = {
    "hdd": (80 * MIB, 400),
    "ssd": (400 * MIB, 20_000),
    "nvme": (1_500 * MIB, 80_000),
    "memory": (None, None),
}
"""Bytes and reads a second. The hdd row is the sources' four-disk array (A2) seen by one worker
on the development machine; the others are plateaus typical of their class."""

MODELS: dict[str, DiskModel] = {
    # 7200 revolutions a minute: half a turn is 4.2 ms, a mean seek as much again.
    "hdd": DiskModel(
        read_seconds=0.008, spread_ratio=0.5, bytes_per_second=160e6, sequential_seconds=0.0
    ),
    # SATA with its bus and few enough channels for a process to serve; a housekeeping pause of
    # some milliseconds in one read of a thousand.
    "ssd": DiskModel(
        read_seconds=0.0002,
        channels=4,
        bytes_per_second=500e6,
        tail_ratio=0.001,
        tail_seconds=0.004,
    ),
}
"""There is none of an NVMe drive: it answers faster than the way to a model's server is."""

CLASSES = tuple(LIMITS)
