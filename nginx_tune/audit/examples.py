"""Hosts for the rules' examples."""

from __future__ import annotations

from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    DiskClass,
    Facts,
    Kernel,
    Limits,
    Memory,
    Nginx,
    PathStorage,
    Residency,
    Sizes,
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
    effective_cpus: float | None = None,
    memory_limit_mib: int | None = None,
    nofile: tuple[int, int] = (1024, 524_288),
    can_raise: bool = True,
    sysctls: dict[str, str] | None = None,
    features: dict[str, bool | None] | None = None,
    mean_file_bytes: int = 1 << 20,
) -> Facts:
    """A Linux host.

    ``datasets`` gives GiB and resident share by path, ``disks`` a disk's name and class by path,
    ``effective_cpus`` those that a quota leaves, ``nofile`` the soft and the hard limit.
    """
    return Facts(
        kernel=Kernel(
            system="Linux",
            release="6.1.0",
            features={"epollexclusive": True, "tls": False, **(features or {})},
            sysctls={
                "net.core.somaxconn": "4096",
                "net.ipv4.tcp_migrate_req": "1",
                **(sysctls or {}),
            },
        ),
        cpu=Cpu(
            online=cpus,
            cpuset=cpus,
            effective=float(cpus) if effective_cpus is None else effective_cpus,
        ),
        memory=Memory(
            total_bytes=(cache_gib + 8) * GIB,
            cgroup_limit_bytes=None if memory_limit_mib is None else memory_limit_mib << 20,
            page_cache_limit_bytes=cache_gib * GIB,
        ),
        limits=Limits(
            nofile_soft=nofile[0], nofile_hard=nofile[1], nr_open=1 << 20, can_raise=can_raise
        ),
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
                files=max(1, size * GIB // mean_file_bytes),
                bytes=size * GIB,
                sizes=Sizes(
                    mean_bytes=mean_file_bytes,
                    p50_bytes=mean_file_bytes,
                    p90_bytes=mean_file_bytes,
                    p99_bytes=mean_file_bytes,
                    max_bytes=mean_file_bytes,
                ),
                residency=Residency(ratio=ratio, method="cachestat", trusted=True),
            )
            for path, (size, ratio) in (datasets or {}).items()
        ],
    )
