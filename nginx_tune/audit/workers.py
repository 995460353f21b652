"""How many worker processes a configuration gives on its host."""

from __future__ import annotations

from nginx_tune.audit import processes
from nginx_tune.audit.context import Context
from nginx_tune.audit.rule import Missing

NEEDED = "cpu.online"
"""The fact that ``worker_processes auto`` stands on."""


def worker_count(context: Context) -> int | None:
    """The number of workers; null when it is the host's CPUs and those are not known."""
    number = processes.worker_count(context)
    return None if isinstance(number, Missing) else number.value
