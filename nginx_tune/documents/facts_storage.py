"""Storage in ``facts``: paths, the disks under them with their random reads, and trees of files."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType, field

from nginx_tune.documents.base import (
    VOLATILE,
    Bytes,
    Count,
    MeanBytes,
    Number,
    Part,
    Provenance,
    Ratio,
)


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
    curve: Annotated[Curve, VOLATILE]


class DiskProbe(Part, frozen=True, kw_only=True):
    """What probing the disks under some paths gave."""

    disks: list[str]
    curve: Curve | None = None
    reason: str = ""
    """Why there is no curve."""


SHARED_FOLDERS: Final = frozenset(
    {
        "vboxsf", "vmhgfs", "hgfs", "vmhgfs-fuse", "prl_fs", "9p", "virtiofs", "osxfs", "grpcfuse",
    }
)  # fmt: skip
"""There sendfile serves stale or short files."""


def is_shared_folder(filesystem: str | None) -> bool:
    """Tell whether a file system is one of them, by its own name or as one of FUSE."""
    return filesystem is not None and filesystem.removeprefix("fuse.") in SHARED_FOLDERS


IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems without a disk: what they hold is always resident."""
NETWORK_FILESYSTEMS: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ceph", "afs", "lustre", "gpfs",
        "ocfs2_dlmfs", "glusterfs", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs",
        "fuse.rclone", "fuse.gcsfuse", "fuse.mount-s3", "fuse.goofys", "fuse.juicefs",
        "fuse.ceph-fuse", "fuse.blobfuse2", "fuse.davfs", "fuse.curlftpfs", "fuse.cvmfs2",
        "fuse.seaweedfs",
    }
)  # fmt: skip
"""Their files lie on other hosts: those can replace them, and a server can stall."""

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
    available_bytes: Annotated[int | None, VOLATILE] = None
    """Of these, what an ordinary user can still write."""
    seen_by_nginx: bool = False
    """True when the path was followed through the mounts of an nginx that lives in others than
    the reader (a container)."""
    reason: str = ""
    """Why ``leaf_disks`` is empty or doubtful."""


class Volume(Part, frozen=True, kw_only=True):
    """The volume of a cloud that a disk is. Nothing on the host tells: its operator declares it."""

    type: str | None = None
    """As the cloud spells it: ``gp3``, ``io2``, ``pd-balanced``, ``premium``, …"""
    reads_per_second: Number | None = None
    """Provisioned for it."""
    bytes_per_second: Number | None = None
    """Provisioned for it."""


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
    utilisation_ratio: Annotated[float | None, VOLATILE] = None
    """Share of the time that it was busy, over the second that it was watched."""
    paths: list[str] = []
    """Devices that lead to the same disk (multipath)."""
    volume: Volume | UnsetType = UNSET
    """Declared where it is a cloud's; left out elsewhere."""
    curve: Annotated[Curve | None, VOLATILE] = None


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
    sync_done_ratio: Annotated[float | None, VOLATILE] = None


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


class SizeBucket(Part, frozen=True, kw_only=True):
    """Files whose size is in ``(le_bytes/2, le_bytes]``."""

    le_bytes: Bytes
    files: Count
    bytes: Bytes


class Sizes(Part, frozen=True, kw_only=True):
    """Distribution of file sizes; quantiles are over files.

    They are right to the byte, or to 0.2 % where there are more than 65,536 different sizes.
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
    """Why it is not trusted or not known."""
    coverage_ratio: Number | None = None
    """Share of the bytes that was asked about."""
    error_ratio: Number | None = None
    """The ratio is this close to the truth, 19 times in 20; 0 when every file was asked."""


class Dataset(Part, frozen=True, kw_only=True):
    """A tree of files that nginx serves."""

    path: str
    files: Annotated[Count | None, VOLATILE] = None
    bytes: Annotated[Bytes | None, VOLATILE] = None
    allocated_bytes: Annotated[Bytes | None, VOLATILE] = None
    """What the file system keeps of them: less than ``bytes`` where files are sparse or
    compressed; a hole is read without the disk, and takes page cache all the same."""
    complete: bool = True
    """False when the scan's time budget ran out: files and bytes are then lower bounds."""
    reason: str = ""
    """Why it is not complete, or what was left out."""
    directories: Annotated[Count, VOLATILE] = 0
    """Directories that were read, the first one too; 0 where nobody counted them."""
    sizes: Annotated[Sizes | None, VOLATILE] = None
    sample_ratio: Annotated[Ratio, VOLATILE] = 1.0
    """Share of the files whose size was asked; below 1 ``bytes`` and ``sizes`` are estimates."""
    bytes_error_ratio: Annotated[Number | None, VOLATILE] = 0.0
    """``bytes`` is this close to the truth, relative to itself, 19 times in 20."""
    symlinks: Annotated[Count, VOLATILE] = 0
    """Symbolic links met and not followed."""
    hard_links: Annotated[Count, VOLATILE] = 0
    """Further names of files that were counted already."""
    special_files: Annotated[Count, VOLATILE] = 0
    """Sockets, pipes and devices."""
    other_filesystems: Count = 0
    """Directories on which another file system is mounted; left out."""
    seen_by_nginx: bool = False
    """True when it was walked through the mounts of an nginx in another mount namespace."""
    residency: Annotated[Residency, VOLATILE] = Residency()
