"""One leaf disk: its class, size and queues, from its directory in sysfs."""

from __future__ import annotations

import re

from nginx_tune.documents.facts import Disk
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known
from nginx_tune.host.parse_block import Identity, classify
from nginx_tune.host.parse_values import parse_choice, parse_integer
from nginx_tune.host.placement import read_numa_node

_SECTOR_BYTES = 512
"""Unit of ``/sys/block/X/size``, whatever the disk's own sectors."""


def read_disk(host: Host, directory: str) -> tuple[Disk, Gaps]:
    """The disk whose sysfs directory (links resolved) is given."""
    gaps: Gaps = {"/curve": "not measured"}
    name = directory.rpartition("/")[2]
    rotational = _read_integer(host, f"{directory}/queue/rotational")
    model = _read_model(host, directory)
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
    depth = nr_requests if isinstance(nr_requests, Missing) else queues
    if not isinstance(nr_requests, Missing) and not isinstance(queues, Missing):
        depth = nr_requests * queues
    disk = Disk(
        name=name,
        class_=verdict.disk_class,
        class_reason=verdict.reason,
        size_bytes=known(
            size if isinstance(size, Missing) else size * _SECTOR_BYTES, gaps, "/size_bytes"
        ),
        model=known(model, gaps, "/model"),
        rotational=known(
            rotational if isinstance(rotational, Missing) else bool(rotational),
            gaps,
            "/rotational",
        ),
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
    """The read-ahead of a block device; what counts is that of the file system's own device."""
    kibibytes = _read_integer(host, f"{directory}/queue/read_ahead_kb")
    return kibibytes if isinstance(kibibytes, Missing) else kibibytes * 1024


def _read_integer(host: Host, path: str) -> int | Missing:
    text = attempt(host.read_text, path)
    return text if isinstance(text, Missing) else parse_integer(text)


def _read_word(host: Host, path: str) -> str:
    text = attempt(host.read_text, path)
    # The vendor of a virtio device is its PCI number (0x1af4): no name.
    return "" if isinstance(text, Missing) or text.startswith("0x") else " ".join(text.split())


def _read_model(host: Host, directory: str) -> str | Missing:
    text = attempt(host.read_text, f"{directory}/device/model")
    if isinstance(text, Missing):
        return text
    return " ".join(text.split()) or Missing(f"{directory}/device/model is empty")


def _read_transport(host: Host, directory: str) -> str:
    """Of an NVMe disk; behind a multipath head, the transport of its first path."""
    for path in (f"{directory}/device/transport", f"{directory}/device/nvme0/transport"):
        text = attempt(host.read_text, path)
        if not isinstance(text, Missing):
            return text.strip()
    return ""


def _queue_directory(host: Host, directory: str, name: str) -> str:
    """Where a disk's real queues are.

    The head of an NVMe multipath (``nvme0n1``) has none; its paths have. One path is taken:
    with the default policy one serves a node's reads.
    """
    paths = _path_nodes(host, directory, name)
    return f"/sys/block/{paths[0]}" if paths else directory


def _path_nodes(host: Host, directory: str, name: str) -> list[str]:
    """The paths under the head of an NVMe multipath: hidden disks such as ``nvme0c1n1``."""
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
    text = attempt(host.read_text, f"{directory}/queue/scheduler")
    return text if isinstance(text, Missing) else parse_choice(text)
