"""How many worker processes a configuration gives on its host."""

from __future__ import annotations

from nginx_tune.audit.context import Context
from nginx_tune.conf.quantities import parse_count

NEEDED = "cpu.online"
"""The fact that ``worker_processes auto`` stands on."""


def worker_count(context: Context) -> int | None:
    """The number of workers; null when it is the host's CPUs and those are not known.

    Source: ngx_set_worker_processes, ngx_core_module_init_conf.
    """
    line = context.tree.main.first("worker_processes")
    if line is None:
        return None if context.tree.is_part else 1
    if line.value == "auto":
        return context.facts.cpu.online
    return parse_count(line.value)
