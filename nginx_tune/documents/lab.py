"""``lab``: the emulated host around a scratch nginx, in the words of its TOML file.

    name = "one hard disk behind a gigabit link"
    memory_bytes = 201326592
    topology = "link"
    link = { bits_per_second = 1000000000 }

    [[disks]]
    name = "disk1"
    class_name = "hdd"
    kind = "modelled"
    mount = "/srv/disk1"
    model = { read_seconds = 0.008, channels = 1, bytes_per_second = 160e6 }

    [[data]]
    disk = "disk1"
    files = 256
    file_bytes = 4194304

Without ``model`` a modelled disk has the model of its class (``nginx/lab/disk_models.py``). For
``validate``, ``mount`` defaults to the served root, and ``data`` to files like those of that root.

``labs`` lists the remains and kept images of labs on this machine.
"""

from typing import Literal

from nginx_tune.documents.base import (
    AtMostBytes,
    AtMostCount,
    AtMostNumber,
    AtMostSeconds,
    Document,
    OneOrMore,
    Part,
)


class DiskModel(Part, frozen=True, kw_only=True):
    """A disk as a queue in front of channels, each with one read at a time.

    A read in a channel waits for the bus, is transferred over it and takes ``read_seconds`` more;
    its answer frees the channel. One channel is a hard disk with one head, many are an SSD. The
    formulas are in ``nginx/lab/disk_models.py``.
    """

    read_seconds: AtMostSeconds
    """Time of a read without its transfer: seek and rotation, or the access time of flash."""
    spread_ratio: float = 0.0
    """Uniform spread of a read's time, as a share of ``read_seconds``, which stays the mean."""
    channels: AtMostCount = 1
    """Concurrent reads; others wait."""
    bytes_per_second: AtMostNumber | None = None
    """Bandwidth of the bus of all channels; null if transfers take no time."""
    sequential_seconds: AtMostSeconds | None = None
    """Like ``read_seconds``, for a read that continues the last one without moving the head; null
    for the same time."""
    tail_ratio: float = 0.0
    """Share of reads that take longer than the others, by ``tail_seconds`` on average."""
    tail_seconds: AtMostSeconds = 0.0
    """Mean of the additional, exponentially distributed time of these reads."""
    stall_every_seconds: AtMostSeconds | None = None
    """Mean time between stalls of the whole disk, exponentially distributed; null for no stalls."""
    stall_seconds: AtMostSeconds = 0.0
    """Length of a stall, during which the disk answers nothing."""
    error_ratio: float = 0.0
    """Share of bad regions of 128 KiB: reads that begin there always fail with EIO (the kernel
    retries failed read-ahead)."""


DiskKind = Literal["limited", "modelled"]
TopologyName = Literal["loopback", "link", "proxy"]
Start = Literal["cold", "warm", "full"]
"""Lab data in the page cache at the start of a run: none, all, or random files up to the memory
limit."""


class LabDisk(Part, frozen=True, kw_only=True):
    """An emulated disk: an ext4 image on a loop device.

    ``limited``: reads are limited by bandwidth and rate (a plateau, no knee). ``modelled``: each
    read takes the model's time.
    """

    name: str
    class_name: Literal["hdd", "ssd", "nvme", "memory"] = "hdd"
    mount: str = ""
    """nginx's mount point; empty for the served root."""
    bytes_per_second: AtMostBytes | None = None
    """Limit of a limited disk."""
    reads_per_second: AtMostCount | None = None
    """Limit of a limited disk."""
    kind: DiskKind = "limited"
    model: DiskModel | None = None
    """Model of a modelled disk; null for the model of its class."""
    writable: bool = False
    """True if nginx may write there, such as to a cache directory. Each run then has its own image;
    otherwise all runs with the same data share a read-only one."""
    room_bytes: AtMostBytes = 0
    """Free space of a writable disk for nginx's writes."""
    spare: bool = False
    """True if the disk is not part of the site, so that only settings forced by a variant use
    it."""
    dirty_bytes: AtMostBytes | None = None
    """Limit of a writable disk's dirty data. At the limit writers wait, as at a host's
    ``vm.dirty_bytes``. Null for the machine's own limit, which a short experiment never reaches."""


