"""Which served directories cannot be held by the page cache.

All files that nginx serves share one page cache, so the sum of all served directories is held
against it. Below ``COLD`` times the cache it depends on what is asked for, and nothing is
claimed.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.audit.rule import MissingFacts
from nginx_tune.audit.storage import (
    Size,
    covering,
    is_in_memory,
    is_inside,
    outermost,
    page_cache_bytes,
    size_of,
)
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Served
from nginx_tune.conf.thread_pools import asked_pool
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts

COLD = 2.0
"""Served bytes ÷ page cache from which most files cannot be resident. The thread-pool article's
host has 5.3; below 2 a popular half can still be held."""

SHARE = 0.1
"""A directory with less than this part of all served bytes is not what fills the cache."""


class Total(NamedTuple):
    """All served directories together, each byte counted once."""

    size: Size
    missing: tuple[str, ...]
    """Facts without which it is not known exactly."""


class Cold(NamedTuple):
    """A served directory that is too large to be held, read inside the event loop."""

    served: Served
    evidence: list[Evidence]


def offloads(served: Served) -> bool:
    """Whether reads of files go to a thread pool here."""
    return asked_pool(served.scope.effective("aio")) is not None


def total_served(served: list[Served], facts: Facts) -> Total:
    """How much nginx serves from disk."""
    whole = {one.path: one for one in served if one.is_whole}
    sizes = {path: size_of(path, facts.datasets) for path in outermost(whole)}
    highs = [size.high for size in sizes.values() if size.high is not None]
    return Total(
        Size(
            sum(size.low for size in sizes.values()),
            sum(highs) if len(highs) == len(sizes) else None,
        ),
        tuple(
            _bytes_of(whole[path], facts) for path, size in sizes.items() if size.low != size.high
        ),
    )


def cold_and_blocking(
    served: list[Served], facts: Facts, total: Total
) -> list[Cold | MissingFacts]:
    """Directories whose reads are sure to block workers, and what is missing to tell of others.

    Only on Linux: FreeBSD has asynchronous reads of its own.
    """
    system = facts.kernel.system
    blocking = _blocking(served, facts)
    if not blocking or system not in {None, "Linux"}:
        return []
    limit = page_cache_bytes(facts)
    if limit is None or system is None:
        datasets = sorted({_bytes_of(one, facts) for one in blocking})
        return [MissingFacts((*_host_facts(system, limit), *datasets))]
    if total.size.high is not None and total.size.high < COLD * limit:
        return []
    found: list[Cold | MissingFacts] = []
    missing: set[str] = set()
    for one in blocking:
        size = size_of(one.path, facts.datasets)
        if total.size.low >= COLD * limit and size.low >= SHARE * total.size.low:
            found.append(Cold(one, _evidence(one, size, total, limit)))
        elif size.high is None or size.high >= SHARE * COLD * limit:
            missing.update(total.missing)
            if size.low != size.high:
                missing.add(_bytes_of(one, facts))
    return [*found, MissingFacts(tuple(sorted(missing)))] if missing else found


def is_cold(served: Served, facts: Facts, total: Total) -> bool | None:
    """Whether a directory is large and part of what cannot be held; null when not known."""
    limit = page_cache_bytes(facts)
    if limit is None:
        return None
    size = size_of(served.path, facts.datasets)
    if total.size.low >= COLD * limit and size.low >= SHARE * total.size.low:
        return True
    can_be_cold = total.size.high is None or total.size.high >= COLD * limit
    can_be_large = size.high is None or size.high >= SHARE * COLD * limit
    is_open = bool(total.missing) or size.low != size.high
    return None if can_be_cold and can_be_large and is_open else False


def sizes_missing(unknown: list[Served], facts: Facts, total: Total) -> MissingFacts:
    """What it takes to tell of directories whether they are cold."""
    names = {_bytes_of(served, facts) for served in unknown}
    if page_cache_bytes(facts) is None:
        names.add("memory.page_cache_limit_bytes")
    return MissingFacts(tuple(sorted(names.union(total.missing))))


def _blocking(served: list[Served], facts: Facts) -> list[Served]:
    """Where files are read in the event loop, and nobody sends the large ones elsewhere.

    Where another scope of the same server offloads reads of the same files or a part of them,
    it cannot be told which of them come through this scope.
    """
    offloaded: dict[Directive, list[str]] = {}
    for one in served:
        if offloads(one):
            offloaded.setdefault(one.scope.server, []).append(one.path)
    return [
        one
        for one in served
        if one.is_whole
        and one.scope.value("aio", "off") == "off"
        and not is_in_memory(one.path, facts)
        and not any(is_inside(path, one.path) for path in offloaded.get(one.scope.server, ()))
    ]


def _host_facts(system: str | None, limit: int | None) -> tuple[str, ...]:
    names = [] if system is not None else ["kernel.system"]
    return (*names, *([] if limit is not None else ["memory.page_cache_limit_bytes"]))


def _bytes_of(served: Served, facts: Facts) -> str:
    """The fact that tells how much is served: of the root first, which is sure to be there."""
    is_root_known = covering(served.root, facts.datasets) is not None
    return _bytes(served.path if is_root_known else served.root)


def _bytes(path: str) -> str:
    return f"datasets[{path}].bytes"


def _evidence(served: Served, size: Size, total: Total, limit: int) -> list[Evidence]:
    low = total.size.low
    return [
        Evidence(fact=_bytes(served.path), value=size.low, unit="bytes"),
        Evidence(fact="served_bytes", value=low, unit="bytes"),
        Evidence(fact="memory.page_cache_limit_bytes", value=limit, unit="bytes"),
        Evidence(fact="served_bytes_per_page_cache_byte", value=round(low / limit, 2)),
    ]
