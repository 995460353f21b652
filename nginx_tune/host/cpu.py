"""Processors: how many nginx may use, their quota, and the devices near them.

Devices belong to a NUMA node, and their interrupts go to some CPUs.
"""

import math
import posixpath
import re
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.facts import Cpu, Throttled
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, mapped, read_parsed
from nginx_tune.host.mounts import ControlGroup, read_group
from nginx_tune.host.parse_proc import (
    parse_cfs_quota,
    parse_cpu_max,
    parse_host_cpu,
    parse_id_list,
    parse_integer,
    parse_status,
    parse_throttling,
)

_CPUSET_FILES = {1: ("cpuset.effective_cpus", "cpuset.cpus"), 2: ("cpuset.cpus.effective",)}


def read_cpu(host: Host, *, process: str = "self") -> tuple[Cpu, Gaps]:
    """The processors that a process (a pid or ``self``) may use."""
    gaps: Gaps = {}
    online = _read_online(host)
    allowed = _read_allowed(host, process, online)
    quota = _read_quota(host, process)
    online_count = known(mapped(online, len), gaps, "/online")
    allowed_count = known(mapped(allowed, len), gaps, "/cpuset")
    quota_cpus = known(quota, gaps, "/quota_cpus")
    bounds = [float(n) for n in (online_count, allowed_count, quota_cpus) if n is not None]
    if not bounds:
        gaps["/effective"] = "neither the online CPUs nor a cpuset nor a quota is known"
    cpu = Cpu(
        online=online_count,
        cpuset=allowed_count,
        quota_cpus=quota_cpus,
        effective=min(bounds, default=None),
        model=known(_read_model(host), gaps, "/model"),
        threads_per_core=known(_read_threads_per_core(host), gaps, "/threads_per_core"),
        numa_nodes=known(_read_numa_nodes(host), gaps, "/numa_nodes"),
        throttled=known(read_throttled(host, process), gaps, "/throttled"),
        steal_ratio=known(read_steal_ratio(host), gaps, "/steal_ratio"),
        frequency_driver=known(read_frequency_driver(host), gaps, "/frequency_driver"),
        governors=known(read_governors(host), gaps, "/governors") or [],
        isolated=known(read_isolated(host, allowed), gaps, "/isolated"),
    )
    return cpu, gaps


def with_workers(cpu: Cpu, libc: str | None, gaps: Gaps) -> Cpu:
    """Add the workers that ``worker_processes auto`` starts, and those that can run at once.

    Source: ngx_posix_init.c uses sysconf(_SC_NPROCESSORS_ONLN). glibc counts the CPUs online
    (getsysstats.c; 2.34 alone counts the affinity mask, unless patched). musl counts the affinity
    mask (src/conf/sysconf.c). Neither considers a quota.
    """
    counted = cpu.cpuset if libc == "musl" else cpu.online
    reason = {
        "musl": "musl counts the CPUs of the affinity mask and the cpuset",
        "glibc": "glibc counts the CPUs online and ignores cpuset, affinity and quota",
    }.get(libc or "", "CPUs online, as glibc counts; the C library of nginx is not known")
    fitting = None if cpu.effective is None else max(1, math.ceil(cpu.effective))
    for field, value in (("auto_workers", counted), ("fitting_workers", fitting)):
        if value is None:
            gaps[f"/{field}"] = "the number of CPUs is not known"
    return replace(
        cpu,
        auto_workers=counted,
        auto_workers_reason=reason if counted is not None else "",
        fitting_workers=fitting,
    )


def _read_threads_per_core(host: Host) -> int | Missing:
    path = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"
    siblings = read_parsed(host, path, parse_id_list)
    if isinstance(siblings, Missing):
        return siblings
    return len(siblings) or Missing(f"{path} is empty")


def _read_numa_nodes(host: Host) -> int | Missing:
    """The number of NUMA nodes online; a kernel without NUMA has no such file."""
    nodes = read_parsed(host, "/sys/devices/system/node/online", parse_id_list)
    if isinstance(nodes, Missing):
        return nodes
    return len(nodes) or Missing("no node is online")


