"""Which served directories cannot be held by the page cache.

All files that nginx serves share one page cache, so the sum of all served directories is held
against it. Below ``COLD`` times the cache it depends on what is asked for, and nothing is
claimed.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.audit.context import Context, offloads
from nginx_tune.audit.rule import Missing
from nginx_tune.audit.storage import Size, covering, is_in_memory, is_inside, size_of
from nginx_tune.conf.served import Served
from nginx_tune.documents.decisions import Evidence

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


def total_served(context: Context) -> Total:
    """How much nginx serves from disk."""
    whole = {served.path: served for served in context.served if served.is_whole}
    outermost = [
        whole[path]
        for path in sorted(whole)
        if not any(other != path and is_inside(path, other) for other in whole)
    ]
    sizes = [size_of(served.path, context.facts.datasets) for served in outermost]
    highs = [size.high for size in sizes if size.high is not None]
    return Total(
        Size(sum(size.low for size in sizes), sum(highs) if len(highs) == len(sizes) else None),
        tuple(
            _bytes_of(served, context)
            for served, size in zip(outermost, sizes, strict=True)
            if size.low != size.high
        ),
    )


def cold_and_blocking(context: Context) -> list[Cold | Missing]:
    """Directories whose reads are sure to block workers, and what is missing to tell of others.

    Only on Linux: FreeBSD has asynchronous reads of its own.
    """
    blocking = [served for served in context.served if _may_block(served, context)]
    if not blocking or context.is_linux is False:
        return []
    limit = context.facts.memory.page_cache_limit_bytes
    if limit is None or context.is_linux is None:
        datasets = sorted({_bytes_of(served, context) for served in blocking})
        return [Missing((*_host_facts(context, limit), *datasets))]
    total = total_served(context)
    if total.size.high is not None and total.size.high < COLD * limit:
        return []
    found: list[Cold | Missing] = []
    for served in blocking:
        size = size_of(served.path, context.facts.datasets)
        if total.size.low >= COLD * limit and size.low >= SHARE * total.size.low:
            found.append(Cold(served, _evidence(served, size, total, limit)))
        elif size.high is None or size.high >= SHARE * COLD * limit:
            own = [] if size.low == size.high else [_bytes_of(served, context)]
            if total.missing or own:
                found.append(Missing(tuple(sorted({*total.missing, *own}))))
    return found


def _may_block(served: Served, context: Context) -> bool:
    """Whether files are read in the event loop here, and nobody sends the large ones elsewhere.

    Where another scope of the same server offloads reads of the same files or a part of them,
    it cannot be told which of them come through this scope.
    """
    aio = served.scope.effective("aio")
    if not served.is_whole or (aio is not None and aio.value != "off"):
        return False
    if is_in_memory(served.path, context.facts):
        return False
    return not any(
        offloads(other)
        and other.scope.server is served.scope.server
        and is_inside(other.path, served.path)
        for other in context.served
    )


def _host_facts(context: Context, limit: int | None) -> tuple[str, ...]:
    names = [] if context.is_linux is not None else ["kernel.system"]
    return (*names, *([] if limit is not None else ["memory.page_cache_limit_bytes"]))


def _bytes_of(served: Served, context: Context) -> str:
    """The fact that tells how much is served: of the root first, which is sure to be there."""
    is_root_known = covering(served.root, context.facts.datasets) is not None
    return _bytes(served.path if is_root_known else served.root)


def _bytes(path: str) -> str:
    return f"datasets[{path}].bytes"


def _evidence(served: Served, size: Size, total: Total, limit: int) -> list[Evidence]:
    low = total.size.low
    return [
        Evidence(fact=_bytes(served.path), value=size.low, unit="bytes"),
        Evidence(fact="served_bytes", value=low, unit="bytes"),
        Evidence(fact="memory.page_cache_limit_bytes", value=limit, unit="bytes"),
        Evidence(fact="served_bytes_per_page_cache_byte", value=round(low / max(limit, 1), 2)),
    ]
