"""Documents from outside without impossible numbers: those count as not known.

Facts and workloads may come from other hosts, other tools and by hand; the model then never
meets a negative size, a host without CPUs or an infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from nginx_tune.documents.bounds import MOST_BYTES, MOST_COUNT, STEEPEST
from nginx_tune.documents.curve import Curve, Sweep
from nginx_tune.documents.facts import Dataset, Disk, Facts
from nginx_tune.documents.workload import Workload

MOST_CPUS = 1 << 14

S = TypeVar("S", bound=msgspec.Struct)
SweepType = TypeVar("SweepType", bound=Sweep)


def plausible_facts(facts: Facts) -> Facts:
    """The facts with impossible sizes, counts and speeds set to null."""
    replace = msgspec.structs.replace
    storage = replace(
        facts.storage,
        paths=[_nulled(p, _within(1, MOST_BYTES), "read_ahead_bytes") for p in facts.storage.paths],
        disks=[_disk(d) for d in facts.storage.disks],
        shared_curves=[
            replace(shared, curve=curve)
            for shared in facts.storage.shared_curves
            if (curve := _curve(shared.curve)) is not None
        ],
    )
    links = [
        _nulled(link, _within(1, MOST_COUNT), "speed_bits_per_second")
        for link in facts.network.links
    ]
    return replace(
        facts,
        cpu=_nulled(
            facts.cpu, _within(1 / 100, MOST_CPUS), "online", "cpuset", "quota_cpus", "effective"
        ),
        memory=_nulled(
            facts.memory,
            _within(1, MOST_BYTES),
            "total_bytes",
            "available_bytes",
            "cgroup_limit_bytes",
            "page_cache_limit_bytes",
        ),
        storage=storage,
        network=replace(facts.network, links=links),
        limits=_nulled(
            facts.limits, _within(1, MOST_COUNT), "nofile_soft", "nofile_hard", "nr_open"
        ),
        datasets=[_dataset(d) for d in facts.datasets],
    )


def plausible_workload(workload: Workload) -> Workload:
    """The workload with impossible sizes, counts and rates set to null."""
    number = _within(1e-9, MOST_COUNT)
    popularity = _nulled(workload.popularity, _within(0, STEEPEST), "exponent")
    popularity = _nulled(popularity, _within(0, MOST_COUNT), "requests_seen")
    curve = [
        point
        for point in popularity.curve
        if 0 < point.requests_ratio <= 1 and 0 < point.bytes <= MOST_BYTES
    ]
    return msgspec.structs.replace(
        workload,
        dataset=msgspec.structs.replace(
            _nulled(workload.dataset, _within(1, MOST_BYTES), "files", "bytes"),
            requests_by_path={
                path: share
                for path, share in workload.dataset.requests_by_path.items()
                if number(share)
            },
        ),
        popularity=msgspec.structs.replace(popularity, curve=curve),
        sizes=_nulled(workload.sizes, _within(1, MOST_BYTES), "mean_bytes"),
        rate=_nulled(
            workload.rate, number, "mean_per_second", "peak_per_second", "without_file_per_second"
        ),
        concurrency=_nulled(
            workload.concurrency,
            number,
            "mean",
            "peak",
            "cold_peak",
            "client_bytes_per_second",
            "since_seconds",
        ),
        connection_reuse=_nulled(
            workload.connection_reuse, _within(1, MOST_COUNT), "requests_per_connection"
        ),
        round_trip=_nulled(
            workload.round_trip, _within(1e-6, 60), "p50_seconds", "p90_seconds", "p99_seconds"
        ),
        cpu_per_request=_nulled(
            workload.cpu_per_request, _within(1e-9, 3600), "mean_seconds", "stdev_seconds"
        ),
    )


def _dataset(dataset: Dataset) -> Dataset:
    return _nulled(dataset, _within(0, MOST_BYTES), "files", "bytes")


def _disk(disk: Disk) -> Disk:
    disk = _nulled(disk, _within(1, MOST_BYTES), "size_bytes", "read_ahead_bytes")
    return msgspec.structs.replace(disk, curve=None if disk.curve is None else _curve(disk.curve))


def _curve(curve: Curve) -> Curve | None:
    """The curve with its possible points; null when none is left."""
    swept = _sweep(curve)
    if swept is None:
        return None
    fast = _nulled(swept, _within(1e3, MOST_BYTES), "sequential_bytes_per_second")
    small = None if fast.small_reads is None else _sweep(fast.small_reads)
    return msgspec.structs.replace(fast, small_reads=small)


def _sweep(sweep: SweepType) -> SweepType | None:
    rate, number = _within(1e-3, MOST_COUNT), _within(1, MOST_COUNT)
    points = [p for p in sweep.points if rate(p.reads_per_second) and number(p.depth)]
    if not points or not number(sweep.read_bytes):
        return None
    fit = _nulled(sweep, rate, "plateau_reads_per_second")
    return msgspec.structs.replace(fit, points=points)


def _within(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: math.isfinite(value) and low <= value <= high


def _nulled(part: S, fits: Callable[[float], bool], *fields: str) -> S:
    changes: dict[str, Any] = {
        field: None
        for field in fields
        if getattr(part, field) is not None and not fits(getattr(part, field))
    }
    return msgspec.structs.replace(part, **changes) if changes else part
