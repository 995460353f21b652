"""From what the disk probe saw to a curve, or to the reason why there is none; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from nginx_tune.documents.curve import Curve, CurvePoint, Sweep
from nginx_tune.documents.diskplan import DiskRun, DiskStepRun
from nginx_tune.documents.units import percent_text, seconds_text
from nginx_tune.measure.proof.knee import find_knee, plateau_reads_per_second
from nginx_tune.observe.inspect.disk_run import SMALL_READ_BYTES

_LEAST_BEYOND = 10
"""A quantile with fewer reads beyond it is not measured."""
_LEAST_DEVICE_RATIO = 0.9
"""Share of the bytes that must have come from a block device."""
_MOST_CPU_RATIO = 0.8
_UNACCOUNTED = ("9p", "fuse", "virtiofs", "zfs")
"""File systems whose reads the kernel does not count as a device's."""
_SLOW_SECONDS = 0.01
_MOST_STALLS_RATIO = 0.01
"""What happens more often is no stall: a throttled disk waits so at the end of each turn."""


def curve_of(run: DiskRun, *, read_bytes: int, filesystem: str, target: str) -> Curve | str:
    """The curve of a run, or why its numbers cannot be taken for the disk's."""
    done = [step for step in run.steps if not step.skipped]
    main = _sweep(done, read_bytes)
    if not main.points:
        return "interrupted" if "interrupted" in run.flags else "no read came back in time"
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
        notes.append("unaccounted: nothing tells whether the disk or a cache answered")
    for step in steps:
        size = f"{step.read_bytes >> 10} KiB"
        where = f"{size} at depth {step.depth}"
        if step.skipped:
            notes.append(f"skipped: {where}: {step.skipped}")
        if step.errors:
            notes.append(f"errors: {step.errors} reads of {where} failed")
        if step.cpu_ratio > _MOST_CPU_RATIO:
            used = percent_text(step.cpu_ratio, 2)
            notes.append(f"cpu: the probe used {used} of the CPUs for {where}: it was the limit")
    return [*notes, *_stalls(steps)]


def _stalls(steps: Sequence[DiskStepRun]) -> list[str]:
    """What an SSD does now and then while nothing queues: only at depth 1 is it the disk alone."""
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
    """Why values of a curve are null, by JSON pointer relative to it."""
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
            gaps[f"/points/{index}/{name}"] = "too few reads came back"
    return gaps


def _of_nulls(curve: Curve, gaps: dict[str, str]) -> dict[str, str]:
    """Those that are about a null; what is known needs no reason."""
    parts = msgspec.to_builtins(curve)

    def value(pointer: str) -> object:
        found = parts
        for key in pointer.strip("/").split("/"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    return {pointer: reason for pointer, reason in gaps.items() if value(pointer) is None}
