"""The network: links with credible speeds, use of the network, and listening sockets.

Drivers of virtual links report fixed speeds, which count as unknown.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from nginx_tune.documents.facts import Link, Network, Queues, Tcp
from nginx_tune.documents.facts_machine import Listener, Listening, ListenSocket
from nginx_tune.errors import UsageError
from nginx_tune.host.cpu import Interrupts, read_interrupts, read_numa_node
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, mapped, read_parsed
from nginx_tune.host.parse_network import (
    has_cpus,
    parse_listeners,
    parse_netstat,
    parse_socket_link,
    parse_softnet,
    parse_tcp_mem,
    parse_tcp_pages,
    parse_time_wait,
)
from nginx_tune.host.parse_proc import parse_integer

_FAKES = {
    "veth": "a veth pair reports a made-up 10 Gbit/s",
    "tun": "a tun device reports a made-up speed",
    "tap": "a tap device reports a made-up speed",
    "loopback": "the loopback has no speed",
    "dummy": "a dummy has no speed",
    "ifb": "an ifb has no speed",
}
"""The reasons to ignore a reported speed, by kind. Source: drivers/net/veth.c, drivers/net/tun.c:
fixed ethtool answers."""

_NOMINAL_DRIVERS = {"vmxnet3": "vmxnet3 reports a nominal speed, not the host's uplink"}

MOST_QUEUES = 256
"""Maximum number of queues of each direction to read."""


def read_network(host: Host, declared: Mapping[str, int]) -> tuple[Network, Gaps]:
    """All links, with the declared speeds (bits per second by name).

    Errors: UsageError for a declared link that does not exist.
    """
    asked = attempt(host.links)
    if isinstance(asked, Missing):
        links = [Link(name=name) for name in sorted(declared)]
    else:
        links = sorted(asked, key=lambda link: link.name)
    by_name = {link.name: link for link in links}
    for name in declared:
        if name not in by_name:
            raise UsageError(f"no network link '{name}'", hint=f"there are {', '.join(by_name)}")
    judged = [_judge(host, link, by_name, declared.get(link.name)) for link in links]
    gaps: Gaps = {}
    if isinstance(asked, Missing):
        gaps["/links"] = asked.reason
    for index, link in enumerate(judged):
        for field in ("kind", "state", "mtu", "qdisc"):
            if getattr(link, field) is None:
                gaps[f"/links/{index}/{field}"] = "the kernel does not report it"
        if link.speed_bits_per_second is None:
            gaps[f"/links/{index}/speed_bits_per_second"] = link.speed_reason
        queued = _with_queues(host, link, f"/links/{index}", gaps)
        judged[index] = _with_place(host, queued, f"/links/{index}", gaps)
    return Network(links=judged), gaps


def _with_queues(host: Host, link: Link, pointer: str, gaps: Gaps) -> Link:
    """Add a link's driver and queues, from sysfs."""
    names = attempt(host.list_dir, f"/sys/class/net/{link.name}/queues")
    queues: Queues | Missing
    if isinstance(names, Missing):
        queues = names
    else:
        receive = [name for name in names if name.startswith("rx-")]
        send = [name for name in names if name.startswith("tx-")]
        rss = link.queues.rss if link.queues else None
        queues = Queues(
            rx=len(receive),
            tx=len(send),
            rps=_count_masks(host, link.name, receive, "rps_cpus"),
            xps=_count_masks(host, link.name, send, "xps_cpus"),
            rss=known(
                Missing("ethtool reports none") if rss is None else rss,
                gaps,
                f"{pointer}/queues/rss",
            ),
        )
    if link.rings is None:
        gaps[f"{pointer}/rings"] = "ethtool reports none"
    return replace(
        link, driver=_driver(host, link.name), queues=known(queues, gaps, f"{pointer}/queues")
    )


