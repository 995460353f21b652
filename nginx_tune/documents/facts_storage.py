"""The part of ``facts`` about paths and the disks under them."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from nginx_tune.documents.base import Part
from nginx_tune.documents.curve import Curve, SharedCurve

DiskClass = Literal["hdd", "ssd", "nvme", "card", "network", "virtual", "memory", "unknown"]


class PathStorage(Part, frozen=True, kw_only=True):
    """Where a path's bytes live."""

    path: str
    mount_point: str | None = None
    filesystem: str | None = None
    source: str | None = None
    device: str | None = None
    """``MAJOR:MINOR`` of the file system."""
    stack: list[str] = []
    """Block devices from the file system down to the leaves, each once."""
    leaf_disks: list[str] = []
    read_ahead_bytes: int | None = None
    """Of the device that the file system is on."""
    size_bytes: int | None = None
    """Of the file system (statvfs), which is seldom as large as the disks under it: a partition, a
    volume, a RAID, a quota that its file system tells."""
    available_bytes: int | None = None
    """Of these, what an ordinary user can still write."""
    seen_by_nginx: bool = False
    """True when the path was followed through the mounts of an nginx that lives in others than
    the reader (a container)."""
    reason: str = ""
    """Why ``leaf_disks`` is empty or doubtful."""


class Disk(Part, frozen=True, kw_only=True):
    """A leaf disk."""

    name: str
    class_: DiskClass = field(name="class", default="unknown")
    class_reason: str = ""
    size_bytes: int | None = None
    model: str | None = None
    rotational: bool | None = None
    """What the kernel prints; never proof (virtio always says 1)."""
    scheduler: str | None = None
    nr_requests: int | None = None
    hardware_queues: int | None = None
    depth: int | None = None
    """nr_requests × hardware queues."""
    device_queue_depth: int | None = None
    """Commands that the device itself takes at once (SCSI and SATA only)."""
    read_ahead_bytes: int | None = None
    numa_node: int | None = None
    """That the disk's bus hangs on; null on a host of one node."""
    utilisation_ratio: float | None = None
    """Share of the time that it was busy, over the second that it was watched."""
    paths: list[str] = []
    """Devices that lead to the same disk (multipath)."""
    curve: Curve | None = None


class Layer(Part, frozen=True, kw_only=True):
    """A block device that stands on others."""

    name: str
    kind: str
    """``partition``, ``loop``, ``md``, ``bcache``, or a device-mapper target: ``linear``,
    ``striped``, ``thin``, ``crypt``, ``multipath``, …; ``dm`` when the target is not known."""
    lower: list[str] = []
    detail: str = ""
    """RAID level, volume name, cache mode, …"""


class Array(Part, frozen=True, kw_only=True):
    """An md array."""

    name: str
    level: str | None = None
    members: int | None = None
    degraded: int | None = None
    """Members that are missing or have failed."""
    sync_action: str | None = None
    """``idle``, ``resync``, ``recover``, ``check``, ``repair``, ``reshape``, ``frozen``."""
    sync_done_ratio: float | None = None


class Storage(Part, frozen=True, kw_only=True):
    """Paths of interest and the disks under them."""

    paths: list[PathStorage] = []
    disks: list[Disk] = []
    layers: list[Layer] = []
    """Every device of a stack that is no leaf, by name."""
    arrays: list[Array] = []
    shared_curves: list[SharedCurve] = []
    """Curves of leaf disks that were measured as one: an array, say."""
    independent_disk_count: int | None = None
    """Groups of paths that share no leaf disk with another group: what per-disk pools stand on.
    Counted over the paths that were asked for, or over all data mounts when none was."""
