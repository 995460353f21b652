"""What of a host holds any nginx back, whatever its configuration says.

Counters are those since the host (or the network namespace) came up: small shares of them are
left unsaid, since an hour that is long over would be named for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from nginx_tune.decide.hindrance import Hindrance
from nginx_tune.decide.hindrances_network import link_hindrances, network_hindrances
from nginx_tune.documents.facts import Cpu, Facts, Memory
from nginx_tune.documents.units import percent_text, seconds_text

THROTTLED_RATIO: Final = 0.01
STEAL_RATIO: Final = 0.01
SWAPPED_RATIO: Final = 0.01
"""Of all memory: what lies idle may well be out, and that costs nothing."""
_SCALING_POWERSAVE = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
"""Drivers under which ``powersave`` follows the load (admin-guide/pm/intel_pstate.rst,
amd-pstate.rst: active mode); under others it is the lowest frequency."""
_MIB: Final = 1 << 20


def find_hindrances(facts: Facts) -> list[Hindrance]:
    """All that can be seen, by parts of the host."""
    return [found for look in _LOOKS for found in look(facts)]


def throttled_share(cpu: Cpu) -> float | None:
    """Share of the periods in which a quota held back; null where unknown or too few."""
    return None if cpu.throttled is None else cpu.throttled.ratio


def _cpu(facts: Facts) -> Iterator[Hindrance]:
    cpu = facts.cpu
    share = throttled_share(cpu)
    if cpu.throttled is not None and share is not None and share >= THROTTLED_RATIO:
        yield Hindrance(
            "cpu.throttled",
            f"the CPU quota of {cpu.throttled.directory} held its processes back in "
            f"{percent_text(share, 2)} of the periods, "
            f"{seconds_text(cpu.throttled.throttled_seconds)} in all",
            "a worker that is held back answers none of its connections until the next period",
            "a higher limit, or no more workers than CPUs of the limit",
        )
    if cpu.steal_ratio is not None and cpu.steal_ratio >= STEAL_RATIO:
        yield Hindrance(
            "cpu.steal_ratio",
            f"the hypervisor gave {percent_text(cpu.steal_ratio, 2)} of the CPU time to others",
            "workers stand still meanwhile, which no setting of nginx mends",
            "a guest with CPUs of its own",
        )
    if "powersave" in cpu.governors and cpu.frequency_driver not in _SCALING_POWERSAVE:
        yield Hindrance(
            "cpu.governors",
            f"the governor powersave of {cpu.frequency_driver or 'an unknown driver'}",
            "the CPUs stay at their lowest frequency, whatever the load",
            "cpupower frequency-set -g schedutil (or performance)",
        )
    if cpu.isolated:
        yield Hindrance(
            "cpu.isolated",
            f"{cpu.isolated} of {cpu.cpuset} allowed CPUs are isolated",
            "the scheduler moves nothing between them: workers and threads stay where they began",
            "worker_cpu_affinity, or leave those CPUs out of the service's CPUAffinity",
        )


def _memory(facts: Facts) -> Iterator[Hindrance]:
    memory = facts.memory
    yield from _swapped(memory, facts.kernel.sysctls.get("vm.swappiness"))
    if memory.transparent_huge_pages == memory.huge_page_defrag == "always":
        yield Hindrance(
            "memory.huge_page_defrag",
            "huge pages always, and memory is moved for them at once",
            "a worker that takes new memory can wait for that",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
        )
    dirty, background = memory.dirty_bytes, memory.dirty_background_bytes
    if dirty is not None and background and dirty > background:
        limit = memory.dirty_limit_bytes
        held = f", and at {limit // _MIB} MiB writers wait" if limit else ""
        yield Hindrance(
            "memory.dirty_bytes",
            f"{dirty // _MIB} MiB wait to be written, more than the {background // _MIB} MiB that "
            f"start it{held}",
            "a worker that fills a cache or a temporary file then stands still",
            "find who writes; lower vm.dirty_background_bytes to begin sooner",
        )


def _swapped(memory: Memory, swappiness: str | None) -> Iterator[Hindrance]:
    total = memory.total_bytes
    for is_compressed in (False, True):
        places = [one for one in memory.swaps if (one.kind == "zram") is is_compressed]
        used, size = (sum(one.used_bytes for one in places), sum(p.size_bytes for p in places))
        if not total or used < SWAPPED_RATIO * total:
            continue
        names = ", ".join(one.path for one in places if one.used_bytes)
        yield Hindrance(
            "memory.swaps",
            f"{used // _MIB} MiB of memory are in {names}, of {size // _MIB} MiB there",
            "it takes memory from the page cache and CPU to get a page back"
            if is_compressed
            else "a worker that needs such a page waits for a disk, and all its connections do",
            f"more memory, or less in use; vm.swappiness is {swappiness or 'not known'}",
        )


def _storage(facts: Facts) -> Iterator[Hindrance]:
    for disk in facts.storage.disks:
        if disk.class_ == "hdd" and disk.scheduler == "none":
            yield Hindrance(
                f"storage.disks[{disk.name}].scheduler",
                f"{disk.name} is a hard disk without a scheduler",
                "its reads are not ordered, and writes hold up reads",
                f"echo mq-deadline > /sys/block/{disk.name}/queue/scheduler",
            )
        if disk.class_ in ("hdd", "ssd") and disk.device_queue_depth == 1:
            yield Hindrance(
                f"storage.disks[{disk.name}].device_queue_depth",
                f"{disk.name} takes one command at a time",
                "threads beyond one wait before the disk: it orders nothing itself",
                "look at the controller's mode (AHCI) and libata.force=noncq",
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
                    f"{link.name} hangs on node {link.numa_node}, {', '.join(names)} on {node}",
                    "what these disks hold crosses from one node to the other to be sent",
                    f"put what is asked for most on disks of node {link.numa_node}",
                )


_LOOKS: tuple[Callable[[Facts], Iterator[Hindrance]], ...] = (
    _cpu,
    _memory,
    _storage,
    _nodes,
    network_hindrances,
    link_hindrances,
)
