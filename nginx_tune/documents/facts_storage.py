"""Storage in ``facts``: paths, the disks under them and their read curves, and trees of files."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType, field

from nginx_tune.documents.base import (
    VOLATILE,
    Bytes,
    Count,
    MeanBytes,
    Natural,
    Number,
    Part,
    Provenance,
    Ratio,
)


class CurvePoint(Part, frozen=True, kw_only=True):
    """One depth of a disk's random-read curve."""

    depth: Natural
    reads_per_second: float
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    p999_seconds: float | None = None
    """Quantiles with fewer than ten reads beyond them are null."""
    max_seconds: float | None = None
    reads: Natural | None = None
    """Number of reads measured for the point."""
    deviation_ratio: float | None = None
    """Standard deviation of the rate over parts of the measured time, relative to the rate."""
    error_ratio: float | None = None
    """Standard error of the rate, relative to the rate."""
    outliers: Natural | None = None
    """Reads that took more than ten times the median."""


class Sweep(Part, frozen=True, kw_only=True):
    """Random reads of one size at growing depths."""

    read_bytes: Natural
    """Size of one read."""
    points: list[CurvePoint]
    knee_depth: Natural | None = None
    """Depth beyond which reads per second grow by less than 5 % or p99 doubles; null if the plateau
    begins at depth 1, or the rate still grows at the last depth."""
    knee_reason: str = ""
    """The reason for the knee, or for its absence."""
    plateau_reads_per_second: float | None = None
    """The highest rate at any depth; null if the rate still grows at the last depth."""


class Curve(Sweep, frozen=True, kw_only=True):
    """A disk's random-read curve for the read size of nginx."""

    small_reads: Sweep | None = None
    """The sweep with reads of 4 KiB."""
    sequential_bytes_per_second: float | None = None
    """Rate of a single sequential stream."""
    target: str = ""
    """Device or file that was read."""
    notes: list[str] = []
    """Caveats about the numbers."""
    provenance: Provenance = "measured"


class SharedCurve(Part, frozen=True, kw_only=True):
    """The curve of several leaf disks that serve the same files and were measured as one."""

    disks: list[str]
    curve: Annotated[Curve, VOLATILE]


class DiskProbe(Part, frozen=True, kw_only=True):
    """Result of probing the disks under some paths."""

    disks: list[str]
    curve: Curve | None = None
    reason: str = ""
    """The reason for a missing curve."""


SHARED_FOLDERS: Final = frozenset(
    {
        "vboxsf", "vmhgfs", "hgfs", "vmhgfs-fuse", "prl_fs", "9p", "virtiofs", "osxfs", "grpcfuse",
    }
)  # fmt: skip
"""File systems on which sendfile returns stale or truncated files."""


def is_shared_folder(filesystem: str | None) -> bool:
    """True for a shared folder, by its own name or as a FUSE type."""
    return filesystem is not None and filesystem.removeprefix("fuse.") in SHARED_FOLDERS


IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems in memory, always resident."""
NETWORK_FILESYSTEMS: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ceph", "afs", "lustre", "gpfs",
        "ocfs2_dlmfs", "glusterfs", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs",
        "fuse.rclone", "fuse.gcsfuse", "fuse.mount-s3", "fuse.goofys", "fuse.juicefs",
        "fuse.ceph-fuse", "fuse.blobfuse2", "fuse.davfs", "fuse.curlftpfs", "fuse.cvmfs2",
        "fuse.seaweedfs",
    }
)  # fmt: skip
"""File systems on other hosts, which can replace files and may stall."""

DiskClass = Literal["hdd", "ssd", "nvme", "card", "network", "virtual", "memory", "unknown"]


class PathStorage(Part, frozen=True, kw_only=True):
    """Storage of a path."""

    path: str
    mount_point: str | None = None
    filesystem: str | None = None
    source: str | None = None
    device: str | None = None
    """``MAJOR:MINOR`` of the file system."""
    stack: list[str] = []
    """Block devices from the file system down to the leaves, each once."""
    leaf_disks: list[str] = []
    read_ahead_bytes: Natural | None = None
    """Read-ahead of the file system's device."""
    size_bytes: Natural | None = None
    """Size of the file system (statvfs), which often differs from the size of its disks (a
    partition, a volume, a RAID, a quota)."""
    available_bytes: Annotated[Natural | None, VOLATILE] = None
    """Bytes that an ordinary user can still use."""
    seen_by_nginx: bool = False
    """True if the path was resolved in the mount namespace of an nginx, such as in a container."""
    reason: str = ""
    """The reason why ``leaf_disks`` is empty or doubtful."""


class Volume(Part, frozen=True, kw_only=True):
    """The cloud volume behind a disk, as declared by the operator."""

    type: str | None = None
    """The provider's name: ``gp3``, ``io2``, ``pd-balanced``, ``premium``, …"""
    reads_per_second: Number | None = None
    """Provisioned reads per second."""
    bytes_per_second: Number | None = None
    """Provisioned bytes per second."""


