"""The facts of an emulated host: what was read inside the lab, and what the lab itself is; pure."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.curve import Curve, CurvePoint, Sweep
from nginx_tune.documents.facts import (
    Cpu,
    Disk,
    Facts,
    Link,
    Network,
    PathStorage,
    Storage,
)
from nginx_tune.documents.lab import Lab, LabDisk
from nginx_tune.nginx.lab.kinds import model_of
from nginx_tune.nginx.lab.model_disk import predict_curve

_READ_BYTES = 128 << 10
"""The kernel's usual read-ahead: what sendfile() from a cold page cache reads."""
_LONG_READ_BYTES = 512 << 10
"""What nginx asks for at once: ``sendfile_max_chunk`` of the plain configuration."""
_SMALL_READ_BYTES = 4096


def emulate(facts: Facts, lab: Lab, *, cpus: int) -> Facts:
    """The facts with the lab's limits in place of the machine's.

    The disks are declared, not measured: a limited disk is what its limits say. So is the link to
    the clients; the machine's own links fall away.
    """
    memory = facts.memory
    if lab.memory_bytes is not None:
        memory = msgspec.structs.replace(
            memory,
            total_bytes=lab.memory_bytes,
            available_bytes=lab.memory_bytes,
            cgroup_limit_bytes=lab.memory_bytes,
            page_cache_limit_bytes=lab.memory_bytes,
            page_cache_limit_reason="the lab's memory limit around nginx",
            # Who laid out the files looked their names up, outside the limit.
            names_apart=not lab.cold_names,
        )
    storage = facts.storage
    if lab.disks:
        paths = [
            PathStorage(
                path=disk.mount, mount_point=disk.mount, filesystem="ext4", leaf_disks=[disk.name]
            )
            for disk in lab.disks
        ]
        disks = [_disk(disk) for disk in lab.disks]
        storage = Storage(paths=paths, disks=disks, independent_disk_count=len(disks))
    return msgspec.structs.replace(
        facts,
        cpu=Cpu(
            online=facts.cpu.online,
            cpuset=cpus,
            quota_cpus=lab.quota_cpus,
            effective=min(float(cpus), lab.quota_cpus or float(cpus)),
            model=facts.cpu.model,
        ),
        memory=memory,
        storage=storage,
        network=Network(links=_links(lab)),
    )


def _disk(disk: LabDisk) -> Disk:
    model = model_of(disk) if disk.kind == "modelled" else None
    return Disk(
        name=disk.name,
        class_=disk.class_name,
        class_reason=f"emulated: {_limits(disk) if model is None else 'modelled'}",
        curve=_plateau(disk) if model is None else predict_curve(model, _READ_BYTES),
    )


def _limits(disk: LabDisk) -> str:
    if disk.bytes_per_second is None or disk.reads_per_second is None:
        return "no limit"
    return f"limited to {disk.bytes_per_second >> 20} MiB/s and {disk.reads_per_second} reads/s"


def _links(lab: Lab) -> list[Link]:
    """The link between clients and nginx; none over the loopback, which bounds nothing."""
    if lab.topology != "link" or lab.link.bits_per_second is None:
        return []
    reason = "the lab's link between clients and nginx"
    return [Link(name="lab", speed_bits_per_second=lab.link.bits_per_second, speed_reason=reason)]


def _plateau(disk: LabDisk) -> Curve | None:
    """The curve of a limited disk.

    The kernel counts a throttle's reads and bytes apart: a read takes what the slower of the two
    takes, not both one after the other.
    Source: tg_within_iops_limit() and tg_within_bps_limit() in block/blk-throttle.c, the longer
            wait of both; thread-pools reads 80 of its 80 MiB/s in chunks, at 400 reads a second.
    """
    if disk.bytes_per_second is None or disk.reads_per_second is None:
        return None

    def points(read_bytes: int) -> list[CurvePoint]:
        rate = min(float(disk.reads_per_second or 0), (disk.bytes_per_second or 0) / read_bytes)
        return [CurvePoint(depth=1, reads_per_second=rate)]

    return Curve(
        read_bytes=_LONG_READ_BYTES,
        points=points(_LONG_READ_BYTES),
        knee_depth=None,
        small_reads=Sweep(read_bytes=_SMALL_READ_BYTES, points=points(_SMALL_READ_BYTES)),
        sequential_bytes_per_second=float(disk.bytes_per_second),
        provenance="declared",
    )
