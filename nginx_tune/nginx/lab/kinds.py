"""Which kind of emulated disk this host allows; pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from nginx_tune.documents.diskmodel import DiskModel
from nginx_tune.documents.lab import Lab, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.classes import LIMITS, MODELS
from nginx_tune.nginx.lab.model_disk import predict_plateau

MOST_READS_PER_SECOND = 25_000
"""Of a modelled disk: past that its server, one process, is the bottleneck and not the model."""
_SMALL_READ_BYTES = 4096


class Settled(NamedTuple):
    """A lab that can be had, and a word about each disk that is another than asked."""

    lab: Lab
    notes: list[str]


def settle_kinds(lab: Lab, *, no_models: str, no_limits: str) -> Settled:
    """The lab with disks that can be had here, and a word about each that is another than asked.

    ``no_models`` and ``no_limits`` say why a kind cannot be had; empty when it can.
    Errors: UndecidedError for a disk of which neither kind can be had.
    """
    notes: list[str] = []
    disks = [_settle(disk, no_models, no_limits, notes) for disk in lab.disks]
    return Settled(msgspec.structs.replace(lab, disks=disks), notes)


def model_of(disk: LabDisk) -> DiskModel | None:
    """The model of a disk: its own, or its class's."""
    return disk.model or MODELS.get(disk.class_name)


def is_limited(disk: LabDisk) -> bool:
    """Whether the block cgroup is needed for the disk."""
    return disk.kind == "limited" and (disk.bytes_per_second, disk.reads_per_second) != (None, None)


def describe_disk(disk: LabDisk) -> str:
    """How the disk answers, in some words."""
    model = model_of(disk) if disk.kind == "modelled" else None
    if model is not None:
        plateau = predict_plateau(model, _SMALL_READ_BYTES)
        channels = "one head" if model.channels == 1 else f"{model.channels} channels"
        return f"modelled: {1e3 * model.read_seconds:.3g} ms, {channels}, {plateau:,.0f} reads/s"
    limits = (disk.bytes_per_second or "no", disk.reads_per_second or "no")
    return f"limited: {limits[0]} bytes/s, {limits[1]} reads/s"


def _settle(disk: LabDisk, no_models: str, no_limits: str, notes: list[str]) -> LabDisk:
    if disk.kind == "modelled":
        why_not = no_models or _why_no_model(disk)
        if not why_not:
            return disk
        if no_limits:
            raise _neither(disk, why_not, no_limits)
        limited = _as_limited(disk)
        notes.append(
            f"{disk.name} is limited instead of modelled ({why_not}): it has a plateau and no knee"
        )
        return limited
    if not is_limited(disk) or not no_limits:
        return disk
    if no_models or model_of(disk) is None:
        raise _neither(
            disk, no_models or f"there is no model of class {disk.class_name}", no_limits
        )
    notes.append(f"{disk.name} is modelled as its class instead of limited ({no_limits})")
    return msgspec.structs.replace(disk, kind="modelled")


def _why_no_model(disk: LabDisk) -> str:
    model = model_of(disk)
    if model is None:
        return f"there is no model of class {disk.class_name}"
    plateau = predict_plateau(model, _SMALL_READ_BYTES)
    if plateau > MOST_READS_PER_SECOND:
        return f"{plateau:,.0f} reads/s are more than the {MOST_READS_PER_SECOND:,} of a model"
    return ""


def _as_limited(disk: LabDisk) -> LabDisk:
    model = model_of(disk)
    if model is None:
        bytes_per_second, reads_per_second = LIMITS[disk.class_name]
    else:
        bandwidth = model.bytes_per_second
        bytes_per_second = None if bandwidth is None else round(bandwidth)
        reads_per_second = max(1, round(predict_plateau(model, _SMALL_READ_BYTES)))
    return msgspec.structs.replace(
        disk,
        kind="limited",
        bytes_per_second=bytes_per_second,
        reads_per_second=reads_per_second,
    )


def _neither(disk: LabDisk, no_models: str, no_limits: str) -> UndecidedError:
    return UndecidedError(
        f"disk {disk.name} can be neither modelled ({no_models}) nor limited ({no_limits})",
        hint="modprobe fuse for modelled disks, or enable the blkio (io) cgroup controller",
    )
