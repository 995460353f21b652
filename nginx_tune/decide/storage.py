"""Directories of the data: the disks under them, the files in them, and how often each is asked.

Where one directory is asked far more often than another, memory holds its files and hardly any of
the other's: of the reads that a slow disk with an archive gets, the share of requests says little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from nginx_tune.decide.model.cache import (
    HALF_PAGE_BYTES,
    PAGE_BYTES,
    PopularityClass,
    missed_shares,
    zipf_classes,
)
from nginx_tune.decide.model.inputs import BlockingInputs, usable_objects
from nginx_tune.decide.model.reads import SizeGroup, size_groups
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import Dataset, PathStorage, Storage
from nginx_tune.documents.facts_storage import IN_MEMORY, NETWORK_FILESYSTEMS, is_shared_folder


class DataPath(NamedTuple):
    """A directory of the site and what lies under it."""

    path: str
    leaf_disks: tuple[str, ...] = ()
    """Empty when not known."""
    read_ahead_bytes: int | None = None
    """The window of the device that the file system is on, which may stack the leaves."""
    filesystem: str | None = None
    size_bytes: int | None = None
    """Size of the file system."""
    available_bytes: int | None = None
    """Bytes of these that can still be written."""
    device: str = ""
    """The block device that the file system is on; empty when not known."""


class Independence(NamedTuple):
    """The independence of directories: do they share no disk, and who says so."""

    independent: bool
    provenance: Provenance
    reason: str


def data_paths(paths: Sequence[str], storage: Storage) -> list[DataPath]:
    """Each directory with the disks of the recorded path nearest above it.

    The root directory tells nothing about what lies below it: a mount may be in between.
    """
    return [_data_path(path, storage.paths) for path in paths]


def _data_path(path: str, recorded: Sequence[PathStorage]) -> DataPath:
    above = sorted(
        (place for place in recorded if _tells_of(place.path, path)),
        key=lambda place: len(_parts(place.path)),
    )
    on_disks = [
        place
        for place in above
        if place.leaf_disks or place.filesystem in IN_MEMORY | NETWORK_FILESYSTEMS
    ]
    # What is free is known of a network's or a container's file system too, its disks are not.
    sized = [place for place in above if place in on_disks or place.size_bytes is not None]
    if not sized:
        return DataPath(path)
    room = sized[-1]
    if not on_disks:
        return DataPath(
            path,
            filesystem=room.filesystem,
            size_bytes=room.size_bytes,
            available_bytes=room.available_bytes,
        )
    nearest = on_disks[-1]
    return DataPath(
        path,
        tuple(sorted(set(nearest.leaf_disks))),
        nearest.read_ahead_bytes,
        nearest.filesystem,
        room.size_bytes,
        room.available_bytes,
        nearest.stack[0] if nearest.stack else "",
    )


def _tells_of(place: str, path: str) -> bool:
    above, wanted = _parts(place), _parts(path)
    return wanted == above or (len(above) > 1 and wanted[: len(above)] == above)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    """The components of a path; a break-even compares the same few paths thousands of times."""
    return PurePosixPath(path).parts


def replaced_by_others(paths: Sequence[str], storage: Storage) -> bool:
    """True if one of the directories lies on a network's file system, with or without disks."""
    for path in map(_parts, paths):
        above = [
            (len(parts), place.filesystem)
            for place in storage.paths
            if path[: len(parts := _parts(place.path))] == parts
        ]
        if above and max(above, key=lambda one: one[0])[1] in NETWORK_FILESYSTEMS:
            return True
    return False


OWN_READ_AHEAD = NETWORK_FILESYSTEMS | {"zfs", "btrfs"}
"""File systems that read ahead by windows of their own: what is set of the devices under them does
nothing. Source: zfetch of OpenZFS; Linux fs/btrfs/disk-io.c and fs/nfs/super.c, whose superblocks
have a backing_dev_info of their own (of btrfs at least 4 MiB)."""


def on_network(places: Sequence[DataPath]) -> str | None:
    """The file system of the network that a directory lies on; null where none does."""
    return next((p.filesystem for p in places if p.filesystem in NETWORK_FILESYSTEMS), None)


def filesystems_under(paths: Sequence[str], storage: Storage) -> list[str]:
    """The file systems that directories lie on, each once; empty unless all are known."""
    found = []
    for path in paths:
        above = [one for one in storage.paths if _tells_of(one.path, path)]
        nearest = max(above, key=lambda one: len(_parts(one.path)), default=None)
        if nearest is None or nearest.filesystem is None:
            return []
        found.append(nearest.filesystem)
    return list(dict.fromkeys(found))


def on_shared_folder(paths: Sequence[str], storage: Storage) -> str | None:
    """The file system of a virtual machine's shared folder that directories lie on.

    Where the facts tell of none of them, what was recorded counts.
    """
    found = [one for path in paths for one in filesystems_under([path], storage)]
    known = found or [one.filesystem for one in storage.paths if one.filesystem is not None]
    return next((one for one in known if is_shared_folder(one)), None)


def judge_independence(paths: Sequence[DataPath]) -> Independence:
    """The independence of directories: does each have disks of its own.

    Several directories whose disks the facts do not know count as independent because the
    operator named them; that is declared, not measured.
    """
    if len(paths) < 2:  # noqa: PLR2004  # nothing to tell apart
        return Independence(independent=False, provenance="measured", reason="one directory")
    unknown = [p.path for p in paths if not p.leaf_disks]
    seen: set[str] = set()
    for place in paths:
        if seen & set(place.leaf_disks):
            reason = f"{place.path} shares a disk with another directory"
            return Independence(independent=False, provenance="measured", reason=reason)
        seen |= set(place.leaf_disks)
    if unknown:
        reason = f"the facts do not say which disk {unknown[0]} is on"
        return Independence(independent=True, provenance="declared", reason=reason)
    return Independence(independent=True, provenance="measured", reason="no disk is shared")


