"""Hosts and workloads that the tests of decisions and of the emitter start from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from nginx_tune.decide import engine, thread_pools
from nginx_tune.documents.decisions import Decision, Decisions
from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    DiskClass,
    Facts,
    Kernel,
    Limits,
    Link,
    Memory,
    Network,
    Nginx,
    PathStorage,
    SizeBucket,
    Sizes,
    Storage,
)
from nginx_tune.documents.facts_storage import Curve, CurvePoint, Sweep
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import (
    Concurrency,
    Kind,
    ObjectSizes,
    Popularity,
    Rate,
    ServedData,
    Workload,
)

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
FLAGS = ["--with-threads", "--with-http_stub_status_module", "--with-http_ssl_module"]


def nginx(version: str = "1.26.3", flags: list[str] | None = None) -> Nginx:
    return Nginx(
        product="nginx",
        version=version,
        nginx_version=version,
        flags=FLAGS if flags is None else flags,
    )


def host(
    *,
    cpus: float = 8,
    memory_bytes: int = 64 * GIBIBYTE,
    page_cache_bytes: int | None = None,
    disk_class: DiskClass = "hdd",
    disks: int = 1,
    mount: str = "/srv",
    **other: Any,
) -> Facts:
    """A plain Linux server; each disk has a directory ``/srv/1``, ``/srv/2`` and so on."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [f"sd{letters[n]}" if n < 26 else f"sda{letters[n - 26]}" for n in range(disks)]
    storage = Storage(
        paths=[
            PathStorage(
                path=f"{mount}/{n}",
                mount_point=f"{mount}/{n}",
                filesystem="ext4",
                leaf_disks=[name],
            )
            for n, name in enumerate(names, start=1)
        ],
        disks=[Disk(name=name, class_=disk_class, size_bytes=4 * 10**12) for name in names],
        independent_disk_count=disks,
    )
    parts: dict[str, Any] = {
        "kernel": Kernel(system="Linux", release="6.1.0"),
        "cpu": Cpu(online=int(cpus), cpuset=int(cpus), effective=float(cpus)),
        "memory": Memory(
            total_bytes=memory_bytes,
            available_bytes=memory_bytes,
            page_cache_limit_bytes=page_cache_bytes or memory_bytes * 3 // 4,
        ),
        "storage": storage,
        "network": Network(links=[Link(name="eth0", speed_bits_per_second=10**10)]),
        "limits": Limits(nofile_soft=1024, nofile_hard=524288, nr_open=1048576),
        "nginx": nginx(),
    }
    return Facts(**{**parts, **other})


def measured(facts: Facts, start_seconds: float, stream: float, *, heads: int = 1) -> Facts:
    """The host with a curve of each disk: so many heads, each with its start and its stream."""

    def sweep(read_bytes: int) -> list[CurvePoint]:
        each = start_seconds + read_bytes / stream
        depths = (1, 2, 4, 8, 16, 32)
        return [CurvePoint(depth=n, reads_per_second=min(n, heads) / each) for n in depths]

    points = sweep(128 * KIBIBYTE)
    curve = Curve(
        read_bytes=128 * KIBIBYTE,
        points=points,
        plateau_reads_per_second=points[-1].reads_per_second,
        small_reads=Sweep(read_bytes=4 * KIBIBYTE, points=sweep(4 * KIBIBYTE)),
        sequential_bytes_per_second=stream,
    )
    disks = [msgspec.structs.replace(disk, curve=curve) for disk in facts.storage.disks]
    storage = msgspec.structs.replace(facts.storage, disks=disks)
    return msgspec.structs.replace(facts, storage=storage)


