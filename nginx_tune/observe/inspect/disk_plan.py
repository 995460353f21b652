"""The disk probe: the choice of disks, the plan of its reads, and the curve; pure.

Disks that are busy, cost money or are degraded are refused. If the numbers do not make a curve,
the reason takes its place.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.documents.facts import Array, Disk, DiskClass, Facts, Layer, PathStorage, Storage
from nginx_tune.documents.facts_storage import Curve, CurvePoint, DiskProbe, Sweep
from nginx_tune.documents.inspection import DiskCaps, DiskPlan, DiskRun, DiskStep, DiskStepRun
from nginx_tune.documents.units import percent_text, seconds_text
from nginx_tune.measure.proof.statistics import find_knee, plateau_reads_per_second

ReadSize = Literal["readahead", "chunk", "tls"]

SMALL_READ_BYTES = 4096
"""The size of reads by which disks are compared."""
_SEQUENTIAL_READ_BYTES = 1 << 20
_USUAL_READ_AHEAD_BYTES = 128 << 10
"""Linux's default read-ahead: VM_READAHEAD_PAGES, include/linux/mm.h."""
_LEAST_READ_BYTES = 16 << 10
_CHUNK_BYTES = 512 << 10
_TLS_BYTES = 32 << 10
"""The read size over TLS: one buffer of nginx's ``output_buffers 2 32k``."""

_DEEPEST = 64
_DEEPEST_PARALLEL = 128
"""The greatest depth for disks with many queues, and for arrays of several disks."""
_MANY_LEAVES = 4

_OPENING_SHARE = 0.1
_MOST_OPENING_SECONDS = 2.0
_WAITING_SHARE = 0.1
"""The share of time reserved for the last reads of each step."""
_WARMUP_SHARE = 0.15
_TURN_SECONDS = 0.2
"""Unit of the measured time. A throttled disk works in slices of 100 or 200 ms
(block/blk-throttle.c, throtl_slice): the measured time is a whole number of slices, so that no part
of a slice counts as a gain."""
_LEAST_MEASURED_SECONDS = 0.1
_DEPTH_1_WEIGHT = 2.0
"""The weight of depth 1 in time. The model takes its latency from this depth, which has the fewest
reads per second."""


def read_bytes_for(size: ReadSize, read_ahead_bytes: int | None) -> int:
    """The size in bytes of one cold read of nginx at the disk.

    ``readahead``: sendfile() reads the read-ahead of the file system's device, at most a chunk,
    since some devices announce megabytes. ``chunk``: a read-ahead as large as ``sendfile_max_chunk
    512k``. ``tls``: a buffer of output_buffers.
    """
    if size == "tls":
        return _TLS_BYTES
    if size == "chunk":
        return _CHUNK_BYTES
    wanted = read_ahead_bytes or _USUAL_READ_AHEAD_BYTES
    bounded = min(max(wanted, _LEAST_READ_BYTES), _CHUNK_BYTES)
    return bounded - bounded % SMALL_READ_BYTES


def deepest(disk_class: DiskClass, leaves: int) -> int:
    """The greatest depth of a sweep."""
    parallel = disk_class == "nvme" or leaves >= _MANY_LEAVES
    return _DEEPEST_PARALLEL if parallel else _DEEPEST


def plan_disk(paths: Sequence[str], *, read_bytes: int, depth: int, seconds: float) -> DiskPlan:
    """A plan that takes ``seconds``, including the time to open files.

    Sequential reads first, then random reads of nginx's size at depths 1, 2, 4 … up to ``depth``,
    then reads of 4 KiB at the same depths.
    """
    depths = [1 << power for power in range(depth.bit_length())]
    opening = min(_OPENING_SHARE * seconds, _MOST_OPENING_SECONDS)
    wanted: list[tuple[DiskStep, float]] = [
        (_step("sequential", _SEQUENTIAL_READ_BYTES, 1), 1.0),
        *((_step("random", read_bytes, d), _DEPTH_1_WEIGHT if d == 1 else 1.0) for d in depths),
    ]
    if read_bytes != SMALL_READ_BYTES:
        wanted += [(_step("random", SMALL_READ_BYTES, d), 1.0) for d in depths]
    unit = (seconds - opening - _WAITING_SHARE * seconds) / sum(weight for _, weight in wanted)
    return DiskPlan(
        paths=list(paths),
        steps=[_timed(step, weight * unit) for step, weight in wanted],
        open_seconds=opening,
        caps=DiskCaps(seconds=seconds - opening),
    )


