"""Directories of a configuration matched with the datasets and disks of the facts.

A dataset at or below a directory is a lower bound of what the directory holds; one at or above
it, scanned to its end, is an upper bound. Nothing else is taken for knowledge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nginx_tune.decide.storage import IN_MEMORY, NETWORK
from nginx_tune.documents.facts import Dataset, Facts, PathStorage

SLOW_CLASSES = frozenset({"hdd", "network"})
"""Classes of disks on which a small write can take milliseconds."""


class Size(NamedTuple):
    """Bounds of a number of bytes; no ``high`` when there is none."""

    low: int
    high: int | None


def page_cache_bytes(facts: Facts) -> int | None:
    """What the page cache can hold; null when not known."""
    limit = facts.memory.page_cache_limit_bytes
    return limit if limit is not None and limit > 0 else None


def size_of(path: str, datasets: Iterable[Dataset]) -> Size:
    """How many bytes of files a directory holds."""
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


def covering(path: str, datasets: Iterable[Dataset]) -> Dataset | None:
    """The narrowest dataset that holds a directory whole."""
    around = [dataset for dataset in datasets if is_inside(path, dataset.path)]
    return max(around, key=lambda dataset: len(dataset.path), default=None)


def storage_of(path: str, facts: Facts) -> PathStorage | None:
    """Where a directory lives: the entry of the path itself or of the nearest one above it.

    An entry of ``/`` says nothing about what may be mounted below.
    """
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
    """Whether a directory is known to lie on no disk at all."""
    entry = storage_of(path, facts)
    return entry is not None and entry.filesystem in IN_MEMORY


def disk_classes_of(path: str, facts: Facts) -> set[str]:
    """The classes of the disks under a directory; empty when not known."""
    disks = leaf_disks_of(path, facts) or frozenset()
    return {disk.class_ for disk in facts.storage.disks if disk.name in disks}


def is_slow(path: str, facts: Facts) -> bool | None:
    """Whether writes to a directory go to a slow disk; null when nothing is known of it."""
    entry = storage_of(path, facts)
    if entry is None:
        return None
    classes = disk_classes_of(path, facts)
    return entry.filesystem in NETWORK or bool(classes & SLOW_CLASSES)


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that lie inside none of the others, sorted."""
    found: list[str] = []
    # With a slash at the end, what is inside a directory follows it.
    for path in sorted(paths, key=lambda path: path.rstrip("/") + "/"):
        if not found or not is_inside(path, found[-1]):
            found.append(path)
    return found


def is_inside(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it."""
    base = directory if directory.endswith("/") else directory + "/"
    return path == directory or path.startswith(base) or path + "/" == base