def dataset(total_bytes: int, file_bytes: int, path: str = "/srv/1", **other: Any) -> Dataset:
    return Dataset(
        path=path,
        files=max(1, total_bytes // file_bytes),
        bytes=total_bytes,
        sizes=Sizes(
            mean_bytes=float(file_bytes),
            p50_bytes=file_bytes,
            p90_bytes=file_bytes,
            p99_bytes=file_bytes,
            max_bytes=file_bytes,
        ),
        **other,
    )


def load(
    kind: Kind = "static",
    *,
    data_bytes: int | None = 256 * GIBIBYTE,
    file_bytes: int = 4 * MEBIBYTE,
    exponent: float = 0.0,
    peak: float | None = 250,
    cold_peak: float | None = None,
    rate: float | None = None,
) -> Workload:
    """A declared workload."""
    return Workload(
        kind=kind,
        kind_provenance="declared",
        dataset=ServedData(
            files=None if data_bytes is None else max(1, data_bytes // file_bytes),
            bytes=data_bytes,
            provenance="declared",
        ),
        popularity=Popularity(exponent=exponent, provenance="declared"),
        sizes=ObjectSizes(mean_bytes=float(file_bytes), provenance="declared"),
        rate=Rate(mean_per_second=rate, peak_per_second=rate, provenance="declared"),
        concurrency=Concurrency(mean=peak, peak=peak, cold_peak=cold_peak, provenance="declared"),
    )


def lab_host() -> Facts:
    """Measured: one worker, 192 MiB of page cache, one disk of 80 MB/s and 400 reads/s."""
    curve = Curve(
        read_bytes=4096,
        points=[CurvePoint(depth=1, reads_per_second=400.0)],
        sequential_bytes_per_second=80e6,
        provenance="declared",
    )
    disk = Disk(name="disk1", class_="hdd", curve=curve)
    place = PathStorage(path="/srv/1", leaf_disks=["disk1"])
    return host(
        cpus=1,
        memory_bytes=192 * MEBIBYTE,
        page_cache_bytes=192 * MEBIBYTE,
        storage=Storage(paths=[place], disks=[disk], independent_disk_count=1),
        network=Network(),
        nginx=nginx("1.22.1"),
    )


def lab_load(cold: int = 20, hot: int = 4) -> Workload:
    """Measured: 1 GiB of 4-MiB files, random ones and one hot file."""
    return load("media", data_bytes=GIBIBYTE, peak=cold + hot, cold_peak=cold)


def two_sizes(small: int, small_bytes: int, large: int, large_bytes: int) -> list[SizeBucket]:
    """Files of two sizes, as a scan counts them."""
    return [
        SizeBucket(le_bytes=small_bytes, files=small, bytes=small * small_bytes),
        SizeBucket(le_bytes=large_bytes, files=large, bytes=large * large_bytes),
    ]


def scanned(
    sizes: list[SizeBucket],
    *,
    cache: int = 16 * GIBIBYTE,
    exponent: float = 0.8,
    kind: Kind = "media",
    **other: Any,
) -> tuple[Facts, Workload]:
    """A scanned tree of small and large files, asked for alike."""
    files, total = sum(b.files for b in sizes), sum(b.bytes for b in sizes)
    tree = dataset(total, total // files)
    spread = msgspec.structs.replace(tree.sizes, buckets=sizes)  # type: ignore[type-var]
    tree = msgspec.structs.replace(tree, files=files, sizes=spread)
    facts = host(memory_bytes=64 * GIBIBYTE, page_cache_bytes=cache, datasets=[tree], **other)
    workload = load(kind, data_bytes=total, file_bytes=total // files, exponent=exponent, peak=50)
    served = msgspec.structs.replace(workload.dataset, files=files, provenance="measured")
    return facts, msgspec.structs.replace(workload, dataset=served)


def source_host() -> Facts:
    """The sources, A2: 48 GB, 16 workers, 4 hard disks in RAID10 under one path, 10 Gbit/s."""
    names = ["sda", "sdb", "sdc", "sdd"]
    storage = Storage(
        paths=[PathStorage(path="/srv/1", leaf_disks=names)],
        disks=[Disk(name=name, class_="hdd") for name in names],
        independent_disk_count=1,
    )
    memory = 48 * 10**9
    return host(cpus=16, memory_bytes=memory, page_cache_bytes=45 * 10**9, storage=storage)


def site(**parts: Any) -> Site:
    return msgspec.structs.replace(Site(roots=["/srv/1"]), **parts)


def _as_decided(_decide: object, decision: Decision, *_: object) -> Decision:
    return decision


def _none(*_: object) -> list[Any]:
    return []


@contextmanager
def without_break_evens() -> Iterator[None]:
    """Decisions without what takes nearly all of their time, for tests that do not look at it."""
    with (
        patch.object(engine, "with_break_evens", _as_decided),
        patch.object(thread_pools, "find_break_evens", _none),
    ):
        yield


def decide_without_break_evens(
    facts: Facts, workload: Workload, *, site: Site, **more: Any
) -> Decisions:
    """`decide` in a thirtieth of the time."""
    with without_break_evens():
        return engine.decide(facts, workload, site=site, **more)


def one(decisions: Decisions, name: str) -> Decision:
    return next(d for d in decisions.decisions if d.id == name)


def lines(decision: Decision) -> list[str]:
    """Its settings as they are written, without their places."""
    return [" ".join([s.directive, *s.args]) for s in decision.settings]


def predicted(decision: Decision, metric: str) -> tuple[float, float, float]:
    p = next(p for p in decision.predicted if p.metric == metric)
    return p.low, p.expected, p.high