def _step(kind: Literal["random", "sequential"], read_bytes: int, depth: int) -> DiskStep:
    return DiskStep(kind=kind, read_bytes=read_bytes, depth=depth, seconds=0.0)


def _timed(step: DiskStep, seconds: float) -> DiskStep:
    most = (1 - _WARMUP_SHARE) * seconds
    turns = math.floor(most / _TURN_SECONDS + 1e-9)
    measured = turns * _TURN_SECONDS or min(seconds, max(most, _LEAST_MEASURED_SECONDS))
    return DiskStep(
        kind=step.kind,
        read_bytes=step.read_bytes,
        depth=step.depth,
        warmup_seconds=seconds - measured,
        seconds=measured,
    )


MOST_BUSY_RATIO = 0.2
"""The utilisation above which a disk is too busy, since a probe would slow down other work."""
_QUIET = (None, "idle", "frozen")
"""Sync actions of an md array during which it starts no reads of its members itself."""


class DiskTarget(NamedTuple):
    """Leaf disks that are measured together, and where their files are."""

    disks: tuple[str, ...]
    directories: tuple[str, ...]
    """Paths by which this process reaches the files."""
    device: str | None
    """The block device with all of the data, to read if there are too few files."""
    filesystem: str
    read_bytes: int
    depth: int
    through: str
    """The layers between files and disks; empty for a disk or a partition."""


class DiskTargets(NamedTuple):
    """The targets to measure, and the disks that cannot be measured."""

    targets: list[DiskTarget]
    unfit: list[DiskProbe]


def disk_targets(facts: Facts, asked: Sequence[str], *, read_size: ReadSize | int) -> DiskTargets:
    """The leaf disks under the ``asked`` paths, or under all recorded ones.

    Paths over the same leaves are one target. Several leaves under a path are an array or a volume,
    which serves its files from all of them and is measured as one.
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
    """The reasons not to load these disks now; empty if there are none.

    Network volumes may cost credits or money, busy disks serve others, and an array that is
    degraded or rebuilding performs unlike the healthy one.
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
    # The root file system is searched only on request.
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
    """The path by which this process reaches a place that is seen through nginx's mounts."""
    running = facts.nginx.running
    if not place.seen_by_nginx or running is None:
        return place.path
    return f"/proc/{running.pid}/root{place.path}"


def _device(place: PathStorage, storage: Storage) -> str | None:
    """The block device over all leaves: the leaf itself, or the top of the stack."""
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


_LEAST_BEYOND = 10
"""The number of reads that must lie beyond a quantile."""
_LEAST_DEVICE_RATIO = 0.9
"""Minimum share of the bytes read that must come from a block device."""
_MOST_CPU_RATIO = 0.8
_UNACCOUNTED = ("9p", "fuse", "virtiofs", "zfs")
"""File systems whose reads the kernel does not count for any device."""
_SLOW_SECONDS = 0.01
_MOST_STALLS_RATIO = 0.01
"""Largest share of stalled reads. More frequent stalls come from a throttled disk, which has a
stall in each slice."""


def curve_of(run: DiskRun, *, read_bytes: int, filesystem: str, target: str) -> Curve | str:
    """The curve of a run, or the reason why its numbers do not describe the disk."""
    done = [step for step in run.steps if not step.skipped]
    main = _sweep(done, read_bytes)
    if not main.points:
        return "interrupted" if "interrupted" in run.flags else "no read was answered in time"
    share = None if run.device_bytes is None else run.device_bytes / max(run.bytes, 1)
    accounted = not filesystem.startswith(_UNACCOUNTED)
    if accounted and share is not None and share < _LEAST_DEVICE_RATIO:
        return (
            f"only {percent_text(share, 2)} of the bytes came from a disk: the files have holes, "
            "or a cache answers"
        )
    small = _sweep(done, SMALL_READ_BYTES)
    sequential = [step.bytes_per_second for step in done if step.kind == "sequential"]
    return Curve(
        read_bytes=read_bytes,
        points=main.points,
        knee_depth=main.knee_depth,
        knee_reason=main.knee_reason,
        plateau_reads_per_second=main.plateau_reads_per_second,
        small_reads=small if small.points and read_bytes != SMALL_READ_BYTES else None,
        sequential_bytes_per_second=next(filter(None, sequential), None),
        target=target,
        notes=[*run.flags, *_notes(run.steps, accounted=accounted)],
    )


