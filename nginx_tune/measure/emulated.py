"""The facts of an emulated host: what was read inside the lab, and what the lab itself is; pure."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.curve import Curve, CurvePoint
from nginx_tune.documents.facts import (
    Cpu,
    Disk,
    Facts,
    Network,
    PathStorage,
    Storage,
)
from nginx_tune.documents.lab import Lab, LabDisk
from nginx_tune.lab.kinds import model_of
from nginx_tune.lab.model_disk import predict_curve

_READ_BYTES = 128 << 10
"""The kernel's usual read-ahead: what sendfile() from a cold page cache reads."""


def emulate(facts: Facts, lab: Lab, *, cpus: int) -> Facts:
    """The facts with the lab's limits in place of the machine's.

    The disks are declared, not measured: a limited disk is what its limits say. Links fall away:
    inside the walls there is only ``lo``.
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
        network=Network(),
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


def _plateau(disk: LabDisk) -> Curve | None:
    if disk.bytes_per_second is None or disk.reads_per_second is None:
        return None
    return Curve(
        read_bytes=4096,
        points=[CurvePoint(depth=1, reads_per_second=float(disk.reads_per_second))],
        knee_depth=None,
        sequential_bytes_per_second=float(disk.bytes_per_second),
        provenance="declared",
    )
