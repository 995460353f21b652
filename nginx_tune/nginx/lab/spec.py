"""``--lab SPEC``: a class of host, a TOML file with the words of the lab document, or facts."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UsageError
from nginx_tune.nginx.lab.check import check_lab, is_below
from nginx_tune.nginx.lab.classes import CLASSES, LIMITS, MIB, MODELS
from nginx_tune.nginx.lab.model_scale import scale_lab

_USUAL_BYTES = 1 << 30
_USUAL_FILE_BYTES = 4 << 20
_MOST_FILES = 20_000


class Shape(NamedTuple):
    """What a lab is made for: the directory that is served, and the sizes of what is there."""

    root: str
    sizes: Sequence[int] = ()
    replayed: Mapping[str, int] = {}
    """Files below the root that recorded requests ask for, with their bytes; none for any."""
    share: float = 1.0
    """Of the recorded objects that are kept; memory shrinks with them."""


class PlannedLab(NamedTuple):
    """A lab, and what must be known about it."""

    lab: Lab
    notes: Sequence[str] = ()


LabPlan = Callable[[Shape], PlannedLab]
"""Makes the lab once it is known what is served."""


def plan_of_class(name: str) -> LabPlan:
    """The scale model of a class of host: one disk, memory a fifth of the data.

    ``memory`` is the host whose memory holds all.
    """
    return lambda shape: PlannedLab(_complete(_class_lab(name), shape, fifth=name != "memory"))


def plan_of_tables(tables: Mapping[str, Any], source: str) -> LabPlan:
    """The lab of a TOML file. Errors: UsageError that names the file and the field."""
    unknown = sorted(set(tables) - {"schema", *Lab.__struct_fields__})
    if unknown:  # people write it by hand: a misspelt word would do nothing
        raise UsageError(f"{source}: a lab has no '{unknown[0]}'")
    try:
        lab = msgspec.convert(tables, Lab)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: not a lab: {error}") from None
    return plan_of_lab(lab, source)


def plan_of_lab(lab: Lab, source: str) -> LabPlan:
    """A lab that is described. Errors: UsageError that names the file and the field."""
    check_lab(lab, f"{source}: ")
    if sum(not disk.mount for disk in lab.disks) > 1:
        raise UsageError(f"{source}: disks: only one mount can be left out")

    def plan(shape: Shape) -> PlannedLab:
        return PlannedLab(_complete(lab, shape, fifth=False))

    return plan


def plan_of_facts(facts: Facts, scale: float | None) -> LabPlan:
    """A scale model of the host that the facts are of.

    Errors (of the plan): UndecidedError for facts that lack what it takes.
    """
    if scale is not None and not 0 < scale <= 1:
        raise UsageError("--scale: not above 0 and at most 1")

    def plan(shape: Shape) -> PlannedLab:
        if not shape.replayed:
            return PlannedLab(*scale_lab(facts, root=shape.root, scale=scale))
        lab, notes = scale_lab(facts, root=shape.root, scale=shape.share)
        return PlannedLab(_with_replayed(lab, shape), notes)

    return plan


def _class_lab(name: str) -> Lab:
    bytes_per_second, reads_per_second = LIMITS[name]
    disk = LabDisk(
        name="disk1",
        class_name=name,  # type: ignore[arg-type]  # one of CLASSES
        kind="modelled" if name in MODELS else "limited",
        bytes_per_second=bytes_per_second,
        reads_per_second=reads_per_second,
    )
    return Lab(name=name, disks=[disk])


def _complete(lab: Lab, shape: Shape, *, fifth: bool) -> Lab:
    """The lab with what its text left to the site: where its disk is, and what is on it."""
    disks = [msgspec.structs.replace(disk, mount=disk.mount or shape.root) for disk in lab.disks]
    lab = _with_replayed(msgspec.structs.replace(lab, disks=disks), shape)
    filled = {item.disk for item in lab.data}
    data = [*lab.data, *(_data(d.name, shape) for d in disks if d.name not in filled)]
    memory = lab.memory_bytes
    if fifth:
        total = sum(item.files * item.file_bytes for item in data)
        memory = max(total * 3 // 16, 64 * MIB)
    return msgspec.structs.replace(lab, disks=disks, data=data, memory_bytes=memory)


def _with_replayed(lab: Lab, shape: Shape) -> Lab:
    """The lab with the files that are asked for, on the disk that holds the root."""
    holders = [disk for disk in lab.disks if is_below(shape.root, disk.mount)]
    if not shape.replayed or not holders:
        return lab
    disk = max(holders, key=lambda disk: len(disk.mount))
    place = posixpath.relpath(shape.root, disk.mount)
    sizes = {posixpath.normpath(f"{place}/{name}"): n for name, n in shape.replayed.items()}
    mean = max(1, sum(sizes.values()) // len(sizes))
    data = LabData(disk=disk.name, files=len(sizes), file_bytes=mean, sizes=sizes)
    others = [item for item in lab.data if item.disk != disk.name]
    return msgspec.structs.replace(lab, data=[*others, data])


def _data(disk: str, shape: Shape) -> LabData:
    """About a GiB of files of the mean size of those that are served."""
    mean = sum(shape.sizes) // len(shape.sizes) if shape.sizes else _USUAL_FILE_BYTES
    size = min(max(mean, 1024), 64 * MIB)
    return LabData(disk=disk, files=max(8, min(_USUAL_BYTES // size, _MOST_FILES)), file_bytes=size)


__all__ = [
    "CLASSES", "LabPlan", "PlannedLab", "Shape", "plan_of_class", "plan_of_facts", "plan_of_lab",
    "plan_of_tables",
]  # fmt: skip
