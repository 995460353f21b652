"""Hosts for the rules' examples."""

from __future__ import annotations

from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    DiskClass,
    Facts,
    Kernel,
    Memory,
    Nginx,
    PathStorage,
    Residency,
    Storage,
)

GIB = 1 << 30


def linux(
    *,
    cache_gib: int = 40,
    cpus: int = 8,
    version: str = "1.22.1",
    flags: tuple[str, ...] = ("--with-threads",),
    datasets: dict[str, tuple[int, float]] | None = None,
    disks: dict[str, tuple[str, DiskClass]] | None = None,
) -> Facts:
    """A Linux host.

    ``datasets`` gives GiB and resident share by path, ``disks`` a disk's name and class by path.
    """
    return Facts(
        kernel=Kernel(system="Linux", release="6.1.0"),
        cpu=Cpu(online=cpus, effective=float(cpus)),
        memory=Memory(page_cache_limit_bytes=cache_gib * GIB),
        nginx=Nginx(product="nginx", version=version, nginx_version=version, flags=list(flags)),
        storage=Storage(
            paths=[
                PathStorage(path=path, filesystem="ext4", leaf_disks=[name])
                for path, (name, _) in (disks or {}).items()
            ],
            disks=[Disk(name=name, class_=kind) for name, kind in (disks or {}).values()],
        ),
        datasets=[
            Dataset(
                path=path,
                files=1000,
                bytes=size * GIB,
                residency=Residency(ratio=ratio, method="cachestat", trusted=True),
            )
            for path, (size, ratio) in (datasets or {}).items()
        ],
    )
