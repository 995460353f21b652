"""The machine in ``facts``: kernel, processors, memory, limits, links and listening sockets."""

from __future__ import annotations

from typing import Annotated, Literal

from nginx_tune.documents.base import VOLATILE, Part


class Kernel(Part, frozen=True, kw_only=True):
    """The operating system."""

    system: str | None = None
    """``Linux``, ``FreeBSD``."""
    release: str | None = None
    machine: str | None = None
    features: dict[str, bool | None] = {}
    """``epollexclusive``, ``cachestat``, ``tcp_migrate_req``, ``tls``, … ; null when not known."""
    sysctls: dict[str, str] = {}
    """As the kernel spells them, e.g. ``net.core.somaxconn``. Those of a network namespace are of
    that of the running nginx, and left out where it has one of its own that could not be asked."""


_FEW_PERIODS = 100
"""Of a tenth of a second each, as the kernel has them by default: fewer say little."""


class Throttled(Part, frozen=True, kw_only=True):
    """What a CPU quota held back since its control group is there."""

    directory: str
    """Of the group and those above it, the one that was held back longest."""
    periods: Annotated[int, VOLATILE]
    """In which something of the group wanted to run."""
    throttled_periods: Annotated[int, VOLATILE]
    throttled_seconds: Annotated[float, VOLATILE]
    """Of all its CPUs, added."""

    @property
    def ratio(self) -> float | None:
        """Share of the periods in which it was held back; null of fewer than ten seconds."""
        return self.throttled_periods / self.periods if self.periods >= _FEW_PERIODS else None


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
    throttled: Throttled | None = None
    """By the quota of the control group of the running nginx, else of the reader."""
    steal_ratio: Annotated[float | None, VOLATILE] = None
    """Share of all CPU time since the host came up in which a hypervisor ran others instead."""
    frequency_driver: str | None = None
    """``intel_pstate``, ``acpi-cpufreq``, …; guests mostly have none."""
    governors: list[str] = []
    """Of the CPUs' frequencies, each once, sorted."""
    isolated: int | None = None
    """Of the CPUs in ``cpuset`` those between which the scheduler moves nothing (isolcpus)."""
    auto_workers: int | None = None
    """What ``worker_processes auto`` becomes for this nginx, by the rule of its C library."""
    auto_workers_reason: str = ""
    fitting_workers: int | None = None
    """As many workers as can run at once: ``effective`` rounded up."""


class Swap(Part, frozen=True, kw_only=True):
    """A place that memory is moved to."""

    path: str
    kind: Literal["zram", "partition", "file"]
    """``zram`` compresses into memory: slow, but no disk is waited for."""
    size_bytes: int
    used_bytes: Annotated[int, VOLATILE]


class Memory(Part, frozen=True, kw_only=True):
    """Memory and how much of it can hold file data."""

    total_bytes: int | None = None
    available_bytes: Annotated[int | None, VOLATILE] = None
    cgroup_version: int | None = None
    cgroup_limit_bytes: int | None = None
    """The least limit of the memory cgroup and all its ancestors; null when unlimited."""
    cgroup_limit_path: str | None = None
    """The cgroup that sets that limit."""
    cgroup_usage_bytes: Annotated[int | None, VOLATILE] = None
    """Anonymous memory already charged there (not reclaimable page cache)."""
    page_cache_limit_bytes: Annotated[int | None, VOLATILE] = None
    """What the page cache can hold for nginx: the lesser of MemAvailable and the limit's rest."""
    page_cache_limit_reason: str = ""
    names_apart: bool = False
    """Whether inodes and directory entries of what is served are charged elsewhere, so that they
    take nothing of that limit."""
    consumers: Annotated[dict[str, int], VOLATILE] = {}
    """Bytes that the page cache cannot have now: ``anonymous``, ``shared`` (tmpfs too),
    ``kernel``, ``huge_pages``."""
    dirty_bytes: Annotated[int | None, VOLATILE] = None
    """Written by programs and not yet by the kernel."""
    dirty_background_bytes: Annotated[int | None, VOLATILE] = None
    """From here on the kernel writes back in the background."""
    dirty_limit_bytes: Annotated[int | None, VOLATILE] = None
    """From here on a program that writes is made to wait."""
    arc_bytes: Annotated[int | None, VOLATILE] = None
    """What the ARC of ZFS holds; it is no part of the page cache."""
    arc_limit_bytes: int | None = None
    swaps: list[Swap] = []
    transparent_huge_pages: str | None = None
    """``always``, ``madvise`` or ``never``."""
    huge_page_defrag: str | None = None
    """When a fault that could have a huge page waits until memory was moved for it: ``always``,
    ``madvise``, ``defer``, …"""


