"""What of the network holds any nginx back: queues that ran over, links that are bent or bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nginx_tune.decide.hindrance import Hindrance
from nginx_tune.documents.facts import Facts, Link, Network
from nginx_tune.documents.listening import Listener
from nginx_tune.documents.units import percent_text

RETRANSMITTED_RATIO: Final = 0.01
FEW_SEGMENTS: Final = 10_000
DROPPED_RATIO: Final = 1e-5
SQUEEZED_RATIO: Final = 1e-3
"""Of the packets: each is a turn that ended with packets left."""
MISSED_PACKETS: Final = 100
FEW_LOST: Final = 10
"""Connections: a handful since the host came up is past."""
NEARLY_FULL: Final = 0.8
HALF_FULL: Final = 0.5
"""An accept queue that is seen half full at one moment is seldom empty."""
MANY_INTERRUPTS: Final = 4
"""A device of one queue has up to three, one of them for its configuration."""
_SHAPERS = frozenset({"tbf", "htb", "hfsc", "cbq", "cake", "netem", "drr", "qfq", "taprio"})
"""Disciplines that are put at a root to bound or to delay it."""


def network_hindrances(facts: Facts) -> Iterator[Hindrance]:
    """Of the whole stack."""
    network, sysctls = facts.network, facts.kernel.sysctls
    yield from _lost_at_the_door(network, sysctls, facts.listeners)
    tcp = network.tcp
    sent, again = tcp.segments_sent, tcp.segments_retransmitted
    if sent and again is not None and sent >= FEW_SEGMENTS and again >= RETRANSMITTED_RATIO * sent:
        yield Hindrance(
            "network.tcp.segments_retransmitted",
            f"{percent_text(again / sent, 2)} of the TCP segments were sent again",
            "slow clients or a lossy path: latency that no setting of nginx explains",
            "look at the paths (ss -ti) before nginx is changed",
        )
    if _has_dropped(network) or _has_squeezed(network):
        soft = network.softnet
        backlog = sysctls.get("net.core.netdev_max_backlog", "not known")
        yield Hindrance(
            "network.softnet",
            f"of {soft.processed if soft else 0} received packets {soft.dropped if soft else 0} "
            f"were dropped, and {soft.squeezed if soft else 0} times some were left for later",
            "CPUs could not keep up with packets; clients send again",
            f"net.core.netdev_max_backlog (now {backlog}), net.core.netdev_budget, more queues",
        )
    held, pressure = tcp.memory_pages, tcp.memory_pressure_pages
    if held is not None and pressure and held >= pressure:
        yield Hindrance(
            "network.tcp.memory_pages",
            f"TCP's buffers hold {held} pages; from {pressure} on they are kept small, at "
            f"{tcp.memory_limit_pages} segments are dropped",
            "every connection of the host becomes slow",
            "raise net.ipv4.tcp_mem, or hold fewer connections",
        )
    entries, limit = network.conntrack_entries, network.conntrack_limit
    if entries is not None and limit and entries >= NEARLY_FULL * limit:
        yield Hindrance(
            "network.conntrack_entries",
            f"the packet filter follows {entries} of at most {limit} connections",
            "at the limit new connections are dropped, and nothing in nginx's logs says so",
            "raise net.netfilter.nf_conntrack_max, or do not follow nginx's ports (notrack)",
        )


def link_hindrances(facts: Facts) -> Iterator[Hindrance]:
    """Of each link that is up and has a device."""
    cpus = facts.cpu.online or 1
    for link in facts.network.links:
        if link.qdisc in _SHAPERS and link.state != "down":
            yield Hindrance(
                f"network.links[{link.name}].qdisc",
                f"{link.qdisc} is at the root of {link.name}",
                "what leaves can be bounded or delayed below the speed of the link",
                f"tc -s qdisc show dev {link.name}; tell the real speed with --link-speed",
            )
        if link.kind == "physical" and link.state == "up":
            yield from _device(link, cpus, facts.network)


def _device(link: Link, cpus: int, network: Network) -> Iterator[Hindrance]:
    where = f"network.links[{link.name}]"
    missed = link.missed_packets or 0
    rings = link.rings
    if missed >= MISSED_PACKETS:
        larger = rings is not None and rings.rx < rings.rx_max
        yield Hindrance(
            f"{where}.missed_packets",
            f"{missed} packets came to {link.name} when its receive ring had no room",
            "clients send again, after 200 ms or more",
            f"ethtool -G {link.name} rx {rings.rx_max} (now {rings.rx})"
            if rings is not None and larger
            else "more queues, or interrupts on more CPUs",
        )
    queues = link.queues
    if queues is not None and cpus > 1:
        has_one = (queues.rss or queues.rx) == 1 and queues.rps == 0
        if has_one and (
            missed >= MISSED_PACKETS or _has_dropped(network) or _has_squeezed(network)
        ):
            yield Hindrance(
                f"{where}.queues",
                f"{link.name} has one receive queue, and packets were lost or left",
                "one CPU takes all packets in, and the worker there is the slowest",
                f"ethtool -L {link.name} combined {cpus}, or rps_cpus of its queue",
            )
        if queues.rx > 1 and (link.interrupts or 0) >= MANY_INTERRUPTS and link.interrupt_cpus == 1:
            yield Hindrance(
                f"{where}.interrupt_cpus",
                f"all {link.interrupts} interrupts of {link.name} go to one CPU",
                "its receive queues share that CPU, and the worker there is the slowest",
                "irqbalance, or smp_affinity of each",
            )
    yield from _offloads(link, where)


def _offloads(link: Link, where: str) -> Iterator[Hindrance]:
    off = {name for name, is_on in link.offloads.items() if not is_on}
    texts = []
    if "sg" in off:
        texts.append(("scatter-gather", "sendfile copies every page before it is sent", "sg on"))
    if {"tso", "gso"} <= off:
        texts.append(
            ("segmentation offload", "each packet that is sent passes the stack alone", "tso on")
        )
    if "gro" in off:
        texts.append(("receive offload", "each received packet passes the stack alone", "gro on"))
    for name, meaning, option in texts:
        yield Hindrance(
            f"{where}.offloads",
            f"{link.name} is without {name}",
            meaning,
            f"ethtool -K {link.name} {option}",
        )


def _lost_at_the_door(
    network: Network, sysctls: dict[str, str], listeners: list[Listener]
) -> Iterator[Hindrance]:
    full = network.listen_overflows
    aborts = sysctls.get("net.ipv4.tcp_abort_on_overflow") == "1"
    means = "the client gets a reset" if aborts else "the client tries again after a second"
    ours = [one for one in listeners if one.of_nginx]
    known = [one for one in ours if one.drops is not None]
    for one in known:
        if (one.drops or 0) >= FEW_LOST:
            yield Hindrance(
                f"listeners[{one.address}:{one.port}].drops",
                f"{one.drops} connections were dropped at nginx's port {one.port} since it listens",
                means,
                "nginx-tune recommend says a backlog; ss -ltn shows the queues",
            )
    is_told = bool(ours) and len(known) == len(ours)  # nginx's own queues say what is nginx's
    if full is not None and full >= FEW_LOST and not is_told:
        yield Hindrance(
            "network.listen_overflows",
            f"{full} connections came to a full accept queue of some listener of the whole network "
            "namespace, nginx's or another's",
            means,
            "as root nginx-tune tells nginx's from others'; ss -ltn shows the queues",
        )
    for one in listeners:
        longest = one.longest_accept_queue or 0
        if one.of_nginx and one.backlog and longest >= HALF_FULL * one.backlog:
            yield Hindrance(
                f"listeners[{one.address}:{one.port}].longest_accept_queue",
                f"{longest} connections of at most {one.backlog} wait now to be accepted on port "
                f"{one.port}",
                "workers do not come to accept: they stand in disk reads, or the CPUs are busy",
                "nginx-tune observe names the cause; a longer backlog only hides it",
            )
    other = (network.listen_drops or 0) - (full or 0)
    if other >= FEW_LOST:
        yield Hindrance(
            "network.listen_drops",
            f"{other} connections were dropped at a listening socket for another reason",
            "memory, a filter or a full SYN queue turned clients away",
            "nstat -az | grep -i -e drop -e syn",
        )
    if (network.syn_queue_drops or 0) >= FEW_LOST:
        backlog = sysctls.get("net.ipv4.tcp_max_syn_backlog", "not known")
        cookies = sysctls.get("net.ipv4.tcp_syncookies", "not known")
        yield Hindrance(
            "network.syn_queue_drops",
            f"{network.syn_queue_drops} connections met a full queue of half-open ones",
            "clients try again after a second",
            f"net.ipv4.tcp_syncookies=1 (now {cookies}), net.ipv4.tcp_max_syn_backlog (now "
            f"{backlog})",
        )


def _has_dropped(network: Network) -> bool:
    soft = network.softnet
    return soft is not None and soft.dropped > DROPPED_RATIO * max(1, soft.processed)


def _has_squeezed(network: Network) -> bool:
    soft = network.softnet
    return soft is not None and soft.squeezed > SQUEEZED_RATIO * max(1, soft.processed)
