"""Directories of a configuration, matched with the datasets, disks and page cache of the facts.

A dataset at or below a directory is a lower bound of the directory's bytes; one at or above it,
scanned completely, is an upper bound. All served files share one page cache, so the sum of all
served directories is compared with it. Below ``COLD`` times the cache, the outcome depends on which
files are requested, and nothing is reported.
"""

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
"""Disk classes on which a small write can take milliseconds."""


class Size(NamedTuple):
    """Bounds in bytes; ``high`` is None if there is no upper bound."""

    low: int
    high: int | None


def page_cache_bytes(facts: Facts) -> int | None:
    """Bytes that the page cache can hold; None if not known."""
    limit = facts.memory.page_cache_limit_bytes
    return limit if limit is not None and limit > 0 else None


def size_of(path: str, datasets: Iterable[Dataset]) -> Size:
    """Lower and upper bound on the total size of the files in a directory."""
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
    """The narrowest dataset that contains a whole directory."""
    if not datasets:
        return None
    around = [dataset for dataset in datasets if is_inside(path, dataset.path)]
    return max(around, key=lambda dataset: len(dataset.path), default=None)


def storage_of(path: str, facts: Facts) -> PathStorage | None:
    """The storage of a directory: the entry of the path itself or of the nearest one above it.

    An entry for ``/`` counts for ``/`` only: other file systems may be mounted below it.
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
    """The leaf disks under a directory; None if not known."""
    entry = storage_of(path, facts)
    return frozenset(entry.leaf_disks) if entry is not None and entry.leaf_disks else None


def is_in_memory(path: str, facts: Facts) -> bool:
    """True if the directory is known to be on a file system in memory."""
    entry = storage_of(path, facts)
    return entry is not None and entry.filesystem in IN_MEMORY


def disk_classes_of(path: str, facts: Facts) -> set[str]:
    """The classes of the disks under a directory; empty if not known."""
    disks = leaf_disks_of(path, facts) or frozenset()
    return {disk.class_ for disk in facts.storage.disks if disk.name in disks}


def is_slow(path: str, facts: Facts) -> bool | None:
    """True if writes to a directory go to a slow disk; None if nothing is known about it."""
    entry = storage_of(path, facts)
    if entry is None:
        return None
    classes = disk_classes_of(path, facts)
    return entry.filesystem in NETWORK_FILESYSTEMS or bool(classes & SLOW_CLASSES)


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not inside another path, sorted."""
    found: list[str] = []
    # With a trailing slash, the contents of a directory sort after it.
    for path in sorted(paths, key=lambda path: path.rstrip("/") + "/"):
        if not found or not is_inside(path, found[-1]):
            found.append(path)
    return found


def is_inside(path: str, directory: str) -> bool:
    """True if a path is the directory or below it."""
    base = directory if directory.endswith("/") else directory + "/"
    return path == directory or path.startswith(base) or path + "/" == base


COLD = 2.0
"""Ratio of served bytes to page cache above which most files cannot be resident. The host of the
thread-pool article has 5.3; below 2 a popular half still fits."""

SHARE = 0.1
"""A directory with a smaller share of all served bytes does not fill the cache."""


class Total(NamedTuple):
    """All served directories together, each byte counted once."""

    size: Size
    missing: tuple[str, ...]
    """Facts that are missing for an exact size."""


class Cold(NamedTuple):
    """A served directory that is too large for the page cache and read in the event loop."""

    served: Served
    evidence: list[Evidence]


def offloads(served: Served) -> bool:
    """True if file reads go to a thread pool."""
    return asked_pool(served.scope.effective("aio")) is not None


def total_served(served: list[Served], facts: Facts) -> Total:
    """The bytes of all files that nginx serves from disk, each counted once."""
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
    """Directories whose reads certainly block workers, and the facts missing for others.

    FreeBSD counts only if nginx is built for its asynchronous reads, which need no thread pool.
    """
    system = facts.kernel.system
    blocking = _blocking(served, facts)
    has_native_aio = system == "FreeBSD" and "--with-file-aio" in facts.nginx.flags
    if not blocking or not (has_native_aio or system in {None, "Linux"}):
        return []
    limit = page_cache_bytes(facts)
    if limit is None or system is None:
        datasets = sorted({_bytes_of(served, facts) for served in blocking})
        return [MissingFacts((*_host_facts(system, limit), *datasets))]
    if total.size.high is not None and total.size.high < COLD * limit:
        return []
    found: list[Cold | MissingFacts] = []
    missing: set[str] = set()
    for directory in blocking:
        size = size_of(directory.path, facts.datasets)
        if total.size.low >= COLD * limit and size.low >= SHARE * total.size.low:
            found.append(Cold(directory, _evidence(directory, size, total, limit)))
        elif size.high is None or size.high >= SHARE * COLD * limit:
            missing.update(total.missing)
            if size.low != size.high:
                missing.add(_bytes_of(directory, facts))
    return [*found, MissingFacts(tuple(sorted(missing)))] if missing else found


def is_cold(served: Served, facts: Facts, total: Total) -> bool | None:
    """True for a large directory among more data than fits in memory; None if not known."""
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
    """The facts that are missing to decide which directories are cold."""
    names = {_bytes_of(served, facts) for served in unknown}
    if page_cache_bytes(facts) is None:
        names.add("memory.page_cache_limit_bytes")
    return MissingFacts(tuple(sorted(names.union(total.missing))))


def _blocking(served: list[Served], facts: Facts) -> list[Served]:
    """Directories whose files are all read in the event loop.

    A directory is left out if another scope of the same server offloads reads of some of its files:
    it is not known which of the scopes a request uses.
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
    """The name of a missing fact: bytes of the root, else of the directory."""
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
