"""Which disks lie under which directories, and which directories are independent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import PathStorage, Storage
from nginx_tune.documents.shared_folders import is_shared_folder

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb2", "smb3", "ceph", "fuse.glusterfs", "fuse.sshfs"})
"""File systems whose files other hosts can replace."""


IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems without a disk: what they hold is always resident."""


class DataPath(NamedTuple):
    """A directory of the site and what lies under it."""

    path: str
    leaf_disks: tuple[str, ...] = ()
    """Empty when not known."""
    read_ahead_bytes: int | None = None
    """Of the device the file system is on, which may stack the leaves."""
    filesystem: str | None = None
    size_bytes: int | None = None
    """Of the file system."""
    available_bytes: int | None = None
    """Of these, what can still be written."""


class Independence(NamedTuple):
    """Whether directories share no disk, and who says so."""

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
    on_disks = [place for place in above if place.leaf_disks or place.filesystem in IN_MEMORY]
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
    )


def _tells_of(place: str, path: str) -> bool:
    above, wanted = _parts(place), _parts(path)
    return wanted == above or (len(above) > 1 and wanted[: len(above)] == above)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    """The components of a path; a break-even compares the same few paths thousands of times."""
    return PurePosixPath(path).parts


def replaced_by_others(paths: Sequence[str], storage: Storage) -> bool:
    """Whether one of the directories lies on a network's file system, with or without disks."""
    for path in map(_parts, paths):
        above = [
            (len(parts), place.filesystem)
            for place in storage.paths
            if path[: len(parts := _parts(place.path))] == parts
        ]
        if above and max(above, key=lambda one: one[0])[1] in NETWORK:
            return True
    return False


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
    """Whether each directory has disks of its own.

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
