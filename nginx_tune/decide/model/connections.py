"""Descriptors and local ports of connections, counted as nginx and the kernel count them.

A connection that nginx closed keeps its local port for 60 s (include/net/tcp.h, TCP_TIMEWAIT_LEN),
so the number in TIME_WAIT is the new connections a second times 60.
"""

import re

from nginx_tune.documents.facts import Facts

DEFAULT_CONNECTIONS = 512
"""nginx's default of ``worker_connections``."""
CONNECTION_BYTES = 432
"""Bytes of a slot: ngx_connection_t and two ngx_event_t, allocated by ngx_event_process_init()."""
SLOTS_MEMORY_SHARE = 0.1
RESERVE = 64
"""Minimum number of descriptors for logs, listeners, channels and nginx itself."""
NEARLY = 0.9
"""Share of the needed descriptors that is enough, since not all connections are busy at once."""
_STEP = 1024
_OWN = 16
"""Descriptors of the standard streams, the first log, epoll, eventfds and the like."""
_CHANNELS = 2
"""Channels for each worker: every worker has one to each current and each previous worker.
Source: ngx_spawn_process, ngx_pass_open_channel."""
PORTS_SYSCTL = "net.ipv4.ip_local_port_range"
PORTS_FACT = f"kernel.sysctls[{PORTS_SYSCTL}]"
_TIME_WAIT_SECONDS = 60
_NEARLY_ALL_PORTS = 0.9
"""Share of all ports that counts as nearly all. The last free ports are hard to find, and a count
misses some connections."""


def limit_for(needed: int) -> int:
    """The descriptor limit for ``needed`` descriptors, rounded up."""
    return -(-needed // _STEP) * _STEP


def suffices(limit: int, needed: int) -> bool:
    """True if a descriptor limit is enough for ``needed`` descriptors."""
    return limit >= NEARLY * needed


def held_at_start(logs: int, sockets: int, workers: int) -> int:
    """Descriptors that are open in a worker when it is forked.

    With ``reuseport``, ``sockets`` includes those of all workers, which are open in each of them.
    Source: ngx_init_cycle (logs, listeners), ngx_clone_listening.
    """
    return _OWN + logs + sockets * workers + _CHANNELS * workers


def local_ports(facts: Facts) -> int | None:
    """Number of local ports for connections to one address and port; None if not known."""
    words = facts.kernel.sysctls.get(PORTS_SYSCTL, "").split()
    match [int(word) for word in words if re.fullmatch(r"[0-9]{1,9}", word)]:
        case [low, high] if low <= high:
            return high - low + 1
    return None


def uses_up_ports(facts: Facts, *, servers: int = 1, new_per_second: float = 0.0) -> bool:
    """True if short connections use nearly all local ports to ``servers`` addresses.

    The used ports are the ports in TIME_WAIT now, or the ports expected from the rate of new
    connections, whichever is more.
    """
    ports, waiting = local_ports(facts), facts.network.tcp.time_wait or 0
    expected = max(waiting, new_per_second * _TIME_WAIT_SECONDS)
    return ports is not None and expected >= _NEARLY_ALL_PORTS * ports * servers
