"""Files of ``/proc/PID``: limits, status, stat, cmdline."""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.host.gaps import Missing
from nginx_tune.host.parse_values import parse_integer

UNLIMITED = (1 << 63) - 1
"""What an unlimited number of descriptors is written as (RLIM_INFINITY is no JSON integer)."""


class OpenFiles(NamedTuple):
    """Soft and hard limit of open descriptors."""

    soft: int
    hard: int


def parse_open_files(text: str) -> OpenFiles | Missing:
    """The line ``Max open files`` of ``/proc/PID/limits``.

    Source: proc_pid_limits(5).
    """
    match = re.search(r"^Max open files\s+(\w+)\s+(\w+)", text, re.MULTILINE)
    if match is None:
        return Missing("/proc/PID/limits has no line 'Max open files'")
    soft, hard = (UNLIMITED if v == "unlimited" else parse_integer(v) for v in match.groups())
    if isinstance(soft, Missing):
        return soft
    return hard if isinstance(hard, Missing) else OpenFiles(soft, hard)


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
