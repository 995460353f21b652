"""Texts of ``/proc`` and ``/sys``: single values, processes, CPU time, memory, cgroups; pure.

Control groups have two versions. A hybrid host has some controllers on version 1 and
the others on version 2, so the version is a property of one controller, never of the host.
"""

import re
from typing import Literal, NamedTuple

from nginx_tune.documents.facts import Swap
from nginx_tune.host.door import Missing

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def parse_integer(text: str) -> int | Missing:
    """The decimal number that is a file's whole text."""
    text = text.strip()
    if not _INTEGER.fullmatch(text):
        return Missing(f"not a number: {text[:40]!r}")
    return int(text)


def parse_id_list(text: str) -> frozenset[int] | Missing:
    """CPU or node numbers in the kernel's list form, such as ``0-3,8``; may be empty.

    Source: Documentation/core-api/cpu_hotplug.rst, lib/bitmap-str.c bitmap_parselist().
    """
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            return Missing(f"not a list of CPUs: {text.strip()[:40]!r}")
        first = int(match[1])
        found.update(range(first, int(match[2] or first) + 1))
    return frozenset(found)


def parse_choice(text: str) -> str | Missing:
    """The chosen word of a sysfs menu, such as ``none [mq-deadline] kyber``."""
    match = re.search(r"\[([\w+-]+)\]", text)
    if match:
        return match[1]
    words = text.split()
    return words[0] if len(words) == 1 else Missing(f"nothing chosen in {text.strip()[:40]!r}")


def parse_release(release: str) -> tuple[int, int]:
    """The major and minor number of a kernel release; ``(0, 0)`` for another form."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


UNLIMITED = (1 << 63) - 1
"""The value for unlimited descriptors (RLIM_INFINITY does not fit into a JSON integer)."""


class DescriptorLimit(NamedTuple):
    """The soft and hard limit of open descriptors."""

    soft: int
    hard: int


def parse_open_files(text: str) -> DescriptorLimit | Missing:
    """The limits in the line ``Max open files`` of ``/proc/PID/limits``.

    Source: proc_pid_limits(5).
    """
    match = re.search(r"^Max open files\s+(\w+)\s+(\w+)", text, re.MULTILINE)
    if match is None:
        return Missing("/proc/PID/limits has no line 'Max open files'")
    soft, hard = (UNLIMITED if v == "unlimited" else parse_integer(v) for v in match.groups())
    if isinstance(soft, Missing):
        return soft
    return hard if isinstance(hard, Missing) else DescriptorLimit(soft, hard)


def parse_status(text: str) -> dict[str, str]:
    """The fields of ``/proc/PID/status`` by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, separator, value in pairs if separator}


def parse_parent_pid(stat: str) -> int | Missing:
    """The parent's pid, which follows the name; the name may itself contain brackets."""
    words = stat.rpartition(")")[2].split()
    return parse_integer(words[1]) if len(words) > 1 else Missing("/proc/PID/stat is cut off")


def parse_cmdline(data: bytes) -> list[str]:
    """The arguments of a process; a title (setproctitle) is one argument."""
    text = data.decode(errors="surrogateescape")
    return text.rstrip("\0 ").split("\0") if text.strip("\0 ") else []


TICKS_PER_SECOND = 100
"""USER_HZ, the unit of times in ``/proc``, on every architecture that nginx is built for."""

_START_FIELD = 19
"""Index of ``starttime`` (field 22) after the name in ``/proc/PID/stat``."""

_LIMITS = {
    "Max processes": "processes",
    "Max locked memory": "locked_memory_bytes",
    "Max address space": "address_space_bytes",
    "Max core file size": "core_file_bytes",
    "Max file size": "file_size_bytes",
}

CAPABILITIES = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid",
    "setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw",
    "ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct",
    "sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod",
    "lease", "audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog",
    "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore",
)  # fmt: skip
"""The names by number (include/uapi/linux/capability.h)."""


def parse_soft_limits(text: str) -> dict[str, int]:
    """The finite soft limits in ``/proc/PID/limits``, except the limit of open files."""
    found = {}
    for title, name in _LIMITS.items():
        match = re.search(rf"^{title}\s+([0-9]{{1,20}})\s", text, re.MULTILINE)
        if match:
            found[name] = int(match[1])
    return found


def parse_start_seconds(stat: str) -> float | Missing:
    """The start of a process in seconds since boot, from ``/proc/PID/stat``."""
    words = stat.rpartition(")")[2].split()
    if len(words) <= _START_FIELD:
        return Missing("/proc/PID/stat is cut off")
    ticks = parse_integer(words[_START_FIELD])
    return ticks if isinstance(ticks, Missing) else ticks / TICKS_PER_SECOND


