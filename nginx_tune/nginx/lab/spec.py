"""The lab that ``--lab SPEC`` names: a class of host, a TOML file, or facts.

A lab from facts is a scale model of their host, with less memory and data but the same disks.
"""

import math
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nginx_tune.documents.base import decode_tables
from nginx_tune.documents.facts import Dataset, Disk, Facts, PathStorage
from nginx_tune.documents.facts_storage import Curve, CurvePoint, Sweep
from nginx_tune.documents.lab import TCP_SETTINGS, DiskModel, Lab, LabData, LabDisk, LabLink
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.nginx.lab.check import DiskClassName, check_lab, is_below
from nginx_tune.nginx.lab.disk_models import CLASSES, LIMITS, MIB, MODELS

_USUAL_DATA_BYTES = 1 << 30
"""The default amount of data in a lab; it is written within seconds."""
_LEAST_MEMORY_BYTES = 64 << 20
"""Minimum memory of a lab: nginx, its buffers and the kernel's own memory take a few tens of
MiB."""
_USUAL_FILE_BYTES = 4 << 20
_MOST_FILES = 20_000


class Shape(NamedTuple):
    """The properties of a site that its lab needs: the served directory and its file sizes."""

    root: str
    sizes: Sequence[int] = ()
    replayed: Mapping[str, int] = {}
    """Bytes of each file below the root that recorded requests name; empty if any file will do."""
    share: float = 1.0
    """The share of the recorded objects that is kept; the same share of memory is kept."""


class PlannedLab(NamedTuple):
    """A lab and notes about it."""

    lab: Lab
    notes: Sequence[str] = ()


LabPlan = Callable[[Shape], PlannedLab]
"""A function that takes the served site and plans its lab."""


def plan_of_class(name: str) -> LabPlan:
    """A plan for the scale model of a class of host: one disk, and memory for a fifth of the data.

    For the class ``memory``, there is memory for all data.
    """
    return lambda shape: PlannedLab(_complete(_class_lab(name), shape, fifth=name != "memory"))


def plan_of_tables(tables: Mapping[str, Any], source: str) -> LabPlan:
    """A plan for the lab of a TOML file. Errors: UsageError that names the file and the field."""
    return plan_of_lab(decode_tables(Lab, tables, source), source)


def plan_of_lab(lab: Lab, source: str) -> LabPlan:
    """A plan for the lab of a document. Errors: UsageError that names the file and the field."""
    check_lab(lab, f"{source}: ")
    if sum(not disk.mount for disk in lab.disks) > 1:
        raise UsageError(f"{source}: disks: only one mount can be left out")

    def plan(shape: Shape) -> PlannedLab:
        return PlannedLab(_complete(lab, shape, fifth=False))

    return plan


