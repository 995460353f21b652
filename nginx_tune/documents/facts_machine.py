"""The machine in ``facts``: kernel, processors, memory, limits, links and listening sockets."""

import re
from typing import Annotated, Literal

from nginx_tune.documents.base import VOLATILE, Bytes, Natural, Number, Part


class Kernel(Part, frozen=True, kw_only=True):
    """The operating system."""

    system: str | None = None
    """``Linux``, ``FreeBSD``."""
    release: str | None = None
    machine: str | None = None
    features: dict[str, bool | None] = {}
    """``epollexclusive``, ``cachestat``, ``tcp_migrate_req``, ``tls``, … ; null when not known."""
    sysctls: dict[str, str] = {}
    """Values by name, e.g. ``net.core.somaxconn``. Network sysctls are from the network namespace
    of the running nginx, and omitted if the namespace could not be read."""

    def is_linux_before(self, major: int, minor: int) -> bool:
        """True for a Linux that is known to be older than a release."""
        match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", self.release or "")
        return (
            self.system == "Linux"
            and match is not None
            and (int(match[1]), int(match[2])) < (major, minor)
        )


_FEW_PERIODS = 100
"""Minimum number of periods for which the share of throttled periods is computed. By default a
period is a tenth of a second."""


class Throttled(Part, frozen=True, kw_only=True):
    """Throttling by a CPU quota since its cgroup was created."""

    directory: str
    """The cgroup that was throttled longest: the process's own or one above it."""
    periods: Annotated[Natural, VOLATILE]
    """Periods in which the group had something to run."""
    throttled_periods: Annotated[Natural, VOLATILE]
    throttled_seconds: Annotated[Number, VOLATILE]
    """Throttled time, summed over all its CPUs."""

    @property
    def ratio(self) -> float | None:
        """Share of throttled periods; null for fewer than ten seconds."""
        return self.throttled_periods / self.periods if self.periods >= _FEW_PERIODS else None


class Cpu(Part, frozen=True, kw_only=True):
    """Processors that the running nginx master, or else nginx-tune, may use."""

    online: Natural | None = None
    """Online CPUs: glibc's ``worker_processes auto`` (ngx_posix_init.c, ngx_ncpu)."""
    cpuset: Natural | None = None
    """CPUs in the cpuset and affinity mask."""
    quota_cpus: Number | None = None
    """cgroup CPU quota in CPUs; null when there is none."""
    effective: Number | None = None
    """The lowest of the three: the CPU time that can be used, in CPUs."""
    model: str | None = None
    threads_per_core: Natural | None = None
    """2 with simultaneous multithreading, where CPUs share cores."""
    numa_nodes: Natural | None = None
    throttled: Throttled | None = None
    """Throttling in the cgroup of the running nginx, or else of nginx-tune."""
    steal_ratio: Annotated[float | None, VOLATILE] = None
    """Share of all CPU time since boot that the hypervisor gave to others."""
    frequency_driver: str | None = None
    """``intel_pstate``, ``acpi-cpufreq``, …; guests mostly have none."""
    governors: list[str] = []
    """The distinct frequency governors of the CPUs, sorted."""
    isolated: Natural | None = None
    """CPUs in ``cpuset`` that the scheduler does not balance (isolcpus)."""
    auto_workers: Natural | None = None
    """The value of ``worker_processes auto`` for this nginx and its C library."""
    auto_workers_reason: str = ""
    fitting_workers: Natural | None = None
    """Workers that can run at once: ``effective`` rounded up."""


class Swap(Part, frozen=True, kw_only=True):
    """A swap device or file."""

    path: str
    kind: Literal["zram", "partition", "file"]
    """``zram``: compression into memory, which is slow but needs no disk."""
    size_bytes: Natural
    used_bytes: Annotated[Natural, VOLATILE]


