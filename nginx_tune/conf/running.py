"""How many processes serve, and what each of them may have, by a configuration's own lines."""

from __future__ import annotations

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.quantities import parameter, parse_count
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree

MOST_PROCESSES = 1024
"""Source: NGX_MAX_PROCESSES."""


def single_process(tree: ConfTree) -> Directive | None:
    """The line that has one process serve, whatever ``worker_processes`` says; null for none.

    Source: main() and ngx_single_process_cycle(), which also leaves ``worker_rlimit_nofile`` and
    ``worker_cpu_affinity`` alone.
    """
    line = tree.main.first("master_process")
    return line if line is not None and line.value.lower() == "off" else None


def workers_in(tree: ConfTree, automatic: int | None, *, by_default: int | None = 1) -> int | None:
    """The processes that serve; null where nobody knows.

    ``automatic`` is what ``auto`` becomes on the host, ``by_default`` what holds without a line.
    """
    if tree.is_part:
        return None
    if single_process(tree) is not None:
        return 1
    line = tree.main.first("worker_processes")
    if line is None:
        return by_default
    number = automatic if line.value == "auto" else parse_count(line.value)
    return None if number is None else max(1, min(MOST_PROCESSES, number))


def connections_in(tree: ConfTree, by_default: int) -> int | None:
    """The ``worker_connections`` that hold; null where nobody knows.

    Source: ngx_event_connections(), which refuses a second line.
    """
    if tree.is_part:
        return None
    blocks = [line.block for line in tree.main.all("events") if line.block is not None]
    lines = [one for block in blocks for one in block.all("worker_connections")]
    return parse_count(lines[-1].value) if lines else by_default


def open_file_caches(tree: ConfTree) -> dict[Directive, int]:
    """The entries of each cache of open files that a worker has: each holds a descriptor."""
    lines = dict.fromkeys(scope.effective("open_file_cache") for scope in scopes(tree))
    return {
        line: parse_count(parameter(line.args, "max") or "") or 0
        for line in lines
        if line is not None and line.value.lower() != "off"
    }


def descriptors_in(tree: ConfTree) -> int | None:
    """What ``worker_rlimit_nofile`` gives; null where it is not said, or not for anybody."""
    line = tree.main.first("worker_rlimit_nofile")
    if line is None or single_process(tree) is not None:
        return None
    return parse_count(line.value)
