"""Directories of a configuration, matched with the datasets, disks and page cache of the facts.

A dataset at or below a directory is a lower bound of what the directory holds; one at or above
it, scanned to its end, is an upper bound. Nothing else is taken for knowledge.

All files that nginx serves share one page cache, so the sum of all served directories is held
against it. Below ``COLD`` times the cache it depends on what is asked for, and nothing is
claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nginx_tune.audit.hit import MissingFacts
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Served
from nginx_tune.conf.workers import asked_pool
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Dataset, Facts, PathStorage
from nginx_tune.documents.facts_storage import IN_MEMORY, NETWORK_FILESYSTEMS

SLOW_CLASSES = frozenset({"hdd", "network"})
"""Classes of disks on which a small write can take milliseconds."""


class Size(NamedTuple):
    """Bounds of a number of bytes; no ``high`` when there is none."""

    low: int
    high: int | None


def page_cache_bytes(facts: Facts) -> int | None:
    """Bytes that the page cache can hold; null when not known."""
    limit = facts.memory.page_cache_limit_bytes
    return limit if limit is not None and limit > 0 else None


def size_of(path: str, datasets: Iterable[Dataset]) -> Size:
    """Bytes of files in a directory."""
    below: dict[str, int] = {}
    high: int | None = None
    for dataset in datasets:
        if dataset.bytes is None:
            continue
        if is_inside(dataset.path, path):
            below[dataset.path] = max(dataset.bytes, below.get(dataset.path, 0))
        if dataset.complete and is_inside(path, dataset.path):
            high = dataset.bytes if high is None else min(high, dataset.bytes)
    return Size(sum(below[inner] for inner in outermost(below)), high)


def covering(path: str, datasets: Sequence[Dataset]) -> Dataset | None:
    """The narrowest dataset that holds a directory whole."""
    if not datasets:
        return None
    around = [dataset for dataset in datasets if is_inside(path, dataset.path)]
    return max(around, key=lambda dataset: len(dataset.path), default=None)


def storage_of(path: str, facts: Facts) -> PathStorage | None:
    """The storage of a directory: the entry of the path itself or of the nearest one above it.

    An entry of ``/`` says nothing about what may be mounted below.
    """
    if not facts.storage.paths:
        return None
    around = [
        entry
        for entry in facts.storage.paths
        if is_inside(path, entry.path) and (entry.path != "/" or path == "/")
    ]
    return max(around, key=lambda entry: len(entry.path), default=None)


def leaf_disks_of(path: str, facts: Facts) -> frozenset[str] | None:
    """The leaf disks under a directory; null when not known."""
    entry = storage_of(path, facts)
    return frozenset(entry.leaf_disks) if entry is not None and entry.leaf_disks else None


def is_in_memory(path: str, facts: Facts) -> bool:
    """True of a directory that is known to lie on no disk at all."""
    entry = storage_of(path, facts)
    return entry is not None and entry.filesystem in IN_MEMORY


def disk_classes_of(path: str, facts: Facts) -> set[str]:
    """The classes of the disks under a directory; empty when not known."""
    disks = leaf_disks_of(path, facts) or frozenset()
    return {disk.class_ for disk in facts.storage.disks if disk.name in disks}


def is_slow(path: str, facts: Facts) -> bool | None:
    """True where writes to a directory go to a slow disk; null when nothing is known of it."""
    entry = storage_of(path, facts)
    if entry is None:
        return None
    classes = disk_classes_of(path, facts)
    return entry.filesystem in NETWORK_FILESYSTEMS or bool(classes & SLOW_CLASSES)


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that lie inside none of the others, sorted."""
    found: list[str] = []
    # With a slash at the end, what is inside a directory follows it.
    for path in sorted(paths, key=lambda path: path.rstrip("/") + "/"):
        if not found or not is_inside(path, found[-1]):
            found.append(path)
    return found


def is_inside(path: str, directory: str) -> bool:
    """True when a path is a directory or lies below it."""
    base = directory if directory.endswith("/") else directory + "/"
    return path == directory or path.startswith(base) or path + "/" == base


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
    """True where reads of files go to a thread pool."""
    return asked_pool(served.scope.effective("aio")) is not None


def total_served(served: list[Served], facts: Facts) -> Total:
    """All the files that nginx serves from disk, each byte counted once."""
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

    On FreeBSD only where nginx is built for its asynchronous reads, which take no thread pool.
    """
    system = facts.kernel.system
    blocking = _blocking(served, facts)
    own = system == "FreeBSD" and "--with-file-aio" in facts.nginx.flags
    if not blocking or not (own or system in {None, "Linux"}):
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
    """True of a large directory that is part of what memory cannot hold; null when not known."""
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
    """The facts that are missing to tell which directories are cold."""
    names = {_bytes_of(served, facts) for served in unknown}
    if page_cache_bytes(facts) is None:
        names.add("memory.page_cache_limit_bytes")
    return MissingFacts(tuple(sorted(names.union(total.missing))))


def _blocking(served: list[Served], facts: Facts) -> list[Served]:
    """Directories whose files are read in the event loop, and of which none goes elsewhere.

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