def independent_mounts(storage: Storage) -> list[str]:
    """Recorded data directories with disks of their own: where a cache would be spread.

    Shape: in the facts' order; empty unless there are two or more. The root file system is left
           out, and a directory whose disks were taken already.
    """
    seen: set[str] = set()
    chosen = []
    for place in storage.paths:
        leaves = set(place.leaf_disks)
        if not leaves or leaves & seen or "/" in (place.path, place.mount_point):
            continue
        if place.path in chosen:
            continue
        seen |= leaves
        chosen.append(place.path)
    return chosen if len(chosen) > 1 else []


def scanned_sizes(datasets: Sequence[Dataset]) -> tuple[SizeGroup, ...]:
    """Sizes of the files about their mean."""
    scanned = [d.sizes.buckets for d in datasets if d.sizes is not None]
    return size_groups([bucket for buckets in scanned for bucket in buckets])


def directories_of(datasets: Sequence[Dataset]) -> float | None:
    """Directories that the files lie in, where all scans counted them."""
    counts = [d.directories for d in datasets if d.files]
    return float(sum(counts)) if counts and all(counts) else None


def page_waste_bytes(datasets: Sequence[Dataset], mean_bytes: float) -> float:
    """Bytes that a file's last page leaves free: known where a scan found one size alone."""
    scanned = [d.sizes for d in datasets if d.sizes is not None]
    if scanned and all(sizes.mean_bytes == sizes.max_bytes for sizes in scanned):
        return float(-round(mean_bytes) % PAGE_BYTES)
    return max(HALF_PAGE_BYTES, PAGE_BYTES - mean_bytes)


class AskedPlace(NamedTuple):
    """A directory with what clients want of it."""

    disks: tuple[str, ...]
    requests: float
    """In proportion to those of the other directories."""
    bytes: float
    """Bytes of its files."""


def asked_places(
    places: Sequence[DataPath], requests: Mapping[str, float], datasets: Sequence[Dataset]
) -> tuple[AskedPlace, ...]:
    """The directories that are asked, each with its data.

    Shape: empty unless there are several, and somebody knows how often each is asked and how much
           lies in it.
    """
    asked = [place for place in places if requests.get(place.path)]
    known = {place.path: _bytes_in(place, places, datasets) for place in asked}
    if len(asked) < 2 or not all(known.values()):  # noqa: PLR2004  # nothing to tell apart
        return ()
    return tuple(
        AskedPlace(place.leaf_disks, requests[place.path], known[place.path]) for place in asked
    )


def _bytes_in(place: DataPath, places: Sequence[DataPath], datasets: Sequence[Dataset]) -> float:
    """Bytes scanned at or below a directory, and not below another one inside of it."""
    return math.fsum(
        dataset.bytes or 0
        for dataset in datasets
        if _nearest(dataset.path, places) == PurePosixPath(place.path)
    )


def _nearest(path: str, places: Sequence[DataPath]) -> PurePosixPath | None:
    wanted = PurePosixPath(path)
    roots = [PurePosixPath(place.path) for place in places]
    above = [root for root in roots if wanted.is_relative_to(root)]
    return max(above, key=lambda one: len(one.parts), default=None)


def classes_of_places(
    places: Sequence[AskedPlace], objects: float, exponent: float
) -> tuple[PopularityClass, ...]:
    """Popularity of so many objects, skewed in each directory by itself."""
    return tuple(one for group in _groups(places, objects, exponent) for one in group)


def requests_by_disk(places: Sequence[DataPath], requests: Mapping[str, float]) -> dict[str, float]:
    """Requests for files on each disk, in proportion; empty where nobody knows."""
    found: dict[str, float] = {}
    for place in places:
        share = requests.get(place.path, 0.0)
        for name in place.leaf_disks:
            found[name] = found.get(name, 0.0) + share / len(place.leaf_disks)
    return found


def reads_by_disk(places: Sequence[AskedPlace], i: BlockingInputs) -> dict[str, float]:
    """The same of those requests alone that memory does not answer; empty where it answers all.

    Within a directory all files count as equally popular: what is compared is one with the other.
    """
    if i.asked.once:
        missed = [place.requests for place in places]
    else:
        missed = missed_shares(
            _groups(places, i.objects, 0.0),
            usable_objects(i),
            i.asked.requests,
            began_full=i.asked.began_full,
        )
    found: dict[str, float] = {}
    for place, share in zip(places, missed, strict=True):
        for name in place.disks:
            found[name] = found.get(name, 0.0) + share / len(place.disks)
    return found if sum(found.values()) > 0 else {}


def _groups(
    places: Sequence[AskedPlace], objects: float, exponent: float
) -> list[tuple[PopularityClass, ...]]:
    """The classes of each directory; probabilities are of all requests."""
    data = math.fsum(place.bytes for place in places)
    requests = math.fsum(place.requests for place in places)
    return [
        tuple(
            PopularityClass(one.objects, one.probability_each * place.requests / requests)
            for one in zipf_classes(max(1.0, objects * place.bytes / data), exponent)
        )
        for place in places
    ]