def _with_place(host: Host, link: Link, pointer: str, gaps: Gaps) -> Link:
    """Add the NUMA node and interrupts of a link's device, and the packets that its ring missed.

    Source: Documentation/ABI/testing/sysfs-class-net-statistics, rx_missed_errors.
    """
    if link.kind != "physical":
        for field in ("numa_node", "interrupts", "interrupt_cpus", "missed_packets"):
            gaps[f"{pointer}/{field}"] = "it has no hardware device"
        return link
    directory = attempt(host.real_path, f"/sys/class/net/{link.name}/device")
    found: Interrupts | Missing
    if isinstance(directory, Missing):
        node: int | Missing = directory
        found = directory
    else:
        node = read_numa_node(host, directory)
        found = read_interrupts(host, directory)
    missed = read_parsed(
        host, f"/sys/class/net/{link.name}/statistics/rx_missed_errors", parse_integer
    )
    count, cpus = (found, found) if isinstance(found, Missing) else (found.number, found.cpus)
    return replace(
        link,
        numa_node=known(node, gaps, f"{pointer}/numa_node"),
        interrupts=known(count, gaps, f"{pointer}/interrupts"),
        interrupt_cpus=known(cpus, gaps, f"{pointer}/interrupt_cpus"),
        missed_packets=known(missed, gaps, f"{pointer}/missed_packets"),
    )


def _count_masks(host: Host, link: str, queues: list[str], mask: str) -> int:
    """The number of queues with a non-empty CPU mask; 0 in a kernel without such masks.

    Source: Documentation/networking/scaling.rst.
    """
    masks = [
        attempt(host.read_text, f"/sys/class/net/{link}/queues/{queue}/{mask}")
        for queue in queues[:MOST_QUEUES]
    ]
    return sum(isinstance(mask, str) and has_cpus(mask) for mask in masks)


def _judge(host: Host, link: Link, links: Mapping[str, Link], declared: int | None) -> Link:
    """The link with its reported speed if credible, else with the reason to doubt the speed."""
    if declared is not None:
        return _with_speed(link, declared, "declared")
    if link.kind in _FAKES:
        return _with_speed(link, None, _FAKES[link.kind])
    driver = _driver(host, link.name)
    if driver in _NOMINAL_DRIVERS:
        return _with_speed(link, None, _NOMINAL_DRIVERS[driver])
    lower = [links[name] for name in link.lower if name in links]
    fakes = [below for below in lower if below.kind in _FAKES]
    if fakes:
        reason = f"{fakes[0].name} under it: {_FAKES[str(fakes[0].kind)]}"
        return _with_speed(link, None, reason)
    if link.speed_bits_per_second:
        source = f"driver {driver}" if driver else f"{link.kind or 'driver'}, the kernel's sum"
        return _with_speed(link, link.speed_bits_per_second, source)
    if link.state == "down":
        return _with_speed(link, None, "the link is down")
    if driver == "virtio_net":
        return _with_speed(link, None, "virtio_net: the hypervisor offers no speed")
    if lower:
        return _from_lower(host, link, lower)
    source = f"driver {driver}" if driver else "the kernel"
    return _with_speed(link, None, f"{source} reports none")


def _with_speed(link: Link, speed: int | None, reason: str) -> Link:
    return replace(link, speed_bits_per_second=speed, speed_reason=reason)


def _from_lower(host: Host, link: Link, lower: list[Link]) -> Link:
    """A bond, VLAN or bridge with the speed that the links under it allow."""
    names = ", ".join(below.name for below in lower)
    real = [below.speed_bits_per_second for below in lower if below.speed_bits_per_second]
    if not real or len(real) < len(lower):
        return _with_speed(link, None, f"not known for every link under it ({names})")
    if link.kind == "bond":
        mode = attempt(host.read_text, f"/sys/class/net/{link.name}/bonding/mode")
        if isinstance(mode, str) and mode.startswith("active-backup"):
            return _with_speed(link, max(real), f"one active port of {names}")
        return _with_speed(link, sum(real), f"sum of {names}")
    return _with_speed(link, max(real), f"from {names} under it")


def _driver(host: Host, name: str) -> str:
    target = attempt(host.read_link, f"/sys/class/net/{name}/device/driver")
    return "" if isinstance(target, Missing) else target.rpartition("/")[2]


_CONNTRACK = "/proc/sys/net/netfilter/nf_conntrack_"


def add_network_use(host: Host, network: Network, pid: int | None) -> tuple[Network, Gaps]:
    """Add the use of the network; for TCP, in the network namespace of ``pid``."""
    gaps: Gaps = {}
    process = "self" if pid is None else str(pid)
    softnet = read_parsed(host, "/proc/self/net/softnet_stat", parse_softnet)
    entries, limit = _read_conntrack(host, process)
    network = replace(
        network,
        softnet=known(softnet, gaps, "/softnet"),
        tcp=_read_tcp(host, process, gaps),
        conntrack_entries=known(entries, gaps, "/conntrack_entries"),
        conntrack_limit=known(limit, gaps, "/conntrack_limit"),
    )
    return network, gaps


