"""A scale model of a host from its facts: less memory and less data, the same disks; pure.

What decides whether offloading pays is how much of what is asked for lies in memory, and how the
disks answer when it does not. So memory and data shrink by one factor, which keeps the page
cache's hit ratio (Che's approximation depends on their ratio alone), and the disks keep their
reads a second, bandwidth and tail, fitted from their measured curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.curve import Curve, CurvePoint, Sweep
from nginx_tune.documents.diskmodel import DiskModel
from nginx_tune.documents.facts import Dataset, Disk, Facts, PathStorage
from nginx_tune.documents.lab import TCP_SETTINGS, Lab, LabData, LabDisk, LabLink
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.check import DiskClassName, is_below

USUAL_DATA_BYTES = 1 << 30
"""Data of a scale model, when no scale is given: filled in some seconds."""
LEAST_MEMORY_BYTES = 64 << 20
"""nginx itself, its buffers and the kernel's own take some tens of MiB of the limit."""
_MOST_FILES = 50_000
_SMALL_READ_BYTES = 4096
_TAIL_FACTOR = 2.0
"""A p99 above so many medians is a tail, below it a spread."""


class Scaled(NamedTuple):
    """A lab and what must be known about it."""

    lab: Lab
    notes: list[str]


class _Group(NamedTuple):
    """What becomes one disk: a dataset, and the leaf disks it lies on."""

    path: str
    dataset: Dataset
    disks: list[Disk]
    curve: Curve | None


def scale_lab(facts: Facts, *, root: str, scale: float | None) -> Scaled:
    """The scale model for a site that serves ``root``.

    ``scale`` is the share of data and memory that is kept; None takes what gives about a GiB of
    data. Errors: UndecidedError for facts that lack memory or datasets.
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
    wanted = scale or min(1.0, USUAL_DATA_BYTES / data)
    kept = min(1.0, max(wanted, LEAST_MEMORY_BYTES / memory))
    if kept > wanted:
        notes.append(
            f"scale {kept:.3g} instead of {wanted:.3g}: nginx needs {LEAST_MEMORY_BYTES >> 20} MiB"
        )
    disks: list[LabDisk] = []
    files: list[LabData] = []
    for number, group in enumerate(groups, 1):
        name = f"disk{number}"
        disks.append(_lab_disk(name, group, notes))
        files += _lab_data(name, group.dataset, kept)
    lab = Lab(
        name=f"{kept:.3g} of a host with {memory >> 20} MiB for {data >> 20} MiB of data",
        memory_bytes=max(LEAST_MEMORY_BYTES, round(kept * memory)),
        disks=disks,
        data=files,
        link=_link(facts),
        tcp={name: value for name in TCP_SETTINGS if (value := facts.kernel.sysctls.get(name))},
    )
    return Scaled(lab, notes)


def model_of_curve(curve: Curve, class_name: DiskClassName) -> DiskModel:
    """The model whose latency at depth 1, plateau and tail are those of a measured curve.

    From reads of two sizes b and b' the bandwidth follows where sequential reads do not show a
    greater one; the time at depth 1 is what the transfer leaves; the channels are the plateau
    times the latency at depth 1, which is where the knee was.
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
    """Share and mean of the exponential tail, and the spread below it, from three quantiles."""
    p50, p99, p999 = point.p50_seconds, point.p99_seconds, point.p999_seconds
    if p50 is None or p99 is None or p50 <= 0:
        return 0.0, 0.0, 0.0
    if p99 <= _TAIL_FACTOR * p50:
        spread = min(1.0, max(0.0, p99 / p50 - 1))
        if p999 is None or p999 <= _TAIL_FACTOR * p50:
            return 0.0, 0.0, spread
        # So rare that p99 does not see it: twice in a thousand, its median at p999.
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
            "the facts hold no dataset to make a scale model of",
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
    if group.curve is not None:
        model = model_of_curve(group.curve, class_name)
    elif curves and len(curves) == len(group.disks):
        model = _side_by_side([model_of_curve(curve, class_name) for curve in curves])
    else:
        notes.append(
            f"{group.dataset.path}: no disk curve in the facts, so its disk is a usual {class_name}"
            " ('nginx-tune inspect --disks' measures one)"
        )
        return LabDisk(name=name, class_name=class_name, mount=group.path, kind="modelled")
    return LabDisk(name=name, class_name=class_name, mount=group.path, kind="modelled", model=model)


def _side_by_side(models: Sequence[DiskModel]) -> DiskModel:
    """Several disks that serve the same files: the channels and buses add up."""
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
    """Files of the dataset's sizes, fewer of each; at least one of each."""
    buckets = dataset.sizes.buckets if dataset.sizes is not None else []
    shapes = [(bucket.files, bucket.bytes) for bucket in buckets if bucket.files and bucket.bytes]
    shapes = shapes or [(dataset.files or 1, dataset.bytes or 1)]
    fewer = min(scale, _MOST_FILES / sum(files for files, _ in shapes))
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