class Memory(Part, frozen=True, kw_only=True):
    """Memory, and the part of it that can hold file data."""

    total_bytes: Bytes | None = None
    available_bytes: Annotated[Bytes | None, VOLATILE] = None
    cgroup_version: Natural | None = None
    cgroup_limit_bytes: Natural | None = None
    """The lowest limit of the memory cgroup and its ancestors; null when unlimited."""
    cgroup_limit_path: str | None = None
    """The cgroup that sets that limit."""
    cgroup_usage_bytes: Annotated[Natural | None, VOLATILE] = None
    """Anonymous memory already charged to that cgroup, without reclaimable page cache."""
    page_cache_limit_bytes: Annotated[Natural | None, VOLATILE] = None
    """Page cache for nginx: the lower of MemAvailable and what the limit leaves."""
    page_cache_limit_reason: str = ""
    names_apart: bool = False
    """True if inodes and directory entries of served files are charged elsewhere and do not count
    towards the limit."""
    consumers: Annotated[dict[str, Natural], VOLATILE] = {}
    """Bytes that the page cache cannot use now: ``anonymous``, ``shared`` (with tmpfs), ``kernel``,
    ``huge_pages``."""
    dirty_bytes: Annotated[Natural | None, VOLATILE] = None
    """Dirty memory: written by programs, and not yet written back to disk."""
    dirty_background_bytes: Annotated[Natural | None, VOLATILE] = None
    """Dirty memory from which the kernel writes back in the background."""
    dirty_limit_bytes: Annotated[Natural | None, VOLATILE] = None
    """Dirty memory from which a writing program must wait."""
    arc_bytes: Annotated[Natural | None, VOLATILE] = None
    """Size of the ZFS ARC, which is not part of the page cache."""
    arc_limit_bytes: Natural | None = None
    swaps: list[Swap] = []
    transparent_huge_pages: str | None = None
    """``always``, ``madvise`` or ``never``."""
    huge_page_defrag: str | None = None
    """Compaction on a page fault for a huge page: ``always``, ``madvise``, ``defer``, …"""


class Limits(Part, frozen=True, kw_only=True):
    """Descriptor limits of an nginx that is started on this host."""

    nofile_of: Literal["nginx", "unit", "reader"] | None = None
    """The source of ``nofile_soft`` and ``nofile_hard``: the running nginx, the systemd unit that
    starts it, or nginx-tune (``reader``), whose own limits say little about nginx; null when not
    known."""
    nofile_soft: Natural | None = None
    nofile_hard: Natural | None = None
    nr_open: Natural | None = None
    """``fs.nr_open``: the largest hard limit of any process."""
    file_max: Natural | None = None
    can_raise: bool | None = None
    """True if the hard limit can be raised (CAP_SYS_RESOURCE in the initial user namespace)."""

    @property
    def is_hard_final(self) -> bool:
        """True if it is known that nginx cannot set a limit above ``nofile_hard``."""
        return self.can_raise is False and self.nofile_of != "reader"


class Queues(Part, frozen=True, kw_only=True):
    """The packet queues of a link."""

    rx: Natural
    tx: Natural
    rps: Natural = 0
    """Receive queues whose packets the kernel spreads over CPUs (``rps_cpus`` is set)."""
    rss: Natural | None = None
    """Receive queues of the device (ethtool channels: combined and rx)."""
    xps: Natural = 0
    """Send queues assigned to CPUs (``xps_cpus`` is set)."""


class Rings(Part, frozen=True, kw_only=True):
    """Sizes of a link's receive ring, in packets; 0 where the driver does not report it."""

    rx: Natural = 0
    rx_max: Natural = 0


DECLARED = "declared"
"""The ``speed_reason`` of a link whose speed was declared."""


class Link(Part, frozen=True, kw_only=True):
    """A network link."""

    name: str
    kind: str | None = None
    """``physical``, ``bond``, ``vlan``, ``bridge``, ``veth``, ``loopback``, …"""
    state: str | None = None
    speed_bits_per_second: Natural | None = None
    speed_reason: str = ""
    """The source of the speed, or the reason why it is unknown."""
    mtu: Natural | None = None
    lower: list[str] = []
    """Links below it: ports of a bond or bridge, the carrier of a VLAN."""
    driver: str = ""
    queues: Queues | None = None
    rings: Rings | None = None
    offloads: dict[str, bool] = {}
    """``tso``, ``gso``, ``gro``, ``sg``."""
    qdisc: str | None = None
    """Root queue discipline: ``mq``, ``fq_codel``, ``noqueue``, ``tbf``, …"""
    numa_node: int | None = None
    """NUMA node of its bus; null on a host with one node."""
    interrupts: Natural | None = None
    """Number of its interrupts."""
    interrupt_cpus: Annotated[Natural | None, VOLATILE] = None
    """CPUs that handle its interrupts now."""
    missed_packets: Annotated[Natural | None, VOLATILE] = None
    """Packets that found its receive ring full, since the link was created."""


