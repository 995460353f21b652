"""The part of ``facts`` about links and what the network stack counts."""

from __future__ import annotations

from nginx_tune.documents.base import Part


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
    interrupt_cpus: int | None = None
    """CPUs that these go to now."""
    missed_packets: int | None = None
    """That came when its receive ring had no room, since it is there."""


class Softnet(Part, frozen=True, kw_only=True):
    """What the CPUs did with received packets since the host came up."""

    processed: int
    dropped: int
    """For a full backlog of a CPU (RPS, veth, loopback)."""
    squeezed: int
    """Times that packets were left when the time or the budget of a turn was up."""


class Tcp(Part, frozen=True, kw_only=True):
    """What TCP did and holds, in the network namespace of nginx."""

    segments_sent: int | None = None
    segments_retransmitted: int | None = None
    time_wait: int | None = None
    """Connections that ended in the last minute and still hold their addresses and ports."""
    memory_pages: int | None = None
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
    listen_overflows: int | None = None
    """Of that namespace since it is there: a full accept queue turned a connection away."""
    listen_drops: int | None = None
    """The same, with every other reason to drop at a listening socket."""
    syn_queue_drops: int | None = None
    """SYNs dropped for a full queue of half-open connections (only without syncookies)."""
    softnet: Softnet | None = None
    tcp: Tcp = Tcp()
    conntrack_entries: int | None = None
    """Connections that the packet filter follows, in the reader's network namespace."""
    conntrack_limit: int | None = None
    """New connections are dropped from here on."""
