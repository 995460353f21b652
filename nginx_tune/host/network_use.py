"""What the network stack counted and holds: packets by CPU, TCP, followed connections."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.documents.facts import Network, Tcp
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known
from nginx_tune.host.parse_netstat import parse_netstat
from nginx_tune.host.parse_network_use import (
    parse_softnet,
    parse_tcp_mem,
    parse_tcp_pages,
    parse_time_wait,
)
from nginx_tune.host.parse_values import parse_integer

_CONNTRACK = "/proc/sys/net/netfilter/nf_conntrack_"


def add_network_use(host: Host, network: Network, pid: int | None) -> tuple[Network, Gaps]:
    """The network with its use; of TCP that in the network namespace of ``pid``."""
    gaps: Gaps = {}
    process = "self" if pid is None else str(pid)
    softnet = attempt(host.read_text, "/proc/self/net/softnet_stat")
    entries, limit = _read_conntrack(host, process)
    network = replace(
        network,
        softnet=known(
            softnet if isinstance(softnet, Missing) else parse_softnet(softnet), gaps, "/softnet"
        ),
        tcp=_read_tcp(host, process, gaps),
        conntrack_entries=known(entries, gaps, "/conntrack_entries"),
        conntrack_limit=known(limit, gaps, "/conntrack_limit"),
    )
    return network, gaps


def _read_tcp(host: Host, process: str, gaps: Gaps) -> Tcp:
    """Source: Documentation/networking/snmp_counter.rst; net/ipv4/tcp.c, tcp_mem is of the host."""
    text = attempt(host.read_text, f"/proc/{process}/net/snmp")
    counters = {} if isinstance(text, Missing) else parse_netstat(text)
    absent = text if isinstance(text, Missing) else Missing("the kernel does not count it")
    stat = attempt(host.read_text, f"/proc/{process}/net/sockstat")
    held = stat if isinstance(stat, Missing) else parse_tcp_pages(stat)
    waiting = stat if isinstance(stat, Missing) else parse_time_wait(stat)
    sysctl = attempt(host.read_text, "/proc/sys/net/ipv4/tcp_mem")
    levels = sysctl if isinstance(sysctl, Missing) else parse_tcp_mem(sysctl)
    pressure, most = (levels, levels) if isinstance(levels, Missing) else (levels[1], levels[2])
    return Tcp(
        segments_sent=known(counters.get("OutSegs", absent), gaps, "/tcp/segments_sent"),
        segments_retransmitted=known(
            counters.get("RetransSegs", absent), gaps, "/tcp/segments_retransmitted"
        ),
        time_wait=known(waiting, gaps, "/tcp/time_wait"),
        memory_pages=known(held, gaps, "/tcp/memory_pages"),
        memory_pressure_pages=known(pressure, gaps, "/tcp/memory_pressure_pages"),
        memory_limit_pages=known(most, gaps, "/tcp/memory_limit_pages"),
    )


def _read_conntrack(host: Host, process: str) -> tuple[int | Missing, int | Missing]:
    """Entries and limit; both are of the reader's network namespace.

    Source: Documentation/networking/nf_conntrack-sysctl.rst.
    """
    if process != "self":
        ours = attempt(host.read_link, "/proc/self/ns/net")
        theirs = attempt(host.read_link, f"/proc/{process}/ns/net")
        if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
            apart = Missing("nginx lives in another network namespace")
            return apart, apart
    found = []
    for name in ("count", "max"):
        text = attempt(host.read_text, _CONNTRACK + name)
        found.append(
            Missing(f"no connection is followed here ({text.reason})")
            if isinstance(text, Missing)
            else parse_integer(text)
        )
    return found[0], found[1]