def _read_online(host: Host) -> frozenset[int] | Missing:
    text = attempt(host.read_text, "/sys/devices/system/cpu/online")
    if not isinstance(text, Missing):
        found = parse_id_list(text)
        if isinstance(found, Missing) or found:
            return found
    info = attempt(host.read_text, "/proc/cpuinfo")
    if isinstance(info, Missing):
        return text if isinstance(text, Missing) else info
    ids = re.findall(r"^processor\s*:\s*([0-9]{1,6})$", info, re.MULTILINE)
    return frozenset(map(int, ids)) if ids else Missing("neither sysfs nor cpuinfo lists CPUs")


def _read_allowed(
    host: Host, process: str, online: frozenset[int] | Missing
) -> frozenset[int] | Missing:
    """The CPUs online in both the affinity mask and the cpuset."""
    found = []
    status = attempt(host.read_text, f"/proc/{process}/status")
    if not isinstance(status, Missing):
        mask = parse_status(status).get("Cpus_allowed_list")
        found.append(Missing("no Cpus_allowed_list") if mask is None else parse_id_list(mask))
    group = read_group(host, "cpuset", process)
    if isinstance(group, ControlGroup):
        for file in _CPUSET_FILES[group.version]:
            text = attempt(host.read_text, f"{group.directories[0]}/{file}")
            if not isinstance(text, Missing) and text.strip():
                found.append(parse_id_list(text))
                break
    sets = [cpus for cpus in found if isinstance(cpus, frozenset) and cpus]
    if not sets:
        return status if isinstance(status, Missing) else Missing("no affinity mask, no cpuset")
    allowed = frozenset.intersection(*sets)
    return allowed if isinstance(online, Missing) else allowed & online or online


def _read_quota(host: Host, process: str) -> float | Missing:
    """The lowest CPU quota of the cgroup and its ancestors, in CPUs."""
    group = read_group(host, "cpu", process)
    if isinstance(group, Missing):
        return group
    quotas = []
    for directory in group.directories:
        quota = _quota_of(host, directory, group.version)
        if isinstance(quota, float):
            quotas.append(quota)
    return min(quotas, default=Missing("none: no CPU quota on the cgroup or its ancestors"))


def _quota_of(host: Host, directory: str, version: int) -> float | Missing | None:
    if version == 1:
        quota = attempt(host.read_text, f"{directory}/cpu.cfs_quota_us")
        period = attempt(host.read_text, f"{directory}/cpu.cfs_period_us")
        if isinstance(quota, Missing):
            return quota
        return period if isinstance(period, Missing) else parse_cfs_quota(quota, period)
    return read_parsed(host, f"{directory}/cpu.max", parse_cpu_max)


def _read_model(host: Host) -> str | Missing:
    text = attempt(host.read_text, "/proc/cpuinfo")
    if isinstance(text, Missing):
        return text
    match = re.search(r"^(?:model name|Model|cpu model|uarch)\s*:\s*(\S.*)$", text, re.MULTILINE)
    return match[1].strip() if match else Missing("/proc/cpuinfo names no model")


POLICIES = "/sys/devices/system/cpu/cpufreq"
MOST_POLICIES = 1024
"""Maximum number of policies to read; many drivers have one for each CPU."""


def read_governors(host: Host) -> list[str] | Missing:
    """The governors in use, each once, sorted.

    Source: Documentation/admin-guide/pm/cpufreq.rst.
    """
    policies = _policies(host)
    if isinstance(policies, Missing):
        return policies
    found = set()
    for policy in policies:
        text = attempt(host.read_text, f"{POLICIES}/{policy}/scaling_governor")
        if isinstance(text, str) and re.fullmatch(r"[\w-]{1,32}", text.strip()):
            found.add(text.strip())
    return sorted(found) or Missing("no policy has a governor")


def read_frequency_driver(host: Host) -> str | Missing:
    """The CPU frequency driver; a host has only one."""
    policies = _policies(host)
    if isinstance(policies, Missing):
        return policies
    text = attempt(host.read_text, f"{POLICIES}/{policies[0]}/scaling_driver")
    return text if isinstance(text, Missing) else text.strip() or Missing("it has no name")


def read_isolated(host: Host, allowed: frozenset[int] | Missing) -> int | Missing:
    """The number of allowed CPUs without load balancing by the scheduler.

    Source: Documentation/admin-guide/kernel-parameters.txt, isolcpus=domain; isolated partitions of
            cpusets are included.
    """
    text = attempt(host.read_text, "/sys/devices/system/cpu/isolated")
    if isinstance(text, Missing):
        return text
    isolated = parse_id_list(text)
    if isinstance(isolated, Missing):
        return isolated
    return len(isolated) if isinstance(allowed, Missing) else len(isolated & allowed)


