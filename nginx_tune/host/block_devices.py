"""Block devices in sysfs: leaf disks with their class and queues, and layers on top of them.

A layer is a partition or an md, device-mapper, bcache or loop device.
"""

import re

from nginx_tune.documents.facts import Array, Disk, Layer
from nginx_tune.host.cpu import read_numa_node
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, mapped, read_parsed
from nginx_tune.host.parse_proc import parse_choice, parse_integer
from nginx_tune.host.parse_storage import (
    Identity,
    classify,
    parse_dm_kind,
    parse_dm_table,
    parse_sync_completed,
)

_SECTOR_BYTES = 512
"""The unit of ``/sys/block/X/size``, independent of the disk's sector size."""


def read_disk(host: Host, directory: str) -> tuple[Disk, Gaps]:
    """The disk at a sysfs directory (links resolved)."""
    gaps: Gaps = {"/curve": "not measured"}
    name = directory.rpartition("/")[2]
    rotational = _read_integer(host, f"{directory}/queue/rotational")
    model = _read_text(host, f"{directory}/device/model")
    verdict = classify(
        Identity(
            name=name,
            directory=directory,
            vendor=_read_word(host, f"{directory}/device/vendor"),
            model="" if isinstance(model, Missing) else model,
            transport=_read_transport(host, directory),
            kind=_read_word(host, f"{directory}/device/type") if name[:6] == "mmcblk" else "",
            rotational=None if isinstance(rotational, Missing) else bool(rotational),
        )
    )
    size = _read_integer(host, f"{directory}/size")
    read_ahead = read_read_ahead_bytes(host, directory)
    queue_directory = _queue_directory(host, directory, name)
    nr_requests = _read_integer(host, f"{queue_directory}/queue/nr_requests")
    queues = _read_queue_count(host, queue_directory)
    depth = mapped(nr_requests, lambda n: mapped(queues, lambda count: n * count))
    disk = Disk(
        name=name,
        class_=verdict.disk_class,
        class_reason=verdict.reason,
        size_bytes=known(mapped(size, lambda n: n * _SECTOR_BYTES), gaps, "/size_bytes"),
        model=known(model, gaps, "/model"),
        rotational=known(mapped(rotational, bool), gaps, "/rotational"),
        scheduler=known(_read_scheduler(host, queue_directory), gaps, "/scheduler"),
        nr_requests=known(nr_requests, gaps, "/nr_requests"),
        hardware_queues=known(queues, gaps, "/hardware_queues"),
        depth=known(depth, gaps, "/depth"),
        device_queue_depth=known(
            _read_integer(host, f"{directory}/device/queue_depth"), gaps, "/device_queue_depth"
        ),
        read_ahead_bytes=known(read_ahead, gaps, "/read_ahead_bytes"),
        numa_node=known(read_numa_node(host, directory), gaps, "/numa_node"),
        paths=_path_nodes(host, directory, name),
    )
    return disk, gaps


def read_read_ahead_bytes(host: Host, directory: str) -> int | Missing:
    """The read-ahead of a block device. For files, use the device of their file system."""
    kibibytes = _read_integer(host, f"{directory}/queue/read_ahead_kb")
    return mapped(kibibytes, lambda n: n * 1024)


def _read_integer(host: Host, path: str) -> int | Missing:
    return read_parsed(host, path, parse_integer)


def _read_text(host: Host, path: str) -> str | Missing:
    text = attempt(host.read_text, path)
    if isinstance(text, Missing):
        return text
    return " ".join(text.split()) or Missing(f"{path} is empty")


def _read_word(host: Host, path: str) -> str:
    text = attempt(host.read_text, path)
    # The vendor of a virtio device is a PCI number (0x1af4), no name.
    return "" if isinstance(text, Missing) or text.startswith("0x") else " ".join(text.split())


def _read_transport(host: Host, directory: str) -> str:
    """The transport of an NVMe disk; for a multipath head, the transport of its first path."""
    for path in (f"{directory}/device/transport", f"{directory}/device/nvme0/transport"):
        text = attempt(host.read_text, path)
        if not isinstance(text, Missing):
            return text.strip()
    return ""


def _queue_directory(host: Host, directory: str, name: str) -> str:
    """The directory with a disk's queues.

    The head of an NVMe multipath (``nvme0n1``) has no queues, so those of its first path are used:
    by default, a single path serves the reads of a NUMA node.
    """
    paths = _path_nodes(host, directory, name)
    return f"/sys/block/{paths[0]}" if paths else directory


