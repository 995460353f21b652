"""What goes with what: decisions of which one does harm, or nothing, without another.

A cache without its key has one page for all hosts. A pool that no location asks for is memory for
nothing, and a location that asks for a pool that is not there keeps nginx from starting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from nginx_tune.documents.decisions import Decision, DecisionId

_ASKS: tuple[DecisionId, ...] = ("thread-pools", "per-disk-pools")
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
    "thread-pool-size": (_Bond(_ASKS),),
    "aio-write": (_Bond(_ASKS),),
    "output-buffers": (_Bond(_ASKS),),
    "ktls": (_Bond(_ASKS),),
}


def needed_by(decision: Decision, others: Sequence[Decision]) -> Iterator[Decision]:
    """The decisions with something to write that this one, which has as well, needs beside it."""
    written = {one.directive for one in decision.settings}
    for bond in GOES_WITH.get(decision.id, ()):
        if written and (not bond.directive or bond.directive in written):
            yield from (one for one in others if one.id in bond.needs and one.settings)


def with_companions(decisions: Sequence[Decision], wanted: Collection[str]) -> set[str]:
    """The ids that are wanted, with those of what they need, and of what that needs."""
    found = set(wanted)
    while more := {
        need.id
        for one in decisions
        if one.id in found
        for need in needed_by(one, decisions)
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
