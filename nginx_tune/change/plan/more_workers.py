"""What comes with more workers than there are, and what one worker alone can do.

Each has its own count of limits, its own sessions of datagrams and its own Lua.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nginx_tune.change.plan.kept import max_conns
from nginx_tune.change.plan.standing import Standing, holds
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.one_worker import streams_of_one_worker, why_one_worker
from nginx_tune.conf.running import single_process
from nginx_tune.documents.decisions import Decision

_ONE = ("0", "1")


def with_more_workers(decisions: Sequence[Decision], standing: Standing) -> list[Decision]:
    """The decisions; that of ``workers`` with what changes where there are to be more of them."""
    zoned = {
        one.block.lower()
        for decision in decisions
        for one in decision.settings
        if one.directive == "zone"
    }
    return [
        replace(one, risks=[*one.risks, *_bounds(standing, zoned)])
        if one.id == "workers" and _is_changed(one, standing)
        else one
        for one in decisions
    ]


def _is_changed(decision: Decision, standing: Standing) -> bool:
    return any(
        wanted.args[0] not in _ONE and not all(holds(line, wanted) for line in lines)
        for wanted in decision.settings
        if wanted.directive == "worker_processes" and (lines := standing.lines(wanted))
    )


def _bounds(standing: Standing, zoned: set[str]) -> Iterator[str]:
    """The bounds of connections of which each worker has its own, as no zone is there or comes."""
    for group in standing.kept.groups:
        bound = max_conns(group)
        if bound is None or group.name in zoned or group.block.first("zone") is not None:
            continue
        yield (
            f"{_place(bound)} counts in each worker unless the upstream has a zone: with more "
            "workers it lets more connections through"
        )


def workers_withheld(decision: Decision, standing: Standing) -> str:
    """The reason against more workers; empty where there is none.

    More than one, or ``auto``, is its operator's own, and whatever that breaks is broken, but for
    live streams.
    """
    tree = standing.tree
    found = why_one_worker(tree)
    if found is not None and streams_of_one_worker(tree) is not None:
        return found.why
    if (alone := single_process(tree)) is not None and _is_changed(decision, standing):
        return f"with {_place(alone)} one process serves, whatever worker_processes says"
    processes = tree.main.first("worker_processes")
    if (processes is not None and processes.value != "1") or not _is_changed(decision, standing):
        return ""
    return "" if found is None else found.why


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"
