"""Which disks the disk probe measures through which files, and which it leaves alone; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.curve import DiskProbe
from nginx_tune.documents.facts import Array, Disk, Facts, Layer, PathStorage, Storage
from nginx_tune.documents.units import percent_text
from nginx_tune.observe.inspect.disk_run import ReadSize, deepest, read_bytes_for

MOST_BUSY_RATIO = 0.2
"""A disk that is busier serves somebody: the probe would slow them and measure them."""
_QUIET = (None, "idle", "frozen")
"""Sync actions of an md array during which no member is read for the array's own sake."""


class DiskTarget(NamedTuple):
    """Leaf disks that are measured together, and where their files are."""

    disks: tuple[str, ...]
    directories: tuple[str, ...]
    """As the reader names them."""
    device: str | None
    """The block device that holds all of it, for want of files."""
    filesystem: str
    read_bytes: int
    depth: int
    through: str
    """The layers between files and disks; empty for a disk or a partition."""


class DiskTargets(NamedTuple):
    """What is to be measured, and what cannot be."""

    targets: list[DiskTarget]
    unfit: list[DiskProbe]


def disk_targets(facts: Facts, asked: Sequence[str], *, read_size: ReadSize | int) -> DiskTargets:
    """The leaf disks under the paths that were asked for, under all recorded ones for none.

    Paths over the same leaves are one target. Several leaves under one path are an array or a
    volume: they serve the same files together and are measured as one.
    """
    disks = {disk.name: disk for disk in facts.storage.disks}
    groups: dict[tuple[str, ...], list[PathStorage]] = {}
    unfit = []
    for place in facts.storage.paths:
        if asked and place.path not in asked:
            continue
        leaves = tuple(place.leaf_disks)
        if not leaves:
            reason = place.reason or "its disks are not known"
            unfit.append(DiskProbe(disks=[], reason=f"{place.path}: {reason}"))
        elif all(name in disks and disks[name].class_ == "memory" for name in leaves):
            reason = f"{place.path}: {disks[leaves[0]].class_reason}"
            unfit.append(DiskProbe(disks=list(leaves), reason=reason))
        else:
            groups.setdefault(leaves, []).append(place)
    targets = [
        _target(facts, leaves, places, disks, asked=bool(asked), read_size=read_size)
        for leaves, places in groups.items()
    ]
    return DiskTargets(targets, unfit)


def refusals(targets: Sequence[DiskTarget], storage: Storage) -> list[str]:
    """Why disks should not be loaded now, one reason for each; empty when nothing speaks against.

    Network volumes may cost credits or money, busy disks serve somebody, and an array that is
    degraded or rebuilding is not the array that will serve.
    """
    wanted = {name for target in targets for name in target.disks}
    reasons = [
        reason
        for disk in storage.disks
        if disk.name in wanted and (reason := _unfit_disk(disk)) is not None
    ]
    layers = {
        name
        for place in storage.paths
        if wanted.intersection(place.leaf_disks)
        for name in place.stack
    }
    reasons += [
        reason
        for array in storage.arrays
        if array.name in layers and (reason := _unfit_array(array)) is not None
    ]
    return reasons


def _unfit_disk(disk: Disk) -> str | None:
    if disk.class_ == "network":
        return f"{disk.name} is a network volume ({disk.class_reason})"
    if disk.utilisation_ratio is not None and disk.utilisation_ratio > MOST_BUSY_RATIO:
        return f"{disk.name} is {percent_text(disk.utilisation_ratio, 2)} busy"
    return None


def _unfit_array(array: Array) -> str | None:
    if array.sync_action not in _QUIET:
        return f"{array.name} is busy with {array.sync_action}"
    if array.degraded:
        return f"{array.name} is degraded ({array.degraded} of {array.members or '?'} members)"
    return None


def _target(
    facts: Facts,
    leaves: tuple[str, ...],
    places: Sequence[PathStorage],
    disks: dict[str, Disk],
    *,
    asked: bool,
    read_size: ReadSize | int,
) -> DiskTarget:
    first = places[0]
    # The whole root file system is walked only when somebody asks for it.
    directories = [_outside(facts, place) for place in places if asked or place.path != "/"]
    read_ahead = max((place.read_ahead_bytes or 0 for place in places), default=0)
    size = read_size if isinstance(read_size, int) else read_bytes_for(read_size, read_ahead)
    disk = disks.get(leaves[0], Disk(name=leaves[0]))
    return DiskTarget(
        disks=leaves,
        directories=tuple(dict.fromkeys(directories)),
        device=_device(first, facts.storage),
        filesystem=first.filesystem or "",
        read_bytes=size,
        depth=deepest(disk.class_, len(leaves)),
        through=_through(first, facts.storage),
    )


def _outside(facts: Facts, place: PathStorage) -> str:
    """A path as the reader reaches it, where it was followed through nginx's mounts."""
    running = facts.nginx.running
    if not place.seen_by_nginx or running is None:
        return place.path
    return f"/proc/{running.pid}/root{place.path}"


def _device(place: PathStorage, storage: Storage) -> str | None:
    """The one block device over all leaves: the leaf itself, or the top of the stack."""
    if len(place.leaf_disks) == 1:
        name = place.leaf_disks[0]
        return _node(name) if name in place.stack else None
    layers = {layer.name: layer for layer in storage.layers}
    top = place.stack[0] if place.stack else ""
    covered = _leaves_under(top, layers) if top in layers else set()
    return _node(top) if covered == set(place.leaf_disks) else None


def _leaves_under(
    name: str, layers: dict[str, Layer], seen: frozenset[str] = frozenset()
) -> set[str]:
    if name not in layers or name in seen:
        return {name}
    below = [_leaves_under(lower, layers, seen | {name}) for lower in layers[name].lower]
    return set().union(*below)


def _node(name: str) -> str:
    return "/dev/" + name.replace("!", "/")


def _through(place: PathStorage, storage: Storage) -> str:
    layers = {layer.name: layer for layer in storage.layers}
    shown = [
        f"{name} ({layers[name].detail or layers[name].kind})"
        for name in place.stack
        if name in layers and layers[name].kind != "partition"
    ]
    return ", ".join(shown)
