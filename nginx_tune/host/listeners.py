"""Who listens where, with what backlog, and what was dropped there."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.documents.facts import Network
from nginx_tune.documents.listening import Listener, Listening, ListenSocket
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known
from nginx_tune.host.parse_listeners import parse_listeners, parse_socket_link
from nginx_tune.host.parse_netstat import parse_netstat

MOST_DESCRIPTORS = 4096
"""Of a master that are looked at; it holds its listening sockets among the first."""


def ask_listening(host: Host, pid: int | None) -> Listening | Missing:
    """The listening sockets of a process's network namespace (None: the reader's).

    An ordinary user may not enter the namespace of root's nginx, and some kernels have no
    sock_diag; ``/proc/PID/net/tcp`` tells the addresses and queues all the same, but no backlog
    and no drops.
    """
    asked = attempt(host.listening, pid)
    if not isinstance(asked, Missing):
        return asked
    sockets = []
    for name in ("tcp", "tcp6"):
        text = attempt(host.read_text, f"/proc/{pid or 'self'}/net/{name}")
        if isinstance(text, Missing):
            if name == "tcp":
                return asked
            continue  # a kernel without IPv6
        sockets += [
            ListenSocket(
                address=str(one.address),
                port=one.port,
                inode=one.inode,
                accept_queue=one.accept_queue,
            )
            for one in parse_listeners(text, byteorder="little")
        ]
    return Listening(sockets=sorted(sockets, key=lambda one: (one.port, one.address, one.inode)))


def read_listeners(
    host: Host, asked: Listening | Missing, pid: int | None
) -> tuple[list[Listener], Gaps]:
    """The addresses listened on, from what ``ask_listening`` answered."""
    if isinstance(asked, Missing):
        return [], {"": asked.reason}
    held = Missing("no nginx is running") if pid is None else _read_held(host, pid)
    gaps: Gaps = {}
    listeners: list[Listener] = []
    for (address, port), sockets in _by_address(asked).items():
        listener, reasons = _listener(address, port, sockets, held)
        for field, reason in reasons.items():
            gaps[f"/{len(listeners)}{field}"] = reason
        listeners.append(listener)
    return listeners, gaps


def add_counters(
    host: Host, network: Network, asked: Listening | Missing, pid: int | None
) -> tuple[Network, Gaps]:
    """The network with what the kernel counted at the listening sockets of ``pid``'s namespace.

    Source: Documentation/networking/snmp_counter.rst.
    """
    gaps: Gaps = {}
    text = attempt(host.read_text, f"/proc/{pid or 'self'}/net/netstat")
    counters = {} if isinstance(text, Missing) else parse_netstat(text)
    absent = text if isinstance(text, Missing) else Missing("the kernel does not count it")
    somaxconn = asked if isinstance(asked, Missing) else asked.somaxconn
    network = replace(
        network,
        somaxconn=known(
            Missing("not told") if somaxconn is None else somaxconn, gaps, "/somaxconn"
        ),
        listen_overflows=known(counters.get("ListenOverflows", absent), gaps, "/listen_overflows"),
        listen_drops=known(counters.get("ListenDrops", absent), gaps, "/listen_drops"),
        syn_queue_drops=known(counters.get("TCPReqQFullDrop", absent), gaps, "/syn_queue_drops"),
    )
    return network, gaps


def _by_address(listening: Listening) -> dict[tuple[str, int], list[ListenSocket]]:
    found: dict[tuple[str, int], list[ListenSocket]] = {}
    for socket in listening.sockets:
        found.setdefault((socket.address, socket.port), []).append(socket)
    return found


def _listener(
    address: str, port: int, sockets: list[ListenSocket], held: frozenset[int] | Missing
) -> tuple[Listener, Gaps]:
    gaps: Gaps = {}
    untold = Missing("sock_diag does not tell, or could not be asked")
    backlogs = [one.backlog for one in sockets if one.backlog is not None]
    queues = [one.accept_queue for one in sockets if one.accept_queue is not None]
    drops = [one.drops for one in sockets if one.drops is not None]
    ours: bool | Missing = (
        held if isinstance(held, Missing) else any(one.inode in held for one in sockets)
    )
    listener = Listener(
        address=address,
        port=port,
        sockets=len(sockets),
        backlog=known(min(backlogs, default=untold), gaps, "/backlog"),
        accept_queue=known(sum(queues) if queues else untold, gaps, "/accept_queue"),
        longest_accept_queue=known(max(queues, default=untold), gaps, "/longest_accept_queue"),
        drops=known(sum(drops) if drops else untold, gaps, "/drops"),
        of_nginx=known(ours, gaps, "/of_nginx"),
    )
    return listener, gaps


def _read_held(host: Host, pid: int) -> frozenset[int] | Missing:
    """Inodes of the sockets that a process holds."""
    names = attempt(host.list_dir, f"/proc/{pid}/fd")
    if isinstance(names, Missing):
        return names
    numbers = sorted(int(name) for name in names if name.isdecimal() and len(name) < 10)  # noqa: PLR2004
    inodes = set()
    for number in numbers[:MOST_DESCRIPTORS]:
        target = attempt(host.read_link, f"/proc/{pid}/fd/{number}")
        if isinstance(target, str) and (inode := parse_socket_link(target)) is not None:
            inodes.add(inode)
    return frozenset(inodes)
