"""What comes with more workers than there are: each has its own Lua, its own count of limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nginx_tune.adopt.kept import max_conns
from nginx_tune.adopt.standing import Standing, holds
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision

_LUA = re.compile(r"[a-z_]+_by_lua(?:_block|_file)?")
_AT_START = re.compile(r"init_worker_by_lua(?:_block|_file)?")
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
        replace(one, risks=[*one.risks, *_bounds(standing, zoned), *_lua(standing)])
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


def _lua(standing: Standing) -> Iterator[str]:
    """The first line of Lua whose tables and timers one worker has had for all.

    Source: lua-nginx-module, Data Sharing within an Nginx Worker: each worker loads modules of its
            own and runs ``init_worker_by_lua``; ``lua_shared_dict`` is shared by all.
    """
    if not standing.kept.is_one_worker:
        return
    if (line := _first(standing.tree, _AT_START)) is not None:
        yield (
            f"{line.file}:{line.line} {line.name} runs in each worker: its timers run as often as "
            "there are workers, and what Lua keeps in variables of a module, each has for itself"
        )
    elif (line := _first(standing.tree, _LUA)) is not None:
        yield (
            f"{line.file}:{line.line} {line.name}: what Lua keeps in variables of a module, each "
            "worker has for itself; only a lua_shared_dict is of all"
        )


def _first(tree: ConfTree, name: re.Pattern[str]) -> Directive | None:
    return next((one for one in tree.main.walk() if name.fullmatch(one.name)), None)


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"
