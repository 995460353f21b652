"""Problems of a host that slow down any nginx, with any configuration.

Counters count from the start of the host or of the network namespace. Small shares are not
reported, since a bad hour long ago would otherwise be reported for ever.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from nginx_tune.documents.facts import Cpu, Facts, Link, Memory, Network
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.documents.units import percent_text, seconds_text


class Hindrance(NamedTuple):
    """A problem: the figure, its effect on nginx, and the remedy."""

    fact: str
    """The place of the figure in the facts."""
    seen: str
    meaning: str
    remedy: str


THROTTLED_RATIO: Final = 0.01
STEAL_RATIO: Final = 0.01
SWAPPED_RATIO: Final = 0.01
"""Swapped share of all memory to report; a smaller share may be idle pages, which do no harm."""
_SCALING_POWERSAVE = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
"""Drivers under which ``powersave`` follows the load (admin-guide/pm/intel_pstate.rst,
amd-pstate.rst: active mode); under other drivers ``powersave`` is the lowest frequency."""
_MIB: Final = 1 << 20


def find_hindrances(facts: Facts) -> list[Hindrance]:
    """All hindrances that the facts show, ordered by part of the host."""
    return [found for look in _LOOKS for found in look(facts)]


def throttled_share(cpu: Cpu) -> float | None:
    """Share of periods in which a CPU quota throttled; None if unknown or with too few periods."""
    return None if cpu.throttled is None else cpu.throttled.ratio


def _cpu(facts: Facts) -> Iterator[Hindrance]:
    cpu = facts.cpu
    share = throttled_share(cpu)
    if cpu.throttled is not None and share is not None and share >= THROTTLED_RATIO:
        yield Hindrance(
            "cpu.throttled",
            f"the CPU quota of {cpu.throttled.directory} throttled its processes in "
            f"{percent_text(share, 2)} of the periods, "
            f"{seconds_text(cpu.throttled.throttled_seconds)} in all",
            "a throttled worker serves none of its connections until the next period",
            "a higher limit, or no more workers than CPUs of the limit",
        )
    if cpu.steal_ratio is not None and cpu.steal_ratio >= STEAL_RATIO:
        yield Hindrance(
            "cpu.steal_ratio",
            f"the hypervisor gave {percent_text(cpu.steal_ratio, 2)} of the CPU time to others",
            "workers stop meanwhile, and no setting of nginx helps",
            "a guest with CPUs of its own",
        )
    if "powersave" in cpu.governors and cpu.frequency_driver not in _SCALING_POWERSAVE:
        yield Hindrance(
            "cpu.governors",
            f"the governor powersave of {cpu.frequency_driver or 'an unknown driver'}",
            "the CPUs stay at their lowest frequency under any load",
            "cpupower frequency-set -g schedutil (or performance)",
        )
    if cpu.isolated:
        yield Hindrance(
            "cpu.isolated",
            f"{cpu.isolated} of {cpu.cpuset} allowed CPUs are isolated",
            "the scheduler moves nothing between them: workers and threads stay on the CPU where "
            "they started",
            "worker_cpu_affinity, or leave those CPUs out of the service's CPUAffinity",
        )


def _memory(facts: Facts) -> Iterator[Hindrance]:
    memory = facts.memory
    yield from _swapped(memory, facts.kernel.sysctls.get("vm.swappiness"))
    if memory.transparent_huge_pages == memory.huge_page_defrag == "always":
        yield Hindrance(
            "memory.huge_page_defrag",
            "transparent huge pages are always on, and memory is compacted for them at once",
            "a worker that allocates memory can wait for that",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
        )
    dirty, background = memory.dirty_bytes, memory.dirty_background_bytes
    if dirty is not None and background and dirty > background:
        limit = memory.dirty_limit_bytes
        held = f", and at {limit // _MIB} MiB writers wait" if limit else ""
        yield Hindrance(
            "memory.dirty_bytes",
            f"{dirty // _MIB} MiB wait to be written, more than the {background // _MIB} MiB at "
            f"which writing starts{held}",
            "a worker that writes to a cache or a temporary file can then be blocked",
            "find the process that writes; lower vm.dirty_background_bytes to start writing sooner",
        )


def _swapped(memory: Memory, swappiness: str | None) -> Iterator[Hindrance]:
    total = memory.total_bytes
    for is_compressed in (False, True):
        places = [swap for swap in memory.swaps if (swap.kind == "zram") is is_compressed]
        used, size = (sum(swap.used_bytes for swap in places), sum(p.size_bytes for p in places))
        if not total or used < SWAPPED_RATIO * total:
            continue
        names = ", ".join(swap.path for swap in places if swap.used_bytes)
        yield Hindrance(
            "memory.swaps",
            f"{used // _MIB} MiB of memory are swapped to {names} (size {size // _MIB} MiB)",
            "it takes memory from the page cache, and reading a page back costs CPU time"
            if is_compressed
            else "a worker that needs such a page waits for a disk, with all its connections",
            f"more memory, or less in use; vm.swappiness is {swappiness or 'not known'}",
        )


def _storage(facts: Facts) -> Iterator[Hindrance]:
    for disk in facts.storage.disks:
        if disk.class_ == "hdd" and disk.scheduler == "none":
            yield Hindrance(
                f"storage.disks[{disk.name}].scheduler",
                f"{disk.name} is a hard disk without a scheduler",
                "its reads are not ordered, and writes delay reads",
                f"echo mq-deadline > /sys/block/{disk.name}/queue/scheduler",
            )
        if disk.class_ in ("hdd", "ssd") and disk.device_queue_depth == 1:
            yield Hindrance(
                f"storage.disks[{disk.name}].device_queue_depth",
                f"{disk.name} takes one command at a time",
                "all threads but one wait for the disk, which cannot reorder requests",
                "check the controller's mode (AHCI) and libata.force=noncq",
            )


def _nodes(facts: Facts) -> Iterator[Hindrance]:
    if (facts.cpu.numa_nodes or 1) < 2:  # noqa: PLR2004
        return
    disks: dict[int, list[str]] = {}
    for disk in facts.storage.disks:
        if disk.numa_node is not None:
            disks.setdefault(disk.numa_node, []).append(disk.name)
    for link in facts.network.links:
        if link.numa_node is None or link.state != "up":
            continue
        for node, names in sorted(disks.items()):
            if node != link.numa_node:
                yield Hindrance(
                    f"network.links[{link.name}].numa_node",
                    f"{link.name} is on NUMA node {link.numa_node}, {', '.join(names)} on {node}",
                    "data from these disks must cross between the nodes to be sent",
                    f"put the most requested files on disks of node {link.numa_node}",
                )


RETRANSMITTED_RATIO: Final = 0.01
FEW_SEGMENTS: Final = 10_000
DROPPED_RATIO: Final = 1e-5
SQUEEZED_RATIO: Final = 1e-3
"""Turns of packet processing that ended with packets left, per received packet, to report."""
MISSED_PACKETS: Final = 100
FEW_LOST: Final = 10
"""Number of connections lost since the start of the host below which nothing is reported."""
NEARLY_FULL: Final = 0.8
HALF_FULL: Final = 0.5
"""Filled share of an accept queue to report, since a queue that is half full at a random moment is
seldom empty."""
MANY_INTERRUPTS: Final = 4
"""Minimum number of interrupts of a device with several queues; a device with a single queue has at
most three."""
_SHAPERS = frozenset({"tbf", "htb", "hfsc", "cbq", "cake", "netem", "drr", "qfq", "taprio"})
"""Queue disciplines that, at the root of a link, limit or delay all of its traffic."""


def network_hindrances(facts: Facts) -> Iterator[Hindrance]:
    """Hindrances of the whole network stack."""
    network, sysctls = facts.network, facts.kernel.sysctls
    yield from _lost_at_the_door(network, sysctls, facts.listeners)
    tcp = network.tcp
    sent, again = tcp.segments_sent, tcp.segments_retransmitted
    if sent and again is not None and sent >= FEW_SEGMENTS and again >= RETRANSMITTED_RATIO * sent:
        yield Hindrance(
            "network.tcp.segments_retransmitted",
            f"{percent_text(again / sent, 2)} of the TCP segments were sent again",
            "slow clients or a lossy path: this latency does not come from nginx",
            "check the network paths (ss -ti) before you change nginx",
        )
    if _has_dropped(network) or _has_squeezed(network):
        soft = network.softnet
        backlog = sysctls.get("net.core.netdev_max_backlog", "not known")
        yield Hindrance(
            "network.softnet",
            f"{soft.dropped if soft else 0} of {soft.processed if soft else 0} received packets "
            f"were dropped, and {soft.squeezed if soft else 0} times some were left for later",
            "CPUs could not keep up with packets; clients send again",
            f"net.core.netdev_max_backlog (now {backlog}), net.core.netdev_budget, more queues",
        )
    held, pressure = tcp.memory_pages, tcp.memory_pressure_pages
    if held is not None and pressure and held >= pressure:
        yield Hindrance(
            "network.tcp.memory_pages",
            f"TCP's buffers hold {held} pages; from {pressure} pages on the kernel keeps them "
            f"small, and at {tcp.memory_limit_pages} segments are dropped",
            "every connection of the host becomes slow",
            "raise net.ipv4.tcp_mem, or hold fewer connections",
        )
    entries, limit = network.conntrack_entries, network.conntrack_limit
    if entries is not None and limit and entries >= NEARLY_FULL * limit:
        yield Hindrance(
            "network.conntrack_entries",
            f"the packet filter tracks {entries} of at most {limit} connections",
            "at the limit new connections are dropped, without a line in nginx's logs",
            "raise net.netfilter.nf_conntrack_max, or do not track nginx's ports (notrack)",
        )


def link_hindrances(facts: Facts) -> Iterator[Hindrance]:
    """Hindrances of each link that is up and has a device."""
    cpus = facts.cpu.online or 1
    for link in facts.network.links:
        if link.qdisc in _SHAPERS and link.state != "down":
            yield Hindrance(
                f"network.links[{link.name}].qdisc",
                f"{link.qdisc} is at the root of {link.name}",
                "outgoing traffic can be limited or delayed below the speed of the link",
                f"tc -s qdisc show dev {link.name}; declare the real speed with --link-speed",
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
            f"{missed} packets arrived at {link.name} while its receive ring was full",
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
                f"{link.name} has one receive queue, and packets were lost or left for later",
                "one CPU receives all packets, and the worker there is the slowest",
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
            ("segmentation offload", "each sent packet passes the network stack alone", "tso on")
        )
    if "gro" in off:
        texts.append(
            ("receive offload", "each received packet passes the network stack alone", "gro on")
        )
    for name, meaning, option in texts:
        yield Hindrance(
            f"{where}.offloads",
            f"{link.name} does not use {name}",
            meaning,
            f"ethtool -K {link.name} {option}",
        )


def _lost_at_the_door(
    network: Network, sysctls: dict[str, str], listeners: list[Listener]
) -> Iterator[Hindrance]:
    full = network.listen_overflows
    aborts = sysctls.get("net.ipv4.tcp_abort_on_overflow") == "1"
    means = "the client gets a reset" if aborts else "the client tries again after a second"
    ours = [listener for listener in listeners if listener.of_nginx]
    known = [listener for listener in ours if listener.drops is not None]
    for own in known:
        if (own.drops or 0) >= FEW_LOST:
            yield Hindrance(
                f"listeners[{own.address}:{own.port}].drops",
                f"{own.drops} connections were dropped at nginx's port {own.port} since it listens",
                means,
                "nginx-tune recommend gives a backlog; ss -ltn shows the queues",
            )
    # The counters of nginx's own queues are more exact than those of the whole namespace.
    if full is not None and full >= FEW_LOST and not (ours and len(known) == len(ours)):
        yield Hindrance(
            "network.listen_overflows",
            f"{full} connections met a full accept queue in this network namespace, of nginx or "
            "of another program",
            means,
            "as root, nginx-tune shows which; ss -ltn shows the queues",
        )
    for listener in listeners:
        longest = listener.longest_accept_queue or 0
        if listener.of_nginx and listener.backlog and longest >= HALF_FULL * listener.backlog:
            yield Hindrance(
                f"listeners[{listener.address}:{listener.port}].longest_accept_queue",
                f"{longest} connections, of at most {listener.backlog}, are waiting to be "
                f"accepted on port {listener.port}",
                "workers do not accept in time: they wait for disk reads, or the CPUs are busy",
                "nginx-tune observe names the cause; a longer backlog only hides it",
            )
    other = (network.listen_drops or 0) - (full or 0)
    if other >= FEW_LOST:
        yield Hindrance(
            "network.listen_drops",
            f"{other} connections were dropped at a listening socket for another reason",
            "lack of memory, a filter or a full SYN queue rejected clients",
            "nstat -az | grep -i -e drop -e syn",
        )
    if (network.syn_queue_drops or 0) >= FEW_LOST:
        backlog = sysctls.get("net.ipv4.tcp_max_syn_backlog", "not known")
        cookies = sysctls.get("net.ipv4.tcp_syncookies", "not known")
        yield Hindrance(
            "network.syn_queue_drops",
            f"{network.syn_queue_drops} connections met a full queue of half-open connections",
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


_LOOKS: tuple[Callable[[Facts], Iterator[Hindrance]], ...] = (
    _cpu,
    _memory,
    _storage,
    _nodes,
    network_hindrances,
    link_hindrances,
)