class LabData(Part, frozen=True, kw_only=True):
    """Files of random bytes on a disk."""

    disk: str
    files: AtMostCount
    file_bytes: AtMostBytes
    prefix: str = ""
    """Prefix of the files' names, to serve files of several disks from one location."""
    directories: AtMostCount = 0
    """Number of directories for the files; 0 for the root alone. A cold ``open()`` takes another
    read for its directory."""
    sizes: dict[str, int] = {}
    """Bytes of each file by name below the mount; if not empty, it replaces ``files`` and
    ``file_bytes``."""


class LabLink(Part, frozen=True, kw_only=True):
    """The link between clients and nginx in the topology ``link``, equal in both directions."""

    bits_per_second: AtMostCount | None = None
    delay_seconds: AtMostSeconds = 0.0
    """One-way delay, which needs the kernel's netem."""


TCP_SETTINGS = ("net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
"""The network sysctls that a lab sets."""


class LabOrigin(Part, frozen=True, kw_only=True):
    """The server behind nginx in the topology ``proxy``, and in ``link`` with ``origin_behind``."""

    delay_seconds: AtMostSeconds = 0.1
    """Delay of each request before the first byte."""
    bytes_per_second: AtMostNumber | None = None
    """Rate of each response; null for no limit."""
    connections: AtMostCount = 256
    """Requests served at once; others wait."""
    files: AtMostCount = 1000
    file_bytes: AtMostBytes = 64 << 10
    """Size of its objects, ``/f00000.bin`` and so on, which need no disk."""


class Lab(Document, frozen=True, kw_only=True, tag="nginx-tune/lab/1"):
    """The emulated host."""

    name: str = "none"
    memory_bytes: AtMostBytes | None = None
    """cgroup limit around nginx; null for none."""
    disks: list[LabDisk] = []
    data: list[LabData] = []
    separate_cpus: bool = True
    """True to separate the CPUs of nginx and the load probe, if there are two."""
    worker_processes: OneOrMore = 1
    cpus: AtMostCount | None = None
    """CPUs of nginx; null for those that ``separate_cpus`` leaves."""
    quota_cpus: AtMostNumber | None = None
    """CPU quota of nginx's cgroup, in CPUs; null for none."""
    cold_names: bool = False
    """True to remount the disks before each run, so that ``open()`` also reads from disk."""
    topology: TopologyName = "loopback"
    """``link``: clients in their own network namespace behind ``link``; ``proxy``: nginx in front
    of ``origin``, with its cache on the first writable disk."""
    link: LabLink = LabLink()
    origin: LabOrigin = LabOrigin()
    origin_behind: bool = False
    """True if nginx is in front of ``origin`` in the topology ``link`` too."""
    tls: bool = False
    """True if clients use TLS, with a new certificate for the run."""
    tcp: dict[str, str] = {}
    """TCP settings of its network by sysctl (``TCP_SETTINGS``); others have kernel defaults."""
    seed: int = 1
    """Seed of the disks' random times and of the data."""


def has_origin(lab: Lab) -> bool:
    """True if nginx is in front of an origin."""
    return lab.topology == "proxy" or (lab.topology == "link" and lab.origin_behind)


class LabRun(Part, frozen=True, kw_only=True):
    """The directory of one lab run, which a mark identifies."""

    directory: str
    mark: str
    pid: int
    state: Literal["running", "dead"]
    bytes: int
    cgroups: list[str] = []
    """Cgroups of the lab that still exist."""


class KeptImage(Part, frozen=True, kw_only=True):
    """A disk image that later runs reuse."""

    path: str
    bytes: int
    in_use: bool
    unused_seconds: float


class Labs(Document, frozen=True, kw_only=True, tag="nginx-tune/labs/1"):
    """The labs and images that ``lab list`` found or ``lab clean`` removed."""

    runs: list[LabRun] = []
    images: list[KeptImage] = []
    image_bytes_most: int = 0
    """Limit of the size of all images."""
    tracing: list[str] = []
    """Tracing instances of dead runs that were removed; only from ``clean``."""
    failures: list[str] = []
    """The files that could not be removed, with the reasons."""