class Limits(Part, frozen=True, kw_only=True):
    """Descriptor limits an nginx started here would meet."""

    nofile_of: Literal["nginx", "unit", "reader"] | None = None
    """Whose ``nofile_soft`` and ``nofile_hard`` are: the running nginx's, those of the systemd unit
    that starts it, or those of whoever read the facts, which say little about nginx; null is not
    known."""
    nofile_soft: int | None = None
    nofile_hard: int | None = None
    nr_open: int | None = None
    """``fs.nr_open``: the ceiling for any process's hard limit."""
    file_max: int | None = None
    can_raise: bool | None = None
    """Whether the hard limit can be raised (CAP_SYS_RESOURCE in the first user namespace)."""


class Queues(Part, frozen=True, kw_only=True):
    """The packet queues of a link."""

    rx: int
    tx: int
    rps: int = 0
    """Receive queues whose packets the kernel spreads over CPUs (``rps_cpus`` is set)."""
    rss: int | None = None
    """Queues that the device itself spreads packets over (ethtool channels: combined and rx)."""
    xps: int = 0
    """Send queues that some CPUs send by (``xps_cpus`` is set)."""


class Rings(Part, frozen=True, kw_only=True):
    """Received packets that a link's driver holds; 0 where it does not tell."""

    rx: int = 0
    rx_max: int = 0


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
    """``tso``, ``gso``, ``gro``, ``sg``."""
    qdisc: str | None = None
    """The queue discipline at its root: ``mq``, ``fq_codel``, ``noqueue``, ``tbf``, …"""
    numa_node: int | None = None
    """That its bus hangs on; null on a host of one node."""
    interrupts: int | None = None
    """Interrupts that it has."""
    interrupt_cpus: Annotated[int | None, VOLATILE] = None
    """CPUs that these go to now."""
    missed_packets: Annotated[int | None, VOLATILE] = None
    """That came when its receive ring had no room, since it is there."""


class Softnet(Part, frozen=True, kw_only=True):
    """What the CPUs did with received packets since the host came up."""

    processed: Annotated[int, VOLATILE]
    dropped: Annotated[int, VOLATILE]
    """For a full backlog of a CPU (RPS, veth, loopback)."""
    squeezed: Annotated[int, VOLATILE]
    """Times that packets were left when the time or the budget of a turn was up."""


class Tcp(Part, frozen=True, kw_only=True):
    """What TCP did and holds, in the network namespace of nginx."""

    segments_sent: Annotated[int | None, VOLATILE] = None
    segments_retransmitted: Annotated[int | None, VOLATILE] = None
    time_wait: Annotated[int | None, VOLATILE] = None
    """Connections that ended in the last minute and still hold their addresses and ports."""
    memory_pages: Annotated[int | None, VOLATILE] = None
    """Pages that the buffers of all sockets of the kernel hold."""
    memory_pressure_pages: int | None = None
    """From here on (``tcp_mem``) buffers are kept small."""
    memory_limit_pages: int | None = None
    """From here on segments are dropped."""


class Network(Part, frozen=True, kw_only=True):
    """Network links, and what was dropped before nginx saw it."""

    links: list[Link] = []
    somaxconn: int | None = None
    """Now, in the network namespace of nginx: the ceiling of backlogs yet to come."""
    listen_overflows: Annotated[int | None, VOLATILE] = None
    """Of that namespace since it is there: a full accept queue turned a connection away."""
    listen_drops: Annotated[int | None, VOLATILE] = None
    """The same, with every other reason to drop at a listening socket."""
    syn_queue_drops: Annotated[int | None, VOLATILE] = None
    """SYNs dropped for a full queue of half-open connections (only without syncookies)."""
    softnet: Softnet | None = None
    tcp: Tcp = Tcp()
    conntrack_entries: Annotated[int | None, VOLATILE] = None
    """Connections that the packet filter follows, in the reader's network namespace."""
    conntrack_limit: int | None = None
    """New connections are dropped from here on."""


class ListenSocket(Part, frozen=True, kw_only=True):
    """One listening TCP socket, as sock_diag gives it."""

    address: str
    port: int
    inode: int = 0
    backlog: int | None = None
    """The effective one: what listen(2) was given, cut to somaxconn as it was at that time."""
    accept_queue: int | None = None
    """Connections that wait to be accepted."""
    drops: int | None = None
    """Connections dropped at this socket since it listens."""


class Listening(Part, frozen=True, kw_only=True):
    """The listening sockets of one network namespace, and what bounds them."""

    sockets: list[ListenSocket] = []
    somaxconn: int | None = None
    """Of that namespace, now."""
    sysctls: dict[str, str] | None = None
    """Those that this namespace has for itself, as read; null where nobody asked, and of the
    reader's own."""


class Listener(Part, frozen=True, kw_only=True):
    """An address that is listened on, with all its sockets (``reuseport`` has one per worker)."""

    address: str
    port: int
    sockets: int = 1
    backlog: int | None = None
    """Effective, the least of its sockets."""
    accept_queue: Annotated[int | None, VOLATILE] = None
    """Connections that wait to be accepted, over all its sockets."""
    longest_accept_queue: Annotated[int | None, VOLATILE] = None
    drops: Annotated[int | None, VOLATILE] = None
    """Connections dropped since it listens, over all its sockets."""
    of_nginx: bool | None = None
    """Whether the running nginx holds it."""