def parse_uptime(text: str) -> float | Missing:
    """The seconds since boot, from ``/proc/uptime``."""
    match = re.match(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\s|$)", text)
    return float(match[1]) if match else Missing(f"not an uptime: {text.strip()[:40]!r}")


def parse_capabilities(mask: str) -> list[str] | Missing:
    """The names in a capability mask of ``/proc/PID/status``; unknown capabilities by number."""
    if not re.fullmatch(r"[0-9a-f]{1,16}", mask):
        return Missing(f"not a mask of capabilities: {mask[:40]!r}")
    bits = int(mask, 16)
    return [
        CAPABILITIES[number] if number < len(CAPABILITIES) else str(number)
        for number in range(bits.bit_length())
        if bits >> number & 1
    ]


def parse_mapped_files(maps: str) -> list[str]:
    """A process's mapped files, each once, in the order of ``/proc/PID/maps``."""
    paths = re.findall(r"^[0-9a-f*-]+ \S+ \S+ \S+ \S+ +(/.+)$", maps, re.MULTILINE)
    return list(dict.fromkeys(path.removesuffix(" (deleted)") for path in paths))


class Throttling(NamedTuple):
    """The effects of a control group's CPU quota."""

    periods: int
    throttled_periods: int
    throttled_seconds: float
    """Throttled time, summed over the group's CPUs."""


def parse_throttling(text: str) -> Throttling | None:
    """The quota's counters in ``cpu.stat``; None for a group without a quota.

    Source: cpu_cfs_stat_show (version 1, nanoseconds) and cpu_extra_stat_show (version 2,
    microseconds) in kernel/sched/core.c.
    """
    found = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)  # noqa: PLR2004
    try:
        periods, throttled = int(found["nr_periods"]), int(found["nr_throttled"])
        if "throttled_usec" in found:
            return Throttling(periods, throttled, int(found["throttled_usec"]) / 1e6)
        return Throttling(periods, throttled, int(found["throttled_time"]) / 1e9)
    except (KeyError, ValueError):
        return None


class HostCpu(NamedTuple):
    """The first line of /proc/stat: all CPUs, in clock ticks."""

    total: int
    idle: int
    """Idle time, including ``iowait``."""
    steal: int
    iowait: int
    """Idle time while a task waited for a disk."""


def parse_host_cpu(text: str) -> HostCpu | None:
    """The time of all CPUs since boot.

    Source: proc(5): user nice system idle iowait irq softirq steal; guest time is in user.
    """
    fields = text.split("\n", 1)[0].split()
    if fields[:1] != ["cpu"] or len(fields) < 9 or not all(map(str.isdecimal, fields[1:9])):  # noqa: PLR2004
        return None
    numbers = [int(field) for field in fields[1:9]]
    return HostCpu(sum(numbers), numbers[3] + numbers[4], numbers[7], numbers[4])


_MEMINFO_LINE = re.compile(r"^([\w()]+):\s+([0-9]{1,18})( kB)?$", re.MULTILINE)


def parse_meminfo(text: str) -> dict[str, int]:
    """The fields by name, in bytes; the counts of huge pages remain counts."""
    return {
        match[1]: int(match[2]) * (1024 if match[3] else 1)
        for match in _MEMINFO_LINE.finditer(text)
    }


def total_memory_bytes(fields: dict[str, int]) -> int | Missing:
    """``MemTotal``."""
    return fields.get("MemTotal", Missing("/proc/meminfo has no MemTotal"))


def available_memory_bytes(fields: dict[str, int]) -> int | Missing:
    """``MemAvailable``; before Linux 3.14, the sum of free memory and file data."""
    if "MemAvailable" in fields:
        return fields["MemAvailable"]
    if "MemFree" in fields and "Cached" in fields:
        return fields["MemFree"] + fields.get("Buffers", 0) + fields["Cached"]
    return Missing("/proc/meminfo has no MemAvailable")


_CONSUMERS = {
    "anonymous": ("AnonPages",),
    "shared": ("Shmem",),
    "kernel": ("SUnreclaim", "KernelStack", "PageTables", "Percpu"),
}


def memory_consumers(fields: dict[str, int]) -> dict[str, int]:
    """Bytes of memory that file data cannot use, by known kind."""
    found = {
        kind: sum(fields.get(name, 0) for name in names)
        for kind, names in _CONSUMERS.items()
        if names[0] in fields
    }
    if "HugePages_Total" in fields and "Hugepagesize" in fields:
        found["huge_pages"] = fields["HugePages_Total"] * fields["Hugepagesize"]
    return found


