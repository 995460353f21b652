"""``facts``: what is known about a host, and what is not."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from nginx_tune.documents.base import Document, Part, Provenance, Unknown

DiskClass = Literal["hdd", "ssd", "nvme", "network", "virtual", "memory", "unknown"]


class Kernel(Part, frozen=True, kw_only=True):
    """The operating system."""

    system: str | None = None
    """``Linux``, ``FreeBSD``."""
    release: str | None = None
    machine: str | None = None
    features: dict[str, bool | None] = {}
    """``epollexclusive``, ``cachestat``, ``tcp_migrate_req``, ``tls``, … ; null when not known."""
    sysctls: dict[str, str] = {}
    """As the kernel spells them, e.g. ``net.core.somaxconn``."""


class Cpu(Part, frozen=True, kw_only=True):
    """Processors this process (or the running nginx master) may use."""

    online: int | None = None
    """What ``worker_processes auto`` gives with glibc (NGINX: ngx_posix_init.c, ngx_ncpu)."""
    cpuset: int | None = None
    """CPUs in the cpuset and affinity mask."""
    quota_cpus: float | None = None
    """cgroup CPU quota in CPUs; null when there is none."""
    effective: float | None = None
    """The least of the three: CPUs' worth of time that can really be used."""
    model: str | None = None


class Memory(Part, frozen=True, kw_only=True):
    """Memory and how much of it can hold file data."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    cgroup_version: int | None = None
    cgroup_limit_bytes: int | None = None
    """The least limit of the memory cgroup and all its ancestors; null when unlimited."""
    cgroup_limit_path: str | None = None
    """The cgroup that sets that limit."""
    cgroup_usage_bytes: int | None = None
    """Anonymous memory already charged there (not reclaimable page cache)."""
    page_cache_limit_bytes: int | None = None
    """What the page cache can hold for nginx: the lesser of MemAvailable and the limit's rest."""
    page_cache_limit_reason: str = ""


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
    reason: str = ""
    """Why ``leaf_disks`` is empty or doubtful."""


class CurvePoint(Part, frozen=True, kw_only=True):
    """One depth of a disk's random-read curve."""

    depth: int
    reads_per_second: float
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class Curve(Part, frozen=True, kw_only=True):
    """A disk's behaviour under random reads."""

    read_bytes: int
    """Size of one read."""
    points: list[CurvePoint]
    knee_depth: int | None = None
    """Depth past which reads per second gain less than 5 %; null for a plateau from depth 1."""
    sequential_bytes_per_second: float | None = None
    provenance: Provenance = "measured"


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
    curve: Curve | None = None


class Storage(Part, frozen=True, kw_only=True):
    """Paths of interest and the disks under them."""

    paths: list[PathStorage] = []
    disks: list[Disk] = []
    independent_disk_count: int | None = None
    """Groups of paths that share no leaf disk with another group: what per-disk pools stand on.
    Counted over the paths that were asked for, or over all data mounts when none was."""


class Link(Part, frozen=True, kw_only=True):
    """A network link."""

    name: str
    kind: str | None = None
    """``physical``, ``bond``, ``vlan``, ``bridge``, ``veth``, ``loopback``, …"""
    state: str | None = None
    speed_bits_per_second: int | None = None
    speed_reason: str = ""
    """Where the speed comes from, or why it is unknown."""
    mtu: int | None = None
    lower: list[str] = []
    """Links under it: ports of a bond or bridge, the carrier of a VLAN."""


class Network(Part, frozen=True, kw_only=True):
    """Network links."""

    links: list[Link] = []


class Limits(Part, frozen=True, kw_only=True):
    """Descriptor limits an nginx started here would meet."""

    nofile_soft: int | None = None
    nofile_hard: int | None = None
    nr_open: int | None = None
    """``fs.nr_open``: the ceiling for any process's hard limit."""
    file_max: int | None = None


class Worker(Part, frozen=True, kw_only=True):
    """A running nginx worker process."""

    pid: int
    nofile_soft: int | None = None
    nofile_hard: int | None = None
    threads: int | None = None
    cpus_allowed: str | None = None


class Running(Part, frozen=True, kw_only=True):
    """A running nginx master and its workers."""

    pid: int
    binary: str | None = None
    conf_path: str | None = None
    prefix: str | None = None
    workers: list[Worker] = []
    other_masters: list[int] = []
    """Process ids of further nginx masters on this host."""
    other_mount_namespace: bool | None = None
    """True when it sees other mounts than the reader: a container, say."""


class Nginx(Part, frozen=True, kw_only=True):
    """The nginx program."""

    binary: str | None = None
    product: str | None = None
    """``nginx``, ``openresty``, ``angie``, ``freenginx``, ``tengine``, ``nginx-plus``."""
    version: str | None = None
    """The product's own version."""
    nginx_version: str | None = None
    """The nginx version that features are judged by."""
    flags: list[str] = []
    """Configure arguments without their values for compiler options, e.g. ``--with-threads``."""
    conf_path: str | None = None
    prefix: str | None = None
    error_log_path: str | None = None
    pid_path: str | None = None
    running: Running | None = None


class SizeBucket(Part, frozen=True, kw_only=True):
    """Files whose size is in ``(le_bytes/2, le_bytes]``."""

    le_bytes: int
    files: int
    bytes: int


class Sizes(Part, frozen=True, kw_only=True):
    """Distribution of file sizes; quantiles are over files, from power-of-two buckets."""

    mean_bytes: float
    p50_bytes: int
    p90_bytes: int
    p99_bytes: int
    max_bytes: int
    buckets: list[SizeBucket] = []


class Residency(Part, frozen=True, kw_only=True):
    """The share of a dataset's bytes that the page cache holds now."""

    ratio: float | None = None
    method: Literal["cachestat", "mincore", "none"] = "none"
    trusted: bool = False
    reason: str = ""
    """Why it is not trusted or not known."""
    coverage_ratio: float | None = None
    """Share of the bytes that was asked about."""


class Dataset(Part, frozen=True, kw_only=True):
    """A tree of files that nginx serves."""

    path: str
    files: int | None = None
    bytes: int | None = None
    complete: bool = True
    """False when the scan's time budget ran out: files and bytes are then lower bounds."""
    reason: str = ""
    """Why it is not complete, or what was left out."""
    sizes: Sizes | None = None
    residency: Residency = Residency()


class ErrorLog(Part, frozen=True, kw_only=True):
    """What an nginx error log says about thread pools."""

    path: str
    pool_overflow: dict[str, int] = {}
    """Lines ``thread pool "NAME" queue overflow`` by pool name, in the part that was read."""
    bytes_read: int | None = None
    complete: bool = True
    """False when only the last part of a large file was read."""


class Facts(Document, frozen=True, kw_only=True, tag="nginx-tune/facts/1"):
    """What is known about a host."""

    kernel: Kernel = Kernel()
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    storage: Storage = Storage()
    network: Network = Network()
    limits: Limits = Limits()
    nginx: Nginx = Nginx()
    datasets: list[Dataset] = []
    error_logs: list[ErrorLog] = []
    unknown: list[Unknown] = []
