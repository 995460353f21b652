"""``facts``: what is known about a host, and what is not."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from nginx_tune.documents.base import Document, Part, Unknown
from nginx_tune.documents.curve import Curve, SharedCurve
from nginx_tune.documents.listening import Listener

DiskClass = Literal["hdd", "ssd", "nvme", "card", "network", "virtual", "memory", "unknown"]


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
    threads_per_core: int | None = None
    """2 with simultaneous multithreading: the CPUs that are counted share cores."""
    numa_nodes: int | None = None
    auto_workers: int | None = None
    """What ``worker_processes auto`` becomes for this nginx, by the rule of its C library."""
    auto_workers_reason: str = ""
    fitting_workers: int | None = None
    """As many workers as can run at once: ``effective`` rounded up."""


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
    consumers: dict[str, int] = {}
    """Bytes that the page cache cannot have now: ``anonymous``, ``shared`` (tmpfs too),
    ``kernel``, ``huge_pages``."""
    dirty_bytes: int | None = None
    """Written by programs and not yet by the kernel."""
    dirty_background_bytes: int | None = None
    """From here on the kernel writes back in the background."""
    dirty_limit_bytes: int | None = None
    """From here on a program that writes is made to wait."""
    arc_bytes: int | None = None
    """What the ARC of ZFS holds; it is no part of the page cache."""
    arc_limit_bytes: int | None = None


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
    write_cache: bool | None = None
    """Whether the disk holds back writes in a volatile cache (``write back``)."""
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


class Queues(Part, frozen=True, kw_only=True):
    """The packet queues of a link."""

    rx: int
    tx: int
    rps: int = 0
    """Receive queues whose packets the kernel spreads over CPUs (``rps_cpus`` is set)."""
    rss: int | None = None
    """Queues that the device itself spreads packets over (ethtool channels: combined and rx)."""


class Rings(Part, frozen=True, kw_only=True):
    """Packets that a link's driver holds; 0 where it does not tell."""

    rx: int = 0
    rx_max: int = 0
    tx: int = 0
    tx_max: int = 0


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
    driver: str = ""
    queues: Queues | None = None
    rings: Rings | None = None
    offloads: dict[str, bool] = {}
    """``tso``, ``gso``, ``gro``, ``lro``, ``sg``, ``rx_checksum``, ``tx_checksum``."""


class Network(Part, frozen=True, kw_only=True):
    """Network links, and what was dropped before nginx saw it."""

    links: list[Link] = []
    somaxconn: int | None = None
    """Now, in the network namespace of nginx: the ceiling of backlogs yet to come."""
    listen_overflows: int | None = None
    """Of that namespace since it is there: a full accept queue turned a connection away."""
    listen_drops: int | None = None
    """The same, with every other reason to drop at a listening socket."""
    syn_queue_drops: int | None = None
    """SYNs dropped for a full queue of half-open connections (only without syncookies)."""


class Limits(Part, frozen=True, kw_only=True):
    """Descriptor limits an nginx started here would meet."""

    nofile_soft: int | None = None
    nofile_hard: int | None = None
    nr_open: int | None = None
    """``fs.nr_open``: the ceiling for any process's hard limit."""
    file_max: int | None = None
    can_raise: bool | None = None
    """Whether the hard limit can be raised (CAP_SYS_RESOURCE in the first user namespace)."""


class Worker(Part, frozen=True, kw_only=True):
    """A running nginx worker process."""

    pid: int
    nofile_soft: int | None = None
    nofile_hard: int | None = None
    threads: int | None = None
    cpus_allowed: str | None = None
    age_seconds: float | None = None
    user_id: int | None = None
    """Effective."""
    capabilities: list[str] | None = None
    """Effective."""
    limits: dict[str, int] = {}
    """Other soft limits that are set: ``processes``, ``locked_memory_bytes``,
    ``address_space_bytes``, ``core_file_bytes``, ``file_size_bytes``."""


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
    other_network_namespace: bool | None = None
    cpus_allowed: str | None = None
    """Of the master; workers inherit it."""
    age_seconds: float | None = None
    generations: int | None = None
    """Sets of workers that live, each of one start or reload; more than one: connections keep
    old workers alive."""
    reloaded: bool | None = None
    """Whether the workers are of a later reload than the master's start."""
    leaving_workers: int = 0
    """Workers of an earlier generation that are shutting down."""
    modules: list[str] | None = None
    """Dynamic modules that it has loaded, by file."""
    ktls_connections: int | None = None
    """Connections whose sending the kernel encrypts now, in its network namespace."""


class Instance(Part, frozen=True, kw_only=True):
    """One of the nginx masters of a host."""

    pid: int
    binary: str | None = None
    conf_path: str | None = None
    """As on its command line; null when it took the compiled-in one."""
    workers: int = 0
    other_mount_namespace: bool | None = None


class NginxCandidate(Part, frozen=True, kw_only=True):
    """An nginx that could have been meant."""

    binary: str = ""
    """Where its program lies, or the name of one that was looked for; empty when not known."""
    source: Literal["named", "running", "installed"]
    pid: int = 0
    """Of its master; 0 for one that does not run."""
    chosen: bool = False
    """Whether its program is the nginx that is meant."""
    reason: str = ""
    """Why it was chosen or not."""


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
    user: str | None = None
    """Of its configuration, ``user``, and the group if there is one; null when that was not read
    or does not say."""
    pid_path: str | None = None
    libc: str | None = None
    """``glibc`` or ``musl``: they count CPUs each by a rule of their own."""
    libc_version: str | None = None
    openssl: str | None = None
    """The TLS library it runs with, e.g. ``OpenSSL 3.0.15``."""
    openssl_built: str | None = None
    """The one it was built with."""
    running: Running | None = None
    instances: list[Instance] = []
    """Every master that can be seen; ``running`` is the one that was looked at (``--pid``)."""
    choice: str = ""
    """Which one was taken, and why, in a sentence; empty when there is none."""
    candidates: list[NginxCandidate] = []
    """What could have been meant: the chosen one, and why the others were not."""
    may_run: bool = True
    """Whether the program may be run; one of somebody else's or in a container is only read."""


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
    error_ratio: float | None = None
    """The ratio is this close to the truth, 19 times in 20; 0 when every file was asked."""


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
    sample_ratio: float = 1.0
    """Share of the files whose size was asked; below 1 ``bytes`` and ``sizes`` are estimates."""
    bytes_error_ratio: float | None = 0.0
    """``bytes`` is this close to the truth, relative to itself, 19 times in 20."""
    symlinks: int = 0
    """Symbolic links met and not followed."""
    hard_links: int = 0
    """Further names of files that were counted already."""
    special_files: int = 0
    """Sockets, pipes and devices."""
    other_filesystems: int = 0
    """Directories on which another file system is mounted; left out."""
    seen_by_nginx: bool = False
    """True when it was walked through the mounts of an nginx in another mount namespace."""
    residency: Residency = Residency()


class ErrorLog(Part, frozen=True, kw_only=True):
    """What an nginx error log says about what workers ran out of."""

    path: str
    pool_overflow: dict[str, int] = {}
    """Lines ``thread pool "NAME" queue overflow`` by pool name, in the part that was read."""
    connections_exhausted: dict[str, int] = {}
    """Lines ``N worker_connections are not enough`` by N: each is a refused connection."""
    operations_too_slow: int = 0
    """Lines ``thread operation took too long`` (a minute; nginx 1.25.4 and later)."""
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
    listeners: list[Listener] = []
    """Listening TCP addresses of the network namespace of the running nginx, else the reader's."""
    error_logs: list[ErrorLog] = []
    unknown: list[Unknown] = []
