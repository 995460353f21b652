"""Data directories with their disks, their files and their shares of requests.

Memory holds mostly files of popular directories, so a disk's share of reads may be far from its
share of requests.
"""

import math
from collections.abc import Collection, Mapping, Sequence
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
from nginx_tune.decide.model.disk import ModelDisk, disk_models, network_files
from nginx_tune.decide.model.inputs import BlockingInputs, usable_objects
from nginx_tune.decide.model.reads import SizeGroup, size_groups
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import Dataset, Disk, PathStorage, Storage
from nginx_tune.documents.facts_storage import (
    IN_MEMORY,
    NETWORK_FILESYSTEMS,
    SharedCurve,
    is_shared_folder,
)


class DataPath(NamedTuple):
    """A directory of the site with its storage."""

    path: str
    leaf_disks: tuple[str, ...] = ()
    """Names of the leaf disks; empty if not known."""
    read_ahead_bytes: int | None = None
    """Window of the file system's device, which may be stacked on the leaf disks."""
    filesystem: str | None = None
    size_bytes: int | None = None
    """Size of the file system."""
    available_bytes: int | None = None
    """Free bytes of the file system."""
    device: str = ""
    """Block device of the file system; empty when not known."""


class Independence(NamedTuple):
    """True if no two directories share a disk, with the provenance and the reason."""

    independent: bool
    provenance: Provenance
    reason: str


def data_paths(paths: Sequence[str], storage: Storage) -> list[DataPath]:
    """Each directory with the storage of the nearest recorded path above it, except ``/``.

    Another file system may be mounted between ``/`` and the directory.
    """
    return [_data_path(path, storage.paths) for path in paths]


def _data_path(path: str, recorded: Sequence[PathStorage]) -> DataPath:
    above = sorted(
        (place for place in recorded if _covers(place.path, path)),
        key=lambda place: len(_parts(place.path)),
    )
    on_disks = [
        place
        for place in above
        if place.leaf_disks or place.filesystem in IN_MEMORY | NETWORK_FILESYSTEMS
    ]
    # Network and container file systems have known free space, but unknown disks.
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


def _covers(place: str, path: str) -> bool:
    above, wanted = _parts(place), _parts(path)
    return wanted == above or (len(above) > 1 and wanted[: len(above)] == above)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    """The components of a path; cached, since a break-even compares a few paths very often."""
    return PurePosixPath(path).parts


def replaced_by_others(paths: Sequence[str], storage: Storage) -> bool:
    """True if one of the directories is on a network file system."""
    for path in map(_parts, paths):
        above = [
            (len(parts), place.filesystem)
            for place in storage.paths
            if path[: len(parts := _parts(place.path))] == parts
        ]
        if above and max(above, key=lambda one: one[0])[1] in NETWORK_FILESYSTEMS:
            return True
    return False


def disks_under(
    places: Sequence[DataPath], storage: Storage, *, scanned: Collection[str] | None = None
) -> list[Disk]:
    """The disks of the directories, by name.

    If none is known, the disks of the ``scanned`` directories, or else the host's only disk. If
    ``scanned`` is None, the data is on a network file system, so no disk of the host counts.
    """
    known = {disk.name: disk for disk in storage.disks}
    names = {name for path in places for name in path.leaf_disks if name in known}
    if not names and scanned is not None:
        paths = (place for place in storage.paths if place.path in scanned)
        names = {name for place in paths for name in place.leaf_disks if name in known}
        if not names and len(known) == 1:
            names = {*known}
    return [known[name] for name in sorted(names)]


def knee_of(disks: Sequence[Disk], shared_curves: Sequence[SharedCurve]) -> int | None:
    """Concurrent reads that disks serve; None unless all were measured, alone or together."""
    names = {disk.name for disk in disks}
    knees = [
        part.curve.knee_depth or 1
        for part in shared_curves
        if part.disks and names >= set(part.disks)
    ]
    shared = {name for part in shared_curves for name in part.disks}
    for disk in disks:
        if disk.name in shared:
            continue
        if disk.curve is None:
            return None
        knees.append(disk.curve.knee_depth or 1)
    return max(1, sum(knees)) if knees else None


def models_under(
    disks: Sequence[Disk],
    places: Sequence[DataPath],
    shared_curves: Sequence[SharedCurve],
    link_bytes_per_second: float | None,
) -> list[ModelDisk]:
    """Models of the disks; an unmeasured network file system has a model of its own."""
    names = {
        name
        for place in places
        if place.filesystem in NETWORK_FILESYSTEMS
        for name in place.leaf_disks or [place.path]
    }
    measured = {disk.name for disk in disks if disk.curve is not None}
    local = [disk for disk in disks if disk.name not in names - measured]
    remote = [network_files(name, link_bytes_per_second) for name in sorted(names - measured)]
    return [*disk_models(local, shared_curves), *remote]


OWN_READ_AHEAD = NETWORK_FILESYSTEMS | {"zfs", "btrfs"}
"""File systems with their own read-ahead, which ignore the windows of their devices. Source: zfetch
of OpenZFS; Linux fs/btrfs/disk-io.c and fs/nfs/super.c, whose superblocks have their own
backing_dev_info (at least 4 MiB for btrfs)."""


def on_network(places: Sequence[DataPath]) -> str | None:
    """The first network file system under the directories; None if there is none."""
    return next((p.filesystem for p in places if p.filesystem in NETWORK_FILESYSTEMS), None)


