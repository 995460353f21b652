"""Files of ``/proc/PID``: limits, status, stat, cmdline, maps."""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.host.parse_values import parse_integer

UNLIMITED = (1 << 63) - 1
"""What an unlimited number of descriptors is written as (RLIM_INFINITY is no JSON integer)."""


class DescriptorLimit(NamedTuple):
    """Soft and hard limit of open descriptors."""

    soft: int
    hard: int


def parse_open_files(text: str) -> DescriptorLimit | Missing:
    """The line ``Max open files`` of ``/proc/PID/limits``.

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
    """Fields of ``/proc/PID/status`` by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, separator, value in pairs if separator}


def parse_parent_pid(stat: str) -> int | Missing:
    """The parent in ``/proc/PID/stat``; the name in brackets may itself hold brackets."""
    words = stat.rpartition(")")[2].split()
    return parse_integer(words[1]) if len(words) > 1 else Missing("/proc/PID/stat is cut off")


def parse_cmdline(data: bytes) -> list[str]:
    """Arguments of a process. A process title (setproctitle) is one argument."""
    text = data.decode(errors="surrogateescape")
    return text.rstrip("\0 ").split("\0") if text.strip("\0 ") else []


TICKS_PER_SECOND = 100
"""USER_HZ, the unit of times in ``/proc``, on every architecture that nginx is built for."""

_START_FIELD = 19
"""Of the fields behind the name in ``/proc/PID/stat``: ``starttime``, field 22."""

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
"""By number (include/uapi/linux/capability.h)."""


def parse_soft_limits(text: str) -> dict[str, int]:
    """Soft limits of ``/proc/PID/limits`` other than of open files; unlimited ones left out."""
    found = {}
    for title, name in _LIMITS.items():
        match = re.search(rf"^{title}\s+([0-9]{{1,20}})\s", text, re.MULTILINE)
        if match:
            found[name] = int(match[1])
    return found


def parse_start_seconds(stat: str) -> float | Missing:
    """When a process started, in seconds since boot, from ``/proc/PID/stat``."""
    words = stat.rpartition(")")[2].split()
    if len(words) <= _START_FIELD:
        return Missing("/proc/PID/stat is cut off")
    ticks = parse_integer(words[_START_FIELD])
    return ticks if isinstance(ticks, Missing) else ticks / TICKS_PER_SECOND


def parse_uptime(text: str) -> float | Missing:
    """Seconds since boot, from ``/proc/uptime``."""
    match = re.match(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\s|$)", text)
    return float(match[1]) if match else Missing(f"not an uptime: {text.strip()[:40]!r}")


def parse_capabilities(mask: str) -> list[str] | Missing:
    """Names of the capabilities in a mask of ``/proc/PID/status``; later ones by number."""
    if not re.fullmatch(r"[0-9a-f]{1,16}", mask):
        return Missing(f"not a mask of capabilities: {mask[:40]!r}")
    bits = int(mask, 16)
    return [
        CAPABILITIES[number] if number < len(CAPABILITIES) else str(number)
        for number in range(bits.bit_length())
        if bits >> number & 1
    ]


def parse_mapped_files(maps: str) -> list[str]:
    """Files that a process has mapped, each once, in the order of ``/proc/PID/maps``."""
    paths = re.findall(r"^[0-9a-f*-]+ \S+ \S+ \S+ \S+ +(/.+)$", maps, re.MULTILINE)
    return list(dict.fromkeys(path.removesuffix(" (deleted)") for path in paths))