def plan_of_facts(facts: Facts, scale: float | None) -> LabPlan:
    """A plan for a scale model of the host that the facts describe.

    Errors (of the plan): UndecidedError if the facts are not sufficient.
    """
    if scale is not None and not 0 < scale <= 1:
        raise UsageError("--scale: not above 0 and at most 1")

    def plan(shape: Shape) -> PlannedLab:
        if not shape.replayed:
            return scale_lab(facts, root=shape.root, scale=scale)
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
    """The lab; mounts and data that its document does not set are taken from the site."""
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
    """The lab with the recorded files on the disk that holds the root."""
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
    """About a GiB of files that have the mean size of the served files."""
    mean = sum(shape.sizes) // len(shape.sizes) if shape.sizes else _USUAL_FILE_BYTES
    size = min(max(mean, 1024), 64 * MIB)
    return LabData(
        disk=disk, files=max(8, min(_USUAL_DATA_BYTES // size, _MOST_FILES)), file_bytes=size
    )


_MOST_SCALED_FILES = 50_000
_TAIL_FACTOR = 2.0
"""The multiple of the median from which a p99 counts as a tail, and below which as a spread."""


class _Group(NamedTuple):
    """The source of a lab's disk: a dataset and its leaf disks."""

    path: str
    dataset: Dataset
    disks: list[Disk]
    curve: Curve | None


def scale_lab(facts: Facts, *, root: str, scale: float | None) -> PlannedLab:
    """The scale model for a site that serves ``root``.

    ``scale`` is the share of data and memory that is kept; None for about a GiB of data.
    Errors: UndecidedError for facts without memory or datasets.
    """
    notes: list[str] = []
    groups = _groups(facts, root)
    memory = facts.memory.page_cache_limit_bytes or facts.memory.available_bytes
    if memory is None:
        raise UndecidedError(
            "the facts do not say how much memory can hold file data",
            hint="capture them again with 'nginx-tune inspect' on the target",
        )
    data = sum(group.dataset.bytes or 0 for group in groups)
    wanted = scale or min(1.0, _USUAL_DATA_BYTES / data)
    kept = min(1.0, max(wanted, _LEAST_MEMORY_BYTES / memory))
    if kept > wanted:
        notes.append(
            f"scale {kept:.3g} instead of {wanted:.3g}: nginx needs {_LEAST_MEMORY_BYTES >> 20} MiB"
        )
    disks: list[LabDisk] = []
    files: list[LabData] = []
    for number, group in enumerate(groups, 1):
        name = f"disk{number}"
        disks.append(_lab_disk(name, group, notes))
        files += _lab_data(name, group.dataset, kept)
    lab = Lab(
        name=f"{kept:.3g} of a host with {memory >> 20} MiB for {data >> 20} MiB of data",
        memory_bytes=max(_LEAST_MEMORY_BYTES, round(kept * memory)),
        disks=disks,
        data=files,
        link=_link(facts),
        tcp={name: value for name in TCP_SETTINGS if (value := facts.kernel.sysctls.get(name))},
    )
    return PlannedLab(lab, notes)


def model_of_curve(curve: Curve, class_name: DiskClassName) -> DiskModel:
    """The model with the depth-1 latency, plateau and tail of a measured curve.

    The bandwidth is that of sequential reads, or of either read size if that is greater. The read
    time is the depth-1 latency without transfer and tail. The number of channels is the plateau
    times the depth-1 latency: the depth of the measured knee.
    """
    sweep = curve.small_reads or curve
    alone = _first(sweep)
    service = 1 / alone.reads_per_second
    bandwidth = max(
        [curve.sequential_bytes_per_second or 0.0]
        + [point.reads_per_second * item.read_bytes for item in (sweep, curve)
           for point in item.points]
    )  # fmt: skip
    tail_ratio, tail_seconds, spread = _fit_tail(alone)
    transfer = sweep.read_bytes / bandwidth
    plateau = sweep.plateau_reads_per_second or max(p.reads_per_second for p in sweep.points)
    return DiskModel(
        read_seconds=max(0.0, service - transfer - tail_ratio * tail_seconds),
        spread_ratio=spread,
        channels=max(1, round(plateau * service)),
        bytes_per_second=bandwidth,
        sequential_seconds=0.0 if class_name == "hdd" else None,
        tail_ratio=tail_ratio,
        tail_seconds=tail_seconds,
    )


def _first(sweep: Sweep) -> CurvePoint:
    point = min(sweep.points, key=lambda point: point.depth)
    if point.depth == 1:
        return point
    return CurvePoint(
        depth=1, reads_per_second=point.reads_per_second / point.depth, p50_seconds=None
    )


def _fit_tail(point: CurvePoint) -> tuple[float, float, float]:
    """The share and mean of the exponential tail, and the spread below it, from three quantiles."""
    p50, p99, p999 = point.p50_seconds, point.p99_seconds, point.p999_seconds
    if p50 is None or p99 is None or p50 <= 0:
        return 0.0, 0.0, 0.0
    if p99 <= _TAIL_FACTOR * p50:
        spread = min(1.0, max(0.0, p99 / p50 - 1))
        if p999 is None or p999 <= _TAIL_FACTOR * p50:
            return 0.0, 0.0, spread
        # A tail too rare for p99: two reads in a thousand, with the tail's median at p999.
        return 0.002, (p999 - p50) / math.log(2), spread
    if p999 is None or p999 <= p99:
        return 0.02, (p99 - p50) / math.log(2), 0.0
    # P(more than p50 + x) = ratio × exp(-x / mean), through both quantiles.
    mean = (p999 - p99) / math.log(10)
    return min(0.5, 0.01 * math.exp((p99 - p50) / mean)), mean, 0.0


def _groups(facts: Facts, root: str) -> list[_Group]:
    datasets = [item for item in facts.datasets if item.bytes and item.files]
    chosen = [item for item in datasets if is_below(item.path, root)]
    chosen = chosen or [item for item in datasets if is_below(root, item.path)][:1] or datasets[:1]
    if not chosen:
        raise UndecidedError(
            "the facts have no dataset for a scale model",
            hint="capture them with 'nginx-tune inspect --dataset DIR'",
        )
    is_root = len(chosen) == 1
    return [_group(facts, item, root if is_root else item.path) for item in chosen]


def _group(facts: Facts, dataset: Dataset, path: str) -> _Group:
    storage = facts.storage
    places = [place for place in storage.paths if is_below(dataset.path, place.path)]
    place = max(places, key=lambda item: len(item.path), default=PathStorage(path=path))
    disks = [disk for disk in storage.disks if disk.name in place.leaf_disks]
    shared = next(
        (s.curve for s in storage.shared_curves if set(s.disks) == set(place.leaf_disks)), None
    )
    return _Group(path, dataset, disks, shared)


def _lab_disk(name: str, group: _Group, notes: list[str]) -> LabDisk:
    class_name = _class_name(group.disks)
    curves = [disk.curve for disk in group.disks if disk.curve is not None]
    disk = LabDisk(name=name, class_name=class_name, mount=group.path)
    if class_name == "memory":
        return disk
    model: DiskModel | None = None
    if group.curve is not None:
        model = model_of_curve(group.curve, class_name)
    elif curves and len(curves) == len(group.disks):
        model = _side_by_side([model_of_curve(curve, class_name) for curve in curves])
    else:
        notes.append(
            f"{group.dataset.path}: no disk curve in the facts, so its disk is a typical "
            f"{class_name} ('nginx-tune inspect --disks' measures one)"
        )
    return msgspec.structs.replace(disk, kind="modelled", model=model)


def _side_by_side(models: Sequence[DiskModel]) -> DiskModel:
    """One model for several disks with the same files: channels and buses add up."""
    slowest = max(models, key=lambda model: model.read_seconds)
    return DiskModel(
        read_seconds=sum(model.read_seconds for model in models) / len(models),
        spread_ratio=slowest.spread_ratio,
        channels=sum(model.channels for model in models),
        bytes_per_second=sum(model.bytes_per_second or 0.0 for model in models) or None,
        sequential_seconds=slowest.sequential_seconds,
        tail_ratio=sum(model.tail_ratio for model in models) / len(models),
        tail_seconds=max(model.tail_seconds for model in models),
    )


def _class_name(disks: Sequence[Disk]) -> DiskClassName:
    for name in ("hdd", "ssd", "nvme", "memory"):  # the slowest decides
        if any(disk.class_ == name for disk in disks):
            return name
    return "ssd"


def _lab_data(disk: str, dataset: Dataset, scale: float) -> list[LabData]:
    """Files of the dataset's sizes, fewer of each size but at least one."""
    buckets = dataset.sizes.buckets if dataset.sizes is not None else []
    shapes = [(bucket.files, bucket.bytes) for bucket in buckets if bucket.files and bucket.bytes]
    shapes = shapes or [(dataset.files or 1, dataset.bytes or 1)]
    fewer = min(scale, _MOST_SCALED_FILES / sum(files for files, _ in shapes))
    return [
        LabData(disk=disk, files=max(1, round(fewer * files)), file_bytes=max(1, size // files))
        for files, size in shapes
    ]


def _link(facts: Facts) -> LabLink:
    speeds = [
        link.speed_bits_per_second
        for link in facts.network.links
        if link.speed_bits_per_second and link.kind not in {"loopback", "veth"}
    ]
    return LabLink(bits_per_second=max(speeds, default=None))


__all__ = [
    "CLASSES", "LabPlan", "PlannedLab", "Shape", "plan_of_class", "plan_of_facts", "plan_of_lab",
    "plan_of_tables",
]  # fmt: skip