def filesystems_under(paths: Sequence[str], storage: Storage) -> list[str]:
    """The distinct file systems of the directories; empty unless all are known."""
    found = []
    for path in paths:
        above = [place for place in storage.paths if _covers(place.path, path)]
        nearest = max(above, key=lambda place: len(_parts(place.path)), default=None)
        if nearest is None or nearest.filesystem is None:
            return []
        found.append(nearest.filesystem)
    return list(dict.fromkeys(found))


def on_shared_folder(paths: Sequence[str], storage: Storage) -> str | None:
    """The shared folder of a virtual machine under the directories; None without one.

    Where the facts do not cover the directories, all recorded paths count.
    """
    found = [filesystem for path in paths for filesystem in filesystems_under([path], storage)]
    known = found or [place.filesystem for place in storage.paths if place.filesystem is not None]
    return next((filesystem for filesystem in known if is_shared_folder(filesystem)), None)


def judge_independence(paths: Sequence[DataPath]) -> Independence:
    """The independence of directories: no two of them may share a disk.

    Directories whose disks are not known count as independent, since the operator named them
    separately; the provenance is then "declared".
    """
    if len(paths) < 2:  # noqa: PLR2004  # nothing to tell apart
        return Independence(independent=False, provenance="measured", reason="one directory")
    unknown = [p.path for p in paths if not p.leaf_disks]
    seen: set[str] = set()
    for place in paths:
        if shared := sorted(seen & set(place.leaf_disks)):
            reason = f"{place.path} shares {shared[0]} with another directory"
            return Independence(independent=False, provenance="measured", reason=reason)
        seen |= set(place.leaf_disks)
    if unknown:
        reason = f"the facts do not have the disk of {unknown[0]}"
        return Independence(independent=True, provenance="declared", reason=reason)
    return Independence(independent=True, provenance="measured", reason="no disk is shared")


def independent_mounts(storage: Storage) -> list[str]:
    """Recorded data directories with separate disks, over which a cache can be spread.

    Shape: in the order of the facts; empty unless there are two or more. The root file system is
           left out, and so are directories that share a disk with an earlier directory.
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
    """Sizes of the files, grouped for the model."""
    scanned = [d.sizes.buckets for d in datasets if d.sizes is not None]
    return size_groups([bucket for buckets in scanned for bucket in buckets])


def directories_of(datasets: Sequence[Dataset]) -> float | None:
    """Number of directories that hold the files; None unless all scans counted them."""
    counts = [d.directories for d in datasets if d.files]
    return float(sum(counts)) if counts and all(counts) else None


def page_waste_bytes(datasets: Sequence[Dataset], mean_bytes: float) -> float:
    """Mean unused bytes in a file's last page; exact where all files have the same size."""
    scanned = [d.sizes for d in datasets if d.sizes is not None]
    if scanned and all(sizes.mean_bytes == sizes.max_bytes for sizes in scanned):
        return float(-round(mean_bytes) % PAGE_BYTES)
    return max(HALF_PAGE_BYTES, PAGE_BYTES - mean_bytes)


class AskedPlace(NamedTuple):
    """A directory with the requests for its files."""

    disks: tuple[str, ...]
    requests: float
    """Requests, in any unit common to all directories."""
    bytes: float
    """Bytes of its files."""


def asked_places(
    places: Sequence[DataPath], requests: Mapping[str, float], datasets: Sequence[Dataset]
) -> tuple[AskedPlace, ...]:
    """The directories with requests, each with its data.

    Shape: empty unless several have requests, and the data of all of these is known.
    """
    asked = [place for place in places if requests.get(place.path)]
    known = {place.path: _bytes_in(place, places, datasets) for place in asked}
    if len(asked) < 2 or not all(known.values()):  # noqa: PLR2004  # nothing to tell apart
        return ()
    return tuple(
        AskedPlace(place.leaf_disks, requests[place.path], known[place.path]) for place in asked
    )


def _bytes_in(place: DataPath, places: Sequence[DataPath], datasets: Sequence[Dataset]) -> float:
    """Bytes scanned in a directory, without those of other listed directories inside it."""
    return math.fsum(
        dataset.bytes or 0
        for dataset in datasets
        if _nearest(dataset.path, places) == PurePosixPath(place.path)
    )


def _nearest(path: str, places: Sequence[DataPath]) -> PurePosixPath | None:
    wanted = PurePosixPath(path)
    roots = [PurePosixPath(place.path) for place in places]
    above = [root for root in roots if wanted.is_relative_to(root)]
    return max(above, key=lambda path: len(path.parts), default=None)


def classes_of_places(
    places: Sequence[AskedPlace], objects: float, exponent: float
) -> tuple[PopularityClass, ...]:
    """Popularity classes of ``objects`` objects, with a separate Zipf law for each directory."""
    return tuple(object_ for group in _groups(places, objects, exponent) for object_ in group)


def requests_by_disk(places: Sequence[DataPath], requests: Mapping[str, float]) -> dict[str, float]:
    """Requests for files on each disk, in the given unit; empty where they are not known."""
    found: dict[str, float] = {}
    for place in places:
        share = requests.get(place.path, 0.0)
        for name in place.leaf_disks:
            found[name] = found.get(name, 0.0) + share / len(place.leaf_disks)
    return found


def reads_by_disk(places: Sequence[AskedPlace], i: BlockingInputs) -> dict[str, float]:
    """Relative numbers of reads by disk; empty if memory serves all requests.

    All files of a directory count as equally popular, since only directories are compared.
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
    """The popularity classes of each directory, with probabilities among all requests."""
    data = math.fsum(place.bytes for place in places)
    requests = math.fsum(place.requests for place in places)
    return [
        tuple(
            PopularityClass(group.objects, group.probability_each * place.requests / requests)
            for group in zipf_classes(max(1.0, objects * place.bytes / data), exponent)
        )
        for place in places
    ]
