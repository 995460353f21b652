"""Processors: online, allowed, and what a quota leaves of them."""

from __future__ import annotations

import math
import re

from msgspec.structs import replace

from nginx_tune.documents.facts import Cpu
from nginx_tune.host.cgroup import ControlGroup, read_group
from nginx_tune.host.cpu_policy import read_frequency_driver, read_governors, read_isolated
from nginx_tune.host.cpu_time import read_steal_ratio, read_throttled
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known
from nginx_tune.host.parse_cgroup import parse_cfs_quota, parse_cpu_max
from nginx_tune.host.parse_process import parse_status
from nginx_tune.host.parse_values import parse_id_list

_CPUSET_FILES = {
    1: ("cpuset.effective_cpus", "cpuset.cpus"),
    2: ("cpuset.cpus.effective",),
}


def read_cpu(host: Host, *, process: str = "self") -> tuple[Cpu, Gaps]:
    """Processors that a process (a pid or ``self``) may use."""
    gaps: Gaps = {}
    online = _read_online(host)
    allowed = _read_allowed(host, process, online)
    quota = _read_quota(host, process)
    online_count = known(online if isinstance(online, Missing) else len(online), gaps, "/online")
    allowed_count = known(
        allowed if isinstance(allowed, Missing) else len(allowed), gaps, "/cpuset"
    )
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
    """The processors with what ``worker_processes auto`` makes of them, and what fits.

    Source: ngx_posix_init.c asks sysconf(_SC_NPROCESSORS_ONLN). glibc answers with the CPUs
            online (getsysstats.c; 2.34 alone with the affinity mask, unless patched), musl with
            the affinity mask (src/conf/sysconf.c). Neither knows a quota.
    """
    counted = cpu.cpuset if libc == "musl" else cpu.online
    reason = {
        "musl": "musl counts the CPUs of the affinity mask and the cpuset",
        "glibc": "glibc counts the CPUs online, whatever cpuset, affinity and quota say",
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
    text = attempt(host.read_text, path)
    siblings = text if isinstance(text, Missing) else parse_id_list(text)
    if isinstance(siblings, Missing):
        return siblings
    return len(siblings) or Missing(f"{path} is empty")


def _read_numa_nodes(host: Host) -> int | Missing:
    """Nodes that are online; a kernel without NUMA has no such file."""
    text = attempt(host.read_text, "/sys/devices/system/node/online")
    nodes = text if isinstance(text, Missing) else parse_id_list(text)
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
    """CPUs of the affinity mask and of the cpuset that are online."""
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
    sets = [one for one in found if isinstance(one, frozenset) and one]
    if not sets:
        return status if isinstance(status, Missing) else Missing("no affinity mask, no cpuset")
    allowed = frozenset.intersection(*sets)
    return allowed if isinstance(online, Missing) else allowed & online or online


def _read_quota(host: Host, process: str) -> float | Missing:
    """The least CPU quota of the cgroup and its ancestors, in CPUs."""
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
    text = attempt(host.read_text, f"{directory}/cpu.max")
    return text if isinstance(text, Missing) else parse_cpu_max(text)


def _read_model(host: Host) -> str | Missing:
    text = attempt(host.read_text, "/proc/cpuinfo")
    if isinstance(text, Missing):
        return text
    match = re.search(r"^(?:model name|Model|cpu model|uarch)\s*:\s*(\S.*)$", text, re.MULTILINE)
    return match[1].strip() if match else Missing("/proc/cpuinfo names no model")
