"""Local ports towards one address and port, and whether new connections use them up.

A connection that nginx closed keeps its port for 60 s (include/net/tcp.h, TCP_TIMEWAIT_LEN), so
that connections in TIME_WAIT are those that were made in a second times 60.
"""

from __future__ import annotations

from nginx_tune.documents.facts import Facts

SYSCTL = "net.ipv4.ip_local_port_range"
FACT = f"kernel.sysctls[{SYSCTL}]"
_TIME_WAIT_SECONDS = 60
_ENOUGH = 0.9
"""Of all ports: what is left is hard to find, and more connections come than are counted."""


def local_ports(facts: Facts) -> int | None:
    """How many there are; null when not known."""
    numbers = facts.kernel.sysctls.get(SYSCTL, "").split()
    match [int(one) for one in numbers if one.isdecimal()]:
        case [low, high] if low <= high:
            return high - low + 1
    return None


def uses_up_ports(facts: Facts, *, servers: int = 1, new_per_second: float = 0.0) -> bool:
    """Whether connections that are not kept take next to all ports to so many servers.

    By those in TIME_WAIT now, or by the new ones of a second that are expected.
    """
    ports, waiting = local_ports(facts), facts.network.tcp.time_wait or 0
    expected = max(waiting, new_per_second * _TIME_WAIT_SECONDS)
    return ports is not None and expected >= _ENOUGH * ports * servers