def _sweep(done: Sequence[DiskStepRun], read_bytes: int) -> Sweep:
    steps = [step for step in done if step.kind == "random" and step.read_bytes == read_bytes]
    points = [_point(step) for step in steps if step.reads]
    knee = find_knee(points)
    return Sweep(
        read_bytes=read_bytes,
        points=points,
        knee_depth=knee.depth,
        knee_reason=knee.reason,
        plateau_reads_per_second=plateau_reads_per_second(points),
    )


def _point(step: DiskStepRun) -> CurvePoint:
    latency = step.latency_seconds
    rates = step.interval_reads_per_second
    deviation = _deviation_ratio(rates)
    return CurvePoint(
        depth=step.depth,
        reads_per_second=step.reads_per_second,
        p50_seconds=_quantile(latency.p50, latency.count, 0.5),
        p99_seconds=_quantile(latency.p99, latency.count, 0.99),
        p999_seconds=_quantile(latency.p999, latency.count, 0.999),
        max_seconds=latency.max,
        reads=step.reads,
        deviation_ratio=deviation,
        error_ratio=None if deviation is None else deviation / len(rates) ** 0.5,
        outliers=step.outliers,
    )


def _deviation_ratio(rates: Sequence[float]) -> float | None:
    mean = sum(rates) / max(len(rates), 1)
    if len(rates) < 2 or not mean:  # noqa: PLR2004  # one part has no spread
        return None
    return math.sqrt(sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)) / mean


def _quantile(value: float | None, count: int, share: float) -> float | None:
    return value if round(count * (1 - share), 6) >= _LEAST_BEYOND else None


def _notes(steps: Sequence[DiskStepRun], *, accounted: bool) -> list[str]:
    notes = []
    if not accounted:
        notes.append("unaccounted: it is unknown whether the disk or a cache answered")
    for step in steps:
        size = f"{step.read_bytes >> 10} KiB"
        where = f"{size} at depth {step.depth}"
        if step.skipped:
            notes.append(f"skipped: {where}: {step.skipped}")
        if step.errors:
            notes.append(f"errors: {step.errors} reads of {where} failed")
        if step.cpu_ratio > _MOST_CPU_RATIO:
            used = percent_text(step.cpu_ratio, 2)
            notes.append(f"cpu: the probe used {used} of the CPUs for {where}, which was the limit")
    return [*notes, *_stalls(steps)]


def _stalls(steps: Sequence[DiskStepRun]) -> list[str]:
    """Notes on occasional stalls of an SSD, only at depth 1, where no read queues behind others."""
    return [
        f"stalls: {step.outliers} of {step.latency_seconds.count} reads of "
        f"{step.read_bytes >> 10} KiB at depth 1 took over ten times the median, "
        f"up to {seconds_text(step.latency_seconds.max)}"
        for step in steps
        if step.kind == "random"
        and step.depth == 1
        and 0 < step.outliers <= _MOST_STALLS_RATIO * step.latency_seconds.count
        and (step.latency_seconds.max or 0.0) >= _SLOW_SECONDS
    ]


def curve_gaps(curve: Curve) -> dict[str, str]:
    """The reason for each null value of a curve, by JSON pointer relative to the curve."""
    gaps = _sweep_gaps(curve)
    if curve.small_reads is not None:
        gaps |= {f"/small_reads{path}": why for path, why in _sweep_gaps(curve.small_reads).items()}
    gaps["/small_reads"] = "no read of 4 KiB was measured by itself"
    gaps["/sequential_bytes_per_second"] = "no sequential read came back in time"
    return _of_nulls(curve, gaps)


def _sweep_gaps(sweep: Sweep) -> dict[str, str]:
    gaps = {
        "/knee_depth": sweep.knee_reason,
        "/plateau_reads_per_second": "reads per second still grow at the last depth",
    }
    for index, point in enumerate(sweep.points):
        few = f"{point.reads} reads are too few: fewer than {_LEAST_BEYOND} lie beyond it"
        for name in ("p50_seconds", "p99_seconds", "p999_seconds"):
            gaps[f"/points/{index}/{name}"] = few
        for name in ("max_seconds", "deviation_ratio", "error_ratio"):
            gaps[f"/points/{index}/{name}"] = "too few reads were answered"
    return gaps


def _of_nulls(curve: Curve, gaps: dict[str, str]) -> dict[str, str]:
    """The ``gaps`` (reasons by JSON pointer) whose value is null in the curve."""
    parts = msgspec.to_builtins(curve)

    def value(pointer: str) -> object:
        found = parts
        for key in pointer.strip("/").split("/"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    return {pointer: reason for pointer, reason in gaps.items() if value(pointer) is None}