class Softnet(Part, frozen=True, kw_only=True):
    """Handling of received packets by the CPUs since boot."""

    processed: Annotated[Natural, VOLATILE]
    dropped: Annotated[Natural, VOLATILE]
    """Packets dropped because a CPU's backlog was full (RPS, veth, loopback)."""
    squeezed: Annotated[Natural, VOLATILE]
    """Turns that ended with packets left, since their time or budget was used up."""


class Tcp(Part, frozen=True, kw_only=True):
    """TCP counters and memory in the network namespace of nginx."""

    segments_sent: Annotated[Natural | None, VOLATILE] = None
    segments_retransmitted: Annotated[Natural | None, VOLATILE] = None
    time_wait: Annotated[Natural | None, VOLATILE] = None
    """Connections in TIME_WAIT, which still occupy their addresses and ports."""
    memory_pages: Annotated[Natural | None, VOLATILE] = None
    """Pages in the buffers of all sockets."""
    memory_pressure_pages: Natural | None = None
    """Pages from which buffers are kept small (``tcp_mem``)."""
    memory_limit_pages: Natural | None = None
    """Pages from which segments are dropped."""


class Network(Part, frozen=True, kw_only=True):
    """Network links, and drops before nginx."""

    links: list[Link] = []
    somaxconn: Natural | None = None
    """Current value in nginx's network namespace, which limits the backlog of new listen calls."""
    listen_overflows: Annotated[Natural | None, VOLATILE] = None
    """Connections that found an accept queue full, since the namespace was created."""
    listen_drops: Annotated[Natural | None, VOLATILE] = None
    """All drops at listening sockets, since the namespace was created."""
    syn_queue_drops: Annotated[Natural | None, VOLATILE] = None
    """SYNs dropped since the queue of half-open connections was full (only without syncookies)."""
    softnet: Softnet | None = None
    tcp: Tcp = Tcp()
    conntrack_entries: Annotated[Natural | None, VOLATILE] = None
    """Connections tracked by the packet filter, in the network namespace of nginx-tune."""
    conntrack_limit: Natural | None = None
    """Number of tracked connections from which new ones are dropped."""


class ListenSocket(Part, frozen=True, kw_only=True):
    """One listening TCP socket, as sock_diag reports it."""

    address: str
    port: Natural
    inode: Natural = 0
    backlog: Natural | None = None
    """Effective backlog: the argument of listen(2), capped at somaxconn at that time."""
    accept_queue: Natural | None = None
    """Connections waiting to be accepted."""
    drops: Natural | None = None
    """Connections dropped at this socket since the start of its listening."""


class Listening(Part, frozen=True, kw_only=True):
    """The listening sockets of one network namespace, and their limits."""

    sockets: list[ListenSocket] = []
    somaxconn: Natural | None = None
    """Current value in the namespace."""
    sysctls: dict[str, str] | None = None
    """Sysctls of this namespace; null if they were not read, or if the namespace is nginx-tune's
    own."""


class Listener(Part, frozen=True, kw_only=True):
    """A listening address with all its sockets (with ``reuseport`` one per worker)."""

    address: str
    port: Natural
    sockets: Natural = 1
    backlog: Natural | None = None
    """The smallest effective backlog of its sockets."""
    accept_queue: Annotated[Natural | None, VOLATILE] = None
    """Connections that wait on any of its sockets to be accepted."""
    longest_accept_queue: Annotated[Natural | None, VOLATILE] = None
    drops: Annotated[Natural | None, VOLATILE] = None
    """Connections dropped on all its sockets since they began to listen."""
    of_nginx: bool | None = None
    """True if the address belongs to the running nginx."""