def _policies(host: Host) -> list[str] | Missing:
    names = attempt(host.list_dir, POLICIES)
    if isinstance(names, Missing):
        return Missing(f"no frequency is set here ({names.reason})")
    found = [name for name in names if re.fullmatch(r"policy\d{1,6}", name)]
    return found[:MOST_POLICIES] or Missing("no frequency is set here")


def read_throttled(host: Host, process: str) -> Throttled | Missing:
    """Throttling by the CPU quotas of a process's cgroup and its ancestors.

    Each group counts its own throttling; the group that was throttled longest is returned.
    """
    group = read_group(host, "cpu", process)
    if isinstance(group, Missing):
        return group
    found: list[Throttled] = []
    for directory in group.directories:
        text = attempt(host.read_text, f"{directory}/cpu.stat")
        counted = None if isinstance(text, Missing) else parse_throttling(text)
        if counted is not None:
            found.append(
                Throttled(
                    directory=directory,
                    periods=counted.periods,
                    throttled_periods=counted.throttled_periods,
                    throttled_seconds=counted.throttled_seconds,
                )
            )
    if not found:
        return Missing("no control group of the process counts throttling")
    return max(found, key=lambda t: (t.throttled_seconds, t.throttled_periods, t.periods))


def read_steal_ratio(host: Host) -> float | Missing:
    """The share of CPU time since boot that the hypervisor gave to other guests."""
    text = attempt(host.read_text, "/proc/stat")
    if isinstance(text, Missing):
        return text
    counted = parse_host_cpu(text)
    if counted is None or counted.total <= 0:
        return Missing("/proc/stat does not have it")
    return round(min(1.0, counted.steal / counted.total), 4)


MOST_INTERRUPTS = 1024
"""Maximum number of interrupts of a device to read."""
_TOP = "/sys/devices"


class Interrupts(NamedTuple):
    """The interrupts of a device."""

    number: int
    cpus: int | Missing
    """The number of CPUs that the interrupts are delivered to now."""


def read_numa_node(host: Host, directory: str) -> int | Missing:
    """The NUMA node of a device by its directory (links resolved), or of the bus above it.

    Source: Documentation/ABI/testing/sysfs-bus-pci: ``numa_node``, -1 where the firmware reports
    none.
    """
    nodes = read_parsed(host, "/sys/devices/system/node/online", parse_id_list)
    if isinstance(nodes, Missing):
        return nodes
    if len(nodes) < 2:  # noqa: PLR2004
        return Missing("a host of one node")
    while directory.startswith(_TOP + "/"):
        text = attempt(host.read_text, f"{directory}/numa_node")
        if isinstance(text, str):
            node = parse_integer(text)
            if isinstance(node, int) and node < 0:
                return Missing("the firmware reports no node")
            return node
        directory = posixpath.dirname(directory)
    return Missing("it is not on a bus with a node")


def read_interrupts(host: Host, directory: str) -> Interrupts | Missing:
    """The message-signalled interrupts of a device (links resolved) or of the bus just above it.

    A virtual NIC is a virtio device, whose interrupts are those of its PCI device.

    Source: Documentation/ABI/testing/sysfs-bus-pci, msi_irqs; Documentation/core-api/irq/
            irq-affinity.rst, effective_affinity_list since 4.13.
    """
    numbers: list[str] = []
    for place in (directory, posixpath.dirname(directory)):
        listed = attempt(host.list_dir, f"{place}/msi_irqs")
        if not isinstance(listed, Missing):
            numbers = [name for name in listed if name.isdecimal() and len(name) < 10]  # noqa: PLR2004
            break
    if not numbers:
        return Missing("no message-signalled interrupts")
    cpus: set[int] = set()
    reason = Missing("no interrupt is assigned to a CPU")
    for number in numbers[:MOST_INTERRUPTS]:
        found = read_parsed(host, f"/proc/irq/{number}/effective_affinity_list", parse_id_list)
        if isinstance(found, Missing):
            reason = found
        else:
            cpus |= found
    return Interrupts(len(numbers), len(cpus) or reason)