def _path_nodes(host: Host, directory: str, name: str) -> list[str]:
    """The path devices of an NVMe multipath head: hidden disks such as ``nvme0c1n1``."""
    head = re.fullmatch(r"(nvme\d+)(n\d+)", name)
    if head is None or "/nvme-subsystem/" not in directory:
        return []
    disks = attempt(host.list_dir, "/sys/block")
    if isinstance(disks, Missing):
        return []
    return [disk for disk in disks if re.fullmatch(rf"{head[1]}c\d+{head[2]}", disk)]


def _read_queue_count(host: Host, directory: str) -> int | Missing:
    queues = attempt(host.list_dir, f"{directory}/mq")
    if isinstance(queues, Missing):
        return queues
    return sum(name.isdecimal() for name in queues) or Missing(f"{directory}/mq is empty")


def _read_scheduler(host: Host, directory: str) -> str | Missing:
    return read_parsed(host, f"{directory}/queue/scheduler", parse_choice)


def read_layer(host: Host, directory: str, lower: list[str]) -> Layer:
    """The layer at a sysfs directory (links resolved): a device on top of others."""
    name = directory.rpartition("/")[2]
    if not isinstance(attempt(host.read_text, f"{directory}/partition"), Missing):
        return Layer(name=name, kind="partition", lower=lower)
    if not isinstance(level := _read_text(host, f"{directory}/md/level"), Missing):
        return Layer(name=name, kind="md", lower=lower, detail=level)
    if not isinstance(uuid := attempt(host.read_text, f"{directory}/dm/uuid"), Missing):
        return _read_dm(host, directory, uuid, lower)
    if re.fullmatch(r"bcache\d+", name):
        return Layer(name=name, kind="bcache", lower=lower, detail=_read_bcache(host, directory))
    if re.fullmatch(r"loop\d+", name):
        return Layer(name=name, kind="loop", lower=lower)
    if re.fullmatch(r"md(\d+|_.+)", name):
        return Layer(name=name, kind="md", lower=lower, detail=level.reason)
    return Layer(name=name, kind="stacked", lower=lower)


WITHOUT_REDUNDANCY = frozenset({"raid0", "linear"})


def read_array(host: Host, directory: str) -> tuple[Array, Gaps]:
    """The state of an md array.

    Source: Documentation/admin-guide/md.rst; arrays without redundancy (linear, raid0) have no
            ``degraded`` and no ``sync_action``.
    """
    gaps: Gaps = {}
    level = _read_text(host, f"{directory}/md/level")
    members = _read_integer(host, f"{directory}/md/raid_disks")
    degraded = _read_integer(host, f"{directory}/md/degraded")
    action = _read_text(host, f"{directory}/md/sync_action")
    ratio = read_parsed(host, f"{directory}/md/sync_completed", parse_sync_completed)
    if isinstance(level, str) and level in WITHOUT_REDUNDANCY:
        degraded = action = ratio = Missing(
            f"{level} has no redundancy: if a disk fails, it is lost"
        )
    array = Array(
        name=directory.rpartition("/")[2],
        level=known(level, gaps, "/level"),
        members=known(members, gaps, "/members"),
        degraded=known(degraded, gaps, "/degraded"),
        sync_action=known(action, gaps, "/sync_action"),
        sync_done_ratio=known(ratio, gaps, "/sync_done_ratio"),
    )
    return array, gaps


def _read_dm(host: Host, directory: str, uuid: str, lower: list[str]) -> Layer:
    name = directory.rpartition("/")[2]
    volume = _read_text(host, f"{directory}/dm/name")
    label = "" if isinstance(volume, Missing) else volume
    kind = parse_dm_kind(uuid)
    if kind not in {"crypt", "multipath"} and label:
        run = attempt(host.run, ["dmsetup", "table"])
        if not isinstance(run, Missing) and run.status == 0:
            kind = parse_dm_table(run.stdout).get(label, kind)
    return Layer(name=name, kind=kind, lower=lower, detail=label)


def _read_bcache(host: Host, directory: str) -> str:
    mode = read_parsed(host, f"{directory}/bcache/cache_mode", parse_choice)
    words = [mode, _read_text(host, f"{directory}/bcache/state")]
    return ", ".join(word for word in words if isinstance(word, str))
