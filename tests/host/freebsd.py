"""Facts of a FreeBSD host, written by hand: nginx-tune runs on Linux and only reads them."""

from __future__ import annotations

from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    Facts,
    Kernel,
    Limits,
    Link,
    Memory,
    Network,
    Nginx,
    PathStorage,
    Residency,
    Running,
    SizeBucket,
    Sizes,
    Storage,
    Worker,
)
from nginx_tune.observe.inspect.facts import seal_facts

MIB = 1 << 20
GIB = 1 << 30


def freebsd() -> Facts:
    """A media server on FreeBSD: two hard disks with UFS, four times the memory in files."""
    disks = [
        Disk(
            name=f"ada{number}",
            class_="hdd",
            class_reason="camcontrol identify: media RPM 7200",
            size_bytes=4_000_787_030_016,
            model="WDC WD4003FFBX-68MU3N0",
            rotational=True,
        )
        for number in (1, 2)
    ]
    paths = [
        PathStorage(
            path=f"/media/disk{number}",
            mount_point=f"/media/disk{number}",
            filesystem="ufs",
            source=f"/dev/ada{number}p1",
            stack=[f"ada{number}p1", f"ada{number}"],
            leaf_disks=[f"ada{number}"],
        )
        for number in (1, 2)
    ]
    datasets = [
        Dataset(
            path=f"/media/disk{number}",
            files=16_384,
            bytes=16_384 * 4 * MIB,
            sizes=Sizes(
                mean_bytes=4.0 * MIB,
                p50_bytes=4 * MIB,
                p90_bytes=4 * MIB,
                p99_bytes=4 * MIB,
                max_bytes=4 * MIB,
                buckets=[SizeBucket(le_bytes=4 * MIB, files=16_384, bytes=16_384 * 4 * MIB)],
            ),
            residency=Residency(reason="mincore was not asked on FreeBSD"),
        )
        for number in (1, 2)
    ]
    facts = Facts(
        kernel=Kernel(
            system="FreeBSD",
            release="14.3-RELEASE",
            machine="amd64",
            features={"epollexclusive": False, "cachestat": False, "tcp_migrate_req": False},
            sysctls={"kern.ipc.somaxconn": "128", "kern.maxfilesperproc": "1046529"},
        ),
        cpu=Cpu(online=8, cpuset=8, effective=8.0, model="Intel(R) Xeon(R) E-2224G CPU @ 3.50GHz"),
        memory=Memory(
            total_bytes=32 * GIB,
            available_bytes=29 * GIB,
            page_cache_limit_bytes=29 * GIB,
            page_cache_limit_reason="free and inactive memory",
        ),
        storage=Storage(paths=paths, disks=disks, independent_disk_count=2),
        network=Network(
            links=[
                Link(
                    name="ix0",
                    kind="physical",
                    state="up",
                    speed_bits_per_second=10**10,
                    speed_reason="media 10Gbase-LR",
                    mtu=1500,
                )
            ]
        ),
        limits=Limits(nofile_soft=1_046_529, nofile_hard=1_046_529),
        nginx=Nginx(
            binary="/usr/local/sbin/nginx",
            product="nginx",
            version="1.28.0",
            nginx_version="1.28.0",
            flags=[
                "--prefix=/usr/local/etc/nginx",
                "--with-file-aio",
                "--with-threads",
                "--with-http_ssl_module",
                "--with-http_v2_module",
            ],
            conf_path="/usr/local/etc/nginx/nginx.conf",
            prefix="/usr/local/etc/nginx",
            error_log_path="/var/log/nginx/error.log",
            pid_path="/var/run/nginx.pid",
            running=Running(
                pid=1042,
                binary="/usr/local/sbin/nginx",
                conf_path="/usr/local/etc/nginx/nginx.conf",
                prefix="/usr/local/etc/nginx",
                workers=[
                    Worker(pid=1043 + number, nofile_soft=1_046_529, nofile_hard=1_046_529)
                    for number in range(8)
                ],
                other_mount_namespace=False,
            ),
        ),
        datasets=datasets,
    )
    return seal_facts(facts, {}, default_reason="not collected on FreeBSD")