class Disk(Part, frozen=True, kw_only=True):
    """A leaf disk."""

    name: str
    class_: DiskClass = field(name="class", default="unknown")
    class_reason: str = ""
    size_bytes: Natural | None = None
    model: str | None = None
    rotational: bool | None = None
    """The kernel's value, which proves nothing (virtio disks always have 1)."""
    scheduler: str | None = None
    nr_requests: Natural | None = None
    hardware_queues: Natural | None = None
    depth: Natural | None = None
    """nr_requests × hardware queues."""
    device_queue_depth: Natural | None = None
    """Commands in the device's own queue (SCSI and SATA only)."""
    read_ahead_bytes: Natural | None = None
    numa_node: int | None = None
    """NUMA node of the disk's bus; null on a host with one node."""
    utilisation_ratio: Annotated[float | None, VOLATILE] = None
    """Share of busy time, over the time for which it was observed."""
    paths: list[str] = []
    """Devices of the same disk (multipath)."""
    volume: Volume | UnsetType = UNSET
    """The declared cloud volume; omitted for other disks."""
    curve: Annotated[Curve | None, VOLATILE] = None


class Layer(Part, frozen=True, kw_only=True):
    """A block device on top of others."""

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
    members: Natural | None = None
    degraded: Natural | None = None
    """Number of missing or failed members."""
    sync_action: str | None = None
    """``idle``, ``resync``, ``recover``, ``check``, ``repair``, ``reshape``, ``frozen``."""
    sync_done_ratio: Annotated[float | None, VOLATILE] = None


class Storage(Part, frozen=True, kw_only=True):
    """Paths of interest and the disks under them."""

    paths: list[PathStorage] = []
    disks: list[Disk] = []
    layers: list[Layer] = []
    """Every device of a stack except leaf disks, by name."""
    arrays: list[Array] = []
    shared_curves: list[SharedCurve] = []
    """Curves of leaf disks that were measured together, such as an array."""
    independent_disk_count: Natural | None = None
    """Number of groups of paths that share no leaf disk with another group, which is the number of
    possible per-disk pools. The groups are made of the requested paths or, if none were requested,
    of all data mounts."""


class SizeBucket(Part, frozen=True, kw_only=True):
    """Files whose size is in ``(le_bytes/2, le_bytes]``."""

    le_bytes: Bytes
    files: Count
    bytes: Bytes


class Sizes(Part, frozen=True, kw_only=True):
    """Distribution of file sizes; quantiles are over files.

    They are exact to the byte, or to 0.2 % with more than 65,536 different sizes.
    """

    mean_bytes: MeanBytes
    p50_bytes: Bytes
    p90_bytes: Bytes
    p99_bytes: Bytes
    max_bytes: Bytes
    buckets: list[SizeBucket] = []


class Residency(Part, frozen=True, kw_only=True):
    """The share of a dataset's bytes that the page cache holds now."""

    ratio: Ratio | None = None
    method: Literal["cachestat", "mincore", "none"] = "none"
    trusted: bool = False
    reason: str = ""
    """The reason why the share is not reliable or not known."""
    coverage_ratio: Number | None = None
    """Share of the bytes that was examined."""
    error_ratio: Number | None = None
    """95 % error of the ratio; 0 when every file was examined."""


class Dataset(Part, frozen=True, kw_only=True):
    """A tree of files that nginx serves."""

    path: str
    files: Annotated[Count | None, VOLATILE] = None
    bytes: Annotated[Bytes | None, VOLATILE] = None
    allocated_bytes: Annotated[Bytes | None, VOLATILE] = None
    """Bytes allocated on disk: less than ``bytes`` if files are sparse or compressed. Holes are not
    read from the disk, but take page cache too."""
    complete: bool = True
    """False if the scan's time budget ran out; files and bytes are then lower bounds."""
    reason: str = ""
    """The reason why the scan is not complete, or the parts that were left out."""
    directories: Annotated[Count, VOLATILE] = 0
    """Directories that were read, including the first; 0 if they were not counted."""
    sizes: Annotated[Sizes | None, VOLATILE] = None
    sample_ratio: Annotated[Ratio, VOLATILE] = 1.0
    """Share of files whose size was read; if it is below 1, ``bytes`` and ``sizes`` are
    estimates."""
    bytes_error_ratio: Annotated[Number | None, VOLATILE] = 0.0
    """95 % error of ``bytes``, relative to ``bytes``."""
    symlinks: Annotated[Count, VOLATILE] = 0
    """Symbolic links, which were not followed."""
    hard_links: Annotated[Count, VOLATILE] = 0
    """Additional names of files that were counted already."""
    special_files: Annotated[Count, VOLATILE] = 0
    """Sockets, pipes and devices."""
    other_filesystems: Count = 0
    """Directories with another file system mounted, which are omitted."""
    seen_by_nginx: bool = False
    """True if the dataset was scanned in the mount namespace of an nginx."""
    residency: Annotated[Residency, VOLATILE] = Residency()
