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