def _read_tcp(host: Host, process: str, gaps: Gaps) -> Tcp:
    """The use of TCP in a process's network namespace, and the host's ``tcp_mem``.

    Source: Documentation/networking/snmp_counter.rst; net/ipv4/tcp.c.
    """
    text = attempt(host.read_text, f"/proc/{process}/net/snmp")
    counters = {} if isinstance(text, Missing) else parse_netstat(text)
    absent = text if isinstance(text, Missing) else Missing("the kernel does not count it")
    stat = attempt(host.read_text, f"/proc/{process}/net/sockstat")
    held, waiting = mapped(stat, parse_tcp_pages), mapped(stat, parse_time_wait)
    levels = read_parsed(host, "/proc/sys/net/ipv4/tcp_mem", parse_tcp_mem)
    pressure, most = (levels, levels) if isinstance(levels, Missing) else levels[1:]
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
    """The number and limit of tracked connections in our network namespace.

    Source: Documentation/networking/nf_conntrack-sysctl.rst.
    """
    if process != "self":
        ours = attempt(host.read_link, "/proc/self/ns/net")
        theirs = attempt(host.read_link, f"/proc/{process}/ns/net")
        if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
            apart = Missing("nginx is in another network namespace")
            return apart, apart
    found = []
    for name in ("count", "max"):
        text = attempt(host.read_text, _CONNTRACK + name)
        found.append(
            Missing(f"no connections are tracked here ({text.reason})")
            if isinstance(text, Missing)
            else parse_integer(text)
        )
    return found[0], found[1]


MOST_DESCRIPTORS = 4096
"""Maximum number of descriptors of a master to read; its listening sockets are among the first."""


def ask_listening(host: Host, pid: int | None) -> Listening | Missing:
    """The listening sockets of a process's network namespace (None: ours).

    An ordinary user may not enter the namespace of root's nginx, and some kernels lack sock_diag.
    ``/proc/PID/net/tcp`` still has addresses and queues, without backlogs and drops.
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
                address=str(sock.address),
                port=sock.port,
                inode=sock.inode,
                accept_queue=sock.accept_queue,
            )
            for sock in parse_listeners(text, byteorder="little")
        ]
    return Listening(
        sockets=sorted(sockets, key=lambda sock: (sock.port, sock.address, sock.inode))
    )


def read_listeners(
    host: Host, asked: Listening | Missing, pid: int | None
) -> tuple[list[Listener], Gaps]:
    """The listeners by address, from the answer of ``ask_listening``."""
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
    """Add the kernel's counters for the listening sockets of ``pid``.

    Source: Documentation/networking/snmp_counter.rst.
    """
    gaps: Gaps = {}
    text = attempt(host.read_text, f"/proc/{pid or 'self'}/net/netstat")
    counters = {} if isinstance(text, Missing) else parse_netstat(text)
    absent = text if isinstance(text, Missing) else Missing("the kernel does not count it")
    somaxconn = mapped(
        asked, lambda a: Missing("not known") if a.somaxconn is None else a.somaxconn
    )
    network = replace(
        network,
        somaxconn=known(somaxconn, gaps, "/somaxconn"),
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
    unknown = Missing("sock_diag does not report it, or cannot be used")
    backlogs = [sock.backlog for sock in sockets if sock.backlog is not None]
    queues = [sock.accept_queue for sock in sockets if sock.accept_queue is not None]
    drops = [sock.drops for sock in sockets if sock.drops is not None]
    ours = mapped(held, lambda inodes: any(sock.inode in inodes for sock in sockets))
    listener = Listener(
        address=address,
        port=port,
        sockets=len(sockets),
        backlog=known(min(backlogs, default=unknown), gaps, "/backlog"),
        accept_queue=known(sum(queues) if queues else unknown, gaps, "/accept_queue"),
        longest_accept_queue=known(max(queues, default=unknown), gaps, "/longest_accept_queue"),
        drops=known(sum(drops) if drops else unknown, gaps, "/drops"),
        of_nginx=known(ours, gaps, "/of_nginx"),
    )
    return listener, gaps


def _read_held(host: Host, pid: int) -> frozenset[int] | Missing:
    """The inodes of a process's sockets."""
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
