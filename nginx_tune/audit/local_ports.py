"""Local ports towards an upstream: how many there are, and whether they run out.

A connection that nginx closed keeps its port for 60 s (include/net/tcp.h, TCP_TIMEWAIT_LEN), so
that connections in TIME_WAIT are the new ones of a second times 60.
"""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.audit.context import Context
from nginx_tune.audit.error_logs import lines_seen
from nginx_tune.conf.quantities import parse_count
from nginx_tune.conf.upstreams import host_of, is_loopback
from nginx_tune.documents.decisions import Evidence

SYSCTL = "net.ipv4.ip_local_port_range"
FACT = f"kernel.sysctls[{SYSCTL}]"
_ENOUGH = 0.9
"""Of all ports: what is left is hard to find, and more connections come than are counted."""
_LINES = frozenset({"ports-used-up", "ports-used-up-ipv6"})
_HTTP_PORT = "80"


def local_ports(context: Context) -> int | None:
    """How many local ports there are to one address and port; null when not known."""
    numbers = [parse_count(part) for part in context.facts.kernel.sysctls.get(SYSCTL, "").split()]
    match numbers:
        case [int() as low, int() as high] if low <= high:
            return high - low + 1
    return None


def lacking_ports(context: Context, servers: Sequence[str]) -> list[Evidence]:
    """What shows that connections to servers of this host use up the ports; empty for nothing."""
    wanted = {_port(one) for one in servers}
    found = []
    for log in context.facts.error_logs:
        lines = sum(
            one.lines
            for one in log.messages
            if one.id in _LINES and is_loopback(host_of(one.name)) and _port(one.name) in wanted
        )
        if lines:
            found.append(lines_seen(log, "'Cannot assign requested address'", lines))
    ports, waiting = local_ports(context), context.facts.network.tcp.time_wait
    if ports is not None and waiting is not None and waiting >= _ENOUGH * ports * len(wanted):
        found += [
            Evidence(fact="network.tcp.time_wait", value=waiting, unit="connections"),
            Evidence(fact=FACT, value=context.facts.kernel.sysctls[SYSCTL]),
        ]
    return found


def _port(address: str) -> str:
    tail = address.rpartition(":")[2]
    return tail if tail.isdecimal() and tail != address else _HTTP_PORT