def parse_kstat(text: str) -> dict[str, int]:
    """The numbers of a ZFS kstat by name, from lines of name, type and value."""
    return {
        name: int(value)
        for name, value in re.findall(r"^(\w+)\s+[0-9]+\s+([0-9]{1,20})$", text, re.MULTILINE)
    }


_SWAP_LINE = re.compile(r"^(\S+)\s+(partition|file)\s+([0-9]{1,18})\s+([0-9]{1,18})\s+-?[0-9]+$")


def parse_swaps(text: str) -> list[Swap]:
    """The swap areas.

    Source: mm/swapfile.c swap_show(): sizes in KiB, names with octal escapes.
    """
    found = []
    for line in text.splitlines():
        match = _SWAP_LINE.match(line.strip())
        if match is None:
            continue
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), match[1])
        kind: Literal["zram", "partition", "file"]
        if re.fullmatch(r"/dev/zram\d+", path):
            kind = "zram"
        else:
            kind = "file" if match[2] == "file" else "partition"
        size, used = int(match[3]) * 1024, int(match[4]) * 1024
        found.append(Swap(path=path, kind=kind, size_bytes=size, used_bytes=used))
    return found


_UNLIMITED_V1 = 1 << 60
"""Version 1 prints LONG_MAX rounded down to a page for "no limit" (mm/memcontrol.c)."""


class Membership(NamedTuple):
    """The control group of a process in one hierarchy."""

    version: int
    controllers: frozenset[str]
    path: str


def parse_membership(text: str) -> list[Membership]:
    """The memberships in ``/proc/PID/cgroup``; malformed lines are skipped.

    Source: cgroups(7): ``hierarchy-ID:controller-list:cgroup-path``; version 2 is ``0::PATH``.
    """
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if not separator or not number.isdecimal() or not path.startswith("/"):
            continue
        names = frozenset(filter(None, controllers.split(",")))
        found.append(Membership(2 if number == "0" and not names else 1, names, path))
    return found


def membership_for(memberships: list[Membership], controller: str) -> Membership | Missing:
    """The membership for a controller: version 1 if the controller is there, else version 2."""
    own = [group for group in memberships if controller in group.controllers]
    unified = [group for group in memberships if group.version == 2]  # noqa: PLR2004
    return next(iter(own + unified), Missing(f"no cgroup with the {controller} controller"))


def parse_memory_limit(text: str) -> int | Missing | None:
    """A memory limit in bytes; None for unlimited (``max``, or version 1's sentinel)."""
    if text.strip() == "max":
        return None
    value = parse_integer(text)
    if isinstance(value, Missing):
        return value
    return None if value < 0 or value >= _UNLIMITED_V1 else value


def parse_memory_stat(text: str) -> dict[str, int]:
    """The fields of ``memory.stat``, in bytes and counts."""
    pairs = re.findall(r"^(\w+) ([0-9]{1,20})$", text, re.MULTILINE)
    return {name: int(value) for name, value in pairs}


def unreclaimable_bytes(stat: dict[str, int], version: int) -> int | Missing:
    """Memory of a group and its children that file data cannot displace.

    It is anonymous and shared memory, and on version 2 the kernel's unreclaimable memory.
    """
    if version == 1:
        if "total_rss" not in stat:
            return Missing("memory.stat has no total_rss")
        return stat["total_rss"] + stat.get("total_shmem", 0)
    if "anon" not in stat:
        return Missing("memory.stat has no anon")
    kernel = max(0, stat.get("kernel", 0) - stat.get("slab_reclaimable", 0))
    return stat["anon"] + stat.get("shmem", 0) + kernel


def parse_cpu_max(text: str) -> float | Missing | None:
    """The quota in ``cpu.max``, in CPUs; None if there is no quota."""
    words = text.split()
    if words and words[0] == "max":
        return None
    return _cpus(*words) if len(words) == 2 else Missing(f"not a quota: {text.strip()[:40]!r}")  # noqa: PLR2004


def parse_cfs_quota(quota: str, period: str) -> float | Missing | None:
    """The quota of version 1 (``cpu.cfs_quota_us``), in CPUs; None if there is no quota (-1)."""
    if quota.strip() == "-1":
        return None
    return _cpus(quota, period)


def _cpus(quota: str, period: str) -> float | Missing:
    quota_us, period_us = parse_integer(quota), parse_integer(period)
    if isinstance(quota_us, Missing):
        return quota_us
    if isinstance(period_us, Missing):
        return period_us
    if quota_us <= 0 or period_us <= 0:
        return Missing(f"not a quota: {quota.strip()[:20]} of {period.strip()[:20]}")
    return quota_us / period_us
