"""What goes with what: decisions of which one does harm, or nothing, without another.

A cache without its key has one page for all hosts. A pool that no location asks for is memory for
nothing, and a location that asks for a pool that is not there keeps nginx from starting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from nginx_tune.documents.decisions import Decision, DecisionId

READ_BY_THREADS: tuple[DecisionId, ...] = ("thread-pools", "per-disk-pools")
"""What has files read by threads."""


class _Bond(NamedTuple):
    needs: tuple[DecisionId, ...]
    """All of these, where they write something."""
    directive: str = ""
    """Only where it writes this one."""


GOES_WITH: dict[DecisionId, tuple[_Bond, ...]] = {
    "cache-layout": (_Bond(("cache-key",), "proxy_cache"),),
    "cache-key": (_Bond(("cache-layout",)),),
    "cache-misses": (_Bond(("cache-layout",)),),
    "cache-updates": (_Bond(("cache-layout",)),),
    "thread-pools": (_Bond(("thread-pool-size", "ktls")),),
    "per-disk-pools": (_Bond(("ktls",)),),
    "thread-pool-size": (_Bond(READ_BY_THREADS),),
    "aio-write": (_Bond(READ_BY_THREADS),),
    "output-buffers": (_Bond(READ_BY_THREADS),),
    "ktls": (_Bond(READ_BY_THREADS),),
}


BRINGS: dict[DecisionId, tuple[DecisionId, ...]] = {"connections": ("file-limits",)}
"""What comes along where a decision alone is wanted; without it there would be fewer."""
BY_THREADS = frozenset(
    name for name, bonds in GOES_WITH.items() for one in bonds if one.needs == READ_BY_THREADS
)
"""What is of no use where no file is read by threads."""

_READS: frozenset[DecisionId] = frozenset(
    {*READ_BY_THREADS, *BY_THREADS, "directio", "sendfile-max-chunk", "open-file-cache"}
)
_DESCRIPTORS: frozenset[DecisionId] = frozenset({"connections", "file-limits", "open-file-cache"})
RESTS_ON: dict[str, frozenset[DecisionId]] = {
    "workers": _READS
    | _DESCRIPTORS
    | {"accept", "backlog", "reuseport", "upstream-keepalive", "http3", "sendfile"},
    "no_pools": _READS | {"reuseport", "sendfile", "workers"},
    "connections": _DESCRIPTORS | {"upstream-keepalive"},
    "descriptors": _DESCRIPTORS | {"upstream-keepalive"},
    "open_files": frozenset({"file-limits"}),
    "no_sendfile": _READS | {"reuseport"},
}
"""By what of a configuration may stay (``Staying``): the decisions whose lines or words differ."""


def needed_by(decision: Decision, others: Sequence[Decision]) -> Iterator[Decision]:
    """The decisions with something to write that this one, which has as well, needs beside it."""
    written = {one.directive for one in decision.settings}
    for bond in GOES_WITH.get(decision.id, ()):
        if written and (not bond.directive or bond.directive in written):
            yield from (one for one in others if one.id in bond.needs and one.settings)


def _brought(decision: Decision, others: Sequence[Decision]) -> Iterator[Decision]:
    names = BRINGS.get(decision.id, ()) if decision.settings else ()
    yield from (one for one in others if one.id in names and one.settings)


def with_companions(decisions: Sequence[Decision], wanted: Collection[str]) -> set[str]:
    """The ids that are wanted, with those of what they need, and of what that needs."""
    found = set(wanted)
    while more := {
        need.id
        for one in decisions
        if one.id in found
        for need in (*needed_by(one, decisions), *_brought(one, decisions))
        if need.id not in found
    }:
        found |= more
    return found


def left_alone(decisions: Sequence[Decision], kept: Collection[str]) -> dict[str, str]:
    """Those of ``kept`` that need what is not kept, each with the id of that."""
    left: dict[str, str] = {}
    while more := [
        (one.id, need.id)
        for one in decisions
        if one.id in kept and one.id not in left
        for need in needed_by(one, decisions)
        if need.id not in kept or need.id in left
    ]:
        left.update(more)
    return left
