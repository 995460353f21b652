"""Descriptors and local ports that connections take, counted as nginx and the kernel count them.

A connection that nginx closed keeps its local port for 60 s (include/net/tcp.h, TCP_TIMEWAIT_LEN),
so that connections in TIME_WAIT are those that were made in a second times 60.
"""

from __future__ import annotations

from nginx_tune.documents.facts import Facts

DEFAULT_CONNECTIONS = 512
"""nginx's own."""
CONNECTION_BYTES = 432
"""ngx_connection_t and two ngx_event_t, allocated at start (ngx_event_process_init())."""
SLOTS_MEMORY_SHARE = 0.1
RESERVE = 64
"""Kept for logs, listeners, channels and what is nginx's own, also where fewer are known of."""
NEARLY = 0.9
"""Share of the need that is enough: not all connections are busy at once."""
_STEP = 1024
_OWN = 16
"""Standard streams, the first log, epoll, eventfds and the like."""
_CHANNELS = 2
"""For each worker: a worker has a channel to every other, and to those that leave after a reload.
Source: ngx_spawn_process, ngx_pass_open_channel."""
PORTS_SYSCTL = "net.ipv4.ip_local_port_range"
PORTS_FACT = f"kernel.sysctls[{PORTS_SYSCTL}]"
_TIME_WAIT_SECONDS = 60
_NEARLY_ALL_PORTS = 0.9
"""Share of all ports: what is left is hard to find, and more connections come than are counted."""


def limit_for(needed: int) -> int:
    """The limit to write for a need."""
    return -(-needed // _STEP) * _STEP


def suffices(limit: int, needed: int) -> bool:
    """True if a limit that stands is enough, as a lower one would not be."""
    return limit >= NEARLY * needed


def held_at_start(logs: int, sockets: int, workers: int) -> int:
    """Descriptors that a worker is forked with.

    Source: ngx_init_cycle (logs, listeners), ngx_clone_listening: with ``reuseport``, which may be
            decided or stand already, the sockets of all workers are open in each.
    """
    return _OWN + logs + sockets * workers + _CHANNELS * workers


def local_ports(facts: Facts) -> int | None:
    """Local ports towards one address and port; null when not known."""
    numbers = facts.kernel.sysctls.get(PORTS_SYSCTL, "").split()
    match [int(one) for one in numbers if one.isdecimal()]:
        case [low, high] if low <= high:
            return high - low + 1
    return None


def uses_up_ports(facts: Facts, *, servers: int = 1, new_per_second: float = 0.0) -> bool:
    """True if connections that are not kept take next to all ports to so many servers.

    By those in TIME_WAIT now, or by the new ones of a second that are expected.
    """
    ports, waiting = local_ports(facts), facts.network.tcp.time_wait or 0
    expected = max(waiting, new_per_second * _TIME_WAIT_SECONDS)
    return ports is not None and expected >= _NEARLY_ALL_PORTS * ports * servers
