"""Local ports towards servers of this host: what shows that they run out."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.audit.context import Context
from nginx_tune.audit.error_logs import lines_seen
from nginx_tune.conf.upstreams import host_of, is_loopback
from nginx_tune.decide.model.local_ports import FACT, SYSCTL, uses_up_ports
from nginx_tune.documents.decisions import Evidence

_LINES = frozenset({"ports-used-up", "ports-used-up-ipv6"})
_HTTP_PORT = "80"


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
    if uses_up_ports(context.facts, servers=len(wanted)):
        waiting = context.facts.network.tcp.time_wait
        found += [
            Evidence(fact="network.tcp.time_wait", value=waiting, unit="connections"),
            Evidence(fact=FACT, value=context.facts.kernel.sysctls[SYSCTL]),
        ]
    return found


def _port(address: str) -> str:
    tail = address.rpartition(":")[2]
    return tail if tail.isdecimal() and tail != address else _HTTP_PORT
