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

Without ``model`` a modelled disk is that of its class (``nginx/lab/disk_models.py``). For
``validate`` the ``mount`` may be left out (the root that is served), and ``data`` too (the shape of
that root).

``labs`` lists what labs have left or keep on this machine.
"""

from __future__ import annotations

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
    """A disk as a queue: one line in front of some channels, each busy with one read at a time.

    A read that gets a channel waits for the bus, moves its bytes over it and takes
    ``read_seconds`` more; the channel is free again when the read is answered. One channel is a
    hard disk with one head, many are an SSD. The formulas are in ``nginx/lab/disk_models.py``.
    """

    read_seconds: AtMostSeconds
    """Of one read, its transfer apart: seek and rotation, or the flash's own time."""
    spread_ratio: float = 0.0
    """Reads take ``read_seconds`` ± this share of it, evenly spread; the mean stays."""
    channels: AtMostCount = 1
    """Reads under way at once; the others wait their turn."""
    bytes_per_second: AtMostNumber | None = None
    """Of the bus that all channels share; null when transfers cost nothing."""
    sequential_seconds: AtMostSeconds | None = None
    """In place of ``read_seconds`` for a read that goes on where the last one ended: a head that
    need not move. Null: as any other read."""
    tail_ratio: float = 0.0
    """This share of the reads takes longer …"""
    tail_seconds: AtMostSeconds = 0.0
    """… by an exponential time of this mean."""
    stall_every_seconds: AtMostSeconds | None = None
    """Mean time from the end of one stall of the whole disk to the next, exponential; null for
    none."""
    stall_seconds: AtMostSeconds = 0.0
    """How long a stall lasts: nothing is answered."""
    error_ratio: float = 0.0
    """This share of the disk's regions of 128 KiB is bad: reads that begin there fail with EIO,
    again and again (the kernel tries once more what a read-ahead did not get)."""


DiskKind = Literal["limited", "modelled"]
TopologyName = Literal["loopback", "link", "proxy"]
Start = Literal["cold", "warm", "full"]
"""Data of a lab in the page cache when a run starts: none, all, or as much as the memory limit
allows, files taken at random."""


class LabDisk(Part, frozen=True, kw_only=True):
    """One emulated disk: an ext4 image on a loop device.

    ``limited``: reads pass at most at a bandwidth and a rate (a plateau, no knee). ``modelled``:
    each read takes the time that the model says.
    """

    name: str
    class_name: Literal["hdd", "ssd", "nvme", "memory"] = "hdd"
    mount: str = ""
    """Where nginx sees it; empty for the root that is served."""
    bytes_per_second: AtMostBytes | None = None
    """Of a limited disk."""
    reads_per_second: AtMostCount | None = None
    """Of a limited disk."""
    kind: DiskKind = "limited"
    model: DiskModel | None = None
    """Of a modelled disk; null for its class's."""
    writable: bool = False
    """Whether nginx may write there (a cache directory, say): the run then gets an image of its
    own, else it shares a read-only one with every run of the same data."""
    room_bytes: AtMostBytes = 0
    """Of a writable disk: for what nginx writes, beside the data."""
    spare: bool = False
    """True if only settings that a variant forces use it; the site itself lacks it."""
    dirty_bytes: AtMostBytes | None = None
    """Of a writable disk: how much of what was written to it may wait in memory before who writes
    more must wait for the disk, as at the end of any host's ``vm.dirty_bytes``. Null for the
    machine's own limit, which a short experiment never meets."""


class LabData(Part, frozen=True, kw_only=True):
    """Files to fill a disk with; the bytes are random."""

    disk: str
    files: AtMostCount
    file_bytes: AtMostBytes
    prefix: str = ""
    """In front of the files' names: files of several disks that one location serves."""
    directories: AtMostCount = 0
    """Over which the files are spread; 0 puts them all into the root. Each directory is one more
    thing that a cold ``open()`` has to read."""
    sizes: dict[str, int] = {}
    """Files by name, below the mount, with their bytes; in place of ``files`` × ``file_bytes``
    where it is not empty."""


class LabLink(Part, frozen=True, kw_only=True):
    """The link between clients and nginx in the topology ``link``; the same both ways."""

    bits_per_second: AtMostCount | None = None
    delay_seconds: AtMostSeconds = 0.0
    """One way; needs the kernel's netem."""


TCP_SETTINGS = (
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)
"""Sysctls of a network namespace that a lab sets."""


class LabOrigin(Part, frozen=True, kw_only=True):
    """The server behind nginx in the topology ``proxy``, and in ``link`` with ``origin_behind``."""

    delay_seconds: AtMostSeconds = 0.1
    """Of each request, before the first byte."""
    bytes_per_second: AtMostNumber | None = None
    """Of each response; null for as fast as it goes."""
    connections: AtMostCount = 256
    """Served at once; others wait."""
    files: AtMostCount = 1000
    file_bytes: AtMostBytes = 64 << 10
    """Its objects, ``/f00000.bin`` and on; they cost no disk."""


class Lab(Document, frozen=True, kw_only=True, tag="nginx-tune/lab/1"):
    """The emulated host."""

    name: str = "none"
    memory_bytes: AtMostBytes | None = None
    """cgroup limit around nginx; null for none."""
    disks: list[LabDisk] = []
    data: list[LabData] = []
    separate_cpus: bool = True
    """nginx and the load probe on different CPUs where there are two."""
    worker_processes: OneOrMore = 1
    cpus: AtMostCount | None = None
    """CPUs for nginx; null for as many as ``separate_cpus`` leaves."""
    quota_cpus: AtMostNumber | None = None
    """CPUs' worth of time for nginx, by its cgroup; null for no limit."""
    cold_names: bool = False
    """True if the disks are mounted again before each run, so that ``open()`` is cold too."""
    topology: TopologyName = "loopback"
    """``link``: clients in a network namespace of their own, behind ``link``; ``proxy``: nginx
    in front of ``origin``, its cache on the first disk that is writable."""
    link: LabLink = LabLink()
    origin: LabOrigin = LabOrigin()
    origin_behind: bool = False
    """In the topology ``link``: whether nginx stands in front of ``origin``, as in ``proxy``."""
    tls: bool = False
    """Whether clients speak TLS, with a certificate made for the run."""
    tcp: dict[str, str] = {}
    """Settings of TCP in its network, by sysctl (``TCP_SETTINGS``); a stock kernel's where it names
    none."""
    seed: int = 1
    """Of the disks' random times and of the data."""


def has_origin(lab: Lab) -> bool:
    """Tell whether nginx stands in front of an origin."""
    return lab.topology == "proxy" or (lab.topology == "link" and lab.origin_behind)


class LabRun(Part, frozen=True, kw_only=True):
    """A lab's directory with its mark."""

    directory: str
    mark: str
    pid: int
    state: Literal["running", "dead"]
    bytes: int
    cgroups: list[str] = []
    """Those that are still there."""


class KeptImage(Part, frozen=True, kw_only=True):
    """A disk image that later runs find made."""

    path: str
    bytes: int
    in_use: bool
    unused_seconds: float


class Labs(Document, frozen=True, kw_only=True, tag="nginx-tune/labs/1"):
    """What ``lab list`` shows; from ``lab clean``, what was removed."""

    runs: list[LabRun] = []
    images: list[KeptImage] = []
    image_bytes_most: int = 0
    """Bound on all images together."""
    tracing: list[str] = []
    """Tracing instances of dead runs that were removed; only ``clean`` looks for them."""
    failures: list[str] = []
    """What could not be removed, and why."""
