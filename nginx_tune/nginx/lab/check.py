"""The check of a lab's specification before anything runs; pure."""

import re
from pathlib import PurePosixPath
from typing import Literal

from nginx_tune.documents.lab import TCP_SETTINGS, DiskModel, Lab, LabData, LabDisk
from nginx_tune.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)
_SIZES = re.compile(r"[0-9]{1,10}(\s+[0-9]{1,10}){2}", re.ASCII)
_TCP_VALUES = dict(
    zip(TCP_SETTINGS, (re.compile(r"[a-z0-9_]{1,15}", re.ASCII), _SIZES, _SIZES), strict=True)
)
_NOTHING = re.compile(r"(?!)")
_MOST_FILES = 200_000
_MOST_BYTES = 1 << 40
_MOST_CHANNELS = 1024
_MOST_SECONDS = 60.0
_LEAST_MEMORY_BYTES = 16 << 20
_LEAST_DIRTY_BYTES = 1 << 20
"""Lowest valid limit of unwritten data. Below a few hundred pages, the kernel admits only one
writer at a time."""
DiskClassName = Literal["hdd", "ssd", "nvme", "memory"]


def is_below(path: str, directory: str) -> bool:
    """True for the directory itself and for paths in it."""
    return PurePosixPath(directory) in (PurePosixPath(path), *PurePosixPath(path).parents)


def check_lab(lab: Lab, place: str) -> None:
    """Check that a lab can be built.

    Errors: UsageError that names the field, after ``place``.
    """
    fault = next(iter(_faults(lab)), None)
    if fault is not None:
        raise UsageError(place + fault)


def _faults(lab: Lab) -> list[str]:
    names = [disk.name for disk in lab.disks]
    found = _where(
        *(
            (names.count(name) > 1, f"disks: the name {name!a} is given twice")
            for name in dict.fromkeys(names)
        ),
        (
            lab.memory_bytes is not None and lab.memory_bytes < _LEAST_MEMORY_BYTES,
            f"memory_bytes: below {_LEAST_MEMORY_BYTES}, which nginx itself needs",
        ),
        (lab.cpus is not None and lab.cpus < 1, "cpus: below 1"),
        (
            lab.quota_cpus is not None and not 0.01 <= lab.quota_cpus <= 1024,  # noqa: PLR2004
            "quota_cpus: must be 0.01 to 1024",
        ),
        (lab.seed < 0, "seed: below 0"),
        *(
            (
                not _TCP_VALUES.get(name, _NOTHING).fullmatch(value),
                f"tcp.{name}: the lab cannot set this to {value[:60]!a}",
            )
            for name, value in lab.tcp.items()
        ),
        (
            lab.link.bits_per_second is not None and lab.link.bits_per_second < 1000,  # noqa: PLR2004
            "link.bits_per_second: below 1000",
        ),
        (not 0 <= lab.link.delay_seconds <= _MOST_SECONDS, "link.delay_seconds: must be 0 to 60"),
        (
            not 0 <= lab.origin.delay_seconds <= _MOST_SECONDS,
            "origin.delay_seconds: must be 0 to 60",
        ),
        (
            lab.origin.bytes_per_second is not None and lab.origin.bytes_per_second <= 0,
            "origin.bytes_per_second: must be above 0",
        ),
        (lab.origin.connections < 1, "origin.connections: below 1"),
        (
            not (1 <= lab.origin.files <= _MOST_FILES and lab.origin.file_bytes >= 1),
            f"origin: files must be 1 to {_MOST_FILES}, file_bytes above 0",
        ),
    )
    for disk in lab.disks:
        found += _disk_faults(disk)
    for item in lab.data:
        found += _data_faults(item, names)
    return found


def _disk_faults(disk: LabDisk) -> list[str]:
    mount = PurePosixPath(disk.mount)
    place = mount.is_absolute() and ".." not in mount.parts and mount != PurePosixPath("/")
    is_kernels = mount.parts[1:2] in (("proc",), ("sys",), ("dev",))
    found = _where(
        (_NAME.fullmatch(disk.name) is None, f"disks: not a valid name: {disk.name[:60]!a}"),
        (
            bool(disk.mount) and not place,
            f"disks.mount: not an absolute path below /: {disk.mount[:60]!a}",
        ),
        (
            is_kernels or "\0" in disk.mount,
            f"disks.mount: not a place for files: {disk.mount[:60]!a}",
        ),
        (disk.bytes_per_second is not None and disk.bytes_per_second < 1, "disks: no bandwidth"),
        (disk.reads_per_second is not None and disk.reads_per_second < 1, "disks: no rate"),
        (
            disk.room_bytes < 0 or (disk.room_bytes > 0 and not disk.writable),
            "disks.room_bytes: only for a writable disk",
        ),
        (
            disk.dirty_bytes is not None
            and not (disk.writable and disk.dirty_bytes >= _LEAST_DIRTY_BYTES),
            f"disks.dirty_bytes: only for a writable disk, at least {_LEAST_DIRTY_BYTES}",
        ),
        (
            disk.model is not None and disk.kind != "modelled",
            f'disks: {disk.name} has a model and is not kind = "modelled"',
        ),
    )
    return found if disk.model is None else found + _model_faults(disk.model)


def _model_faults(model: DiskModel) -> list[str]:
    every = model.stall_every_seconds
    return _where(
        (not 0 <= model.read_seconds <= _MOST_SECONDS, "disks.model.read_seconds: must be 0 to 60"),
        (not 0 <= model.spread_ratio <= 1, "disks.model.spread_ratio: must be 0 to 1"),
        (
            not 1 <= model.channels <= _MOST_CHANNELS,
            f"disks.model.channels: must be 1 to {_MOST_CHANNELS}",
        ),
        (
            model.bytes_per_second is not None and model.bytes_per_second <= 0,
            "disks.model.bytes_per_second: must be above 0",
        ),
        (
            model.read_seconds <= 0 and model.bytes_per_second is None,
            "disks.model: reads would take no time",
        ),
        (
            model.sequential_seconds is not None and model.sequential_seconds < 0,
            "disks.model.sequential_seconds: below 0",
        ),
        (not 0 <= model.tail_ratio <= 1, "disks.model.tail_ratio: must be 0 to 1"),
        (not 0 <= model.tail_seconds <= _MOST_SECONDS, "disks.model.tail_seconds: must be 0 to 60"),
        (every is not None and every <= 0, "disks.model.stall_every_seconds: must be above 0"),
        (
            not 0 <= model.stall_seconds <= _MOST_SECONDS,
            "disks.model.stall_seconds: must be 0 to 60",
        ),
        (not 0 <= model.error_ratio <= 1, "disks.model.error_ratio: must be 0 to 1"),
    )


def _data_faults(item: LabData, disks: list[str]) -> list[str]:
    names = [PurePosixPath(name) for name in item.sizes]
    total = sum(item.sizes.values()) or item.files * item.file_bytes
    return _where(
        (item.disk not in disks, f"data: no disk {item.disk[:60]!a}"),
        (
            not item.sizes and not (item.files > 0 and item.file_bytes > 0),
            "data: files and file_bytes must be above 0",
        ),
        (
            not 0 <= item.directories <= item.files,
            "data.directories: must be 0 to the number of files",
        ),
        (max(item.files, len(item.sizes)) > _MOST_FILES, f"data: more than {_MOST_FILES} files"),
        (total > _MOST_BYTES, "data: more than 1 TiB"),
        (
            any(name.is_absolute() or ".." in name.parts or not name.parts for name in names),
            "data.sizes: a name is not a relative path",
        ),
        (any(size < 0 for size in item.sizes.values()), "data.sizes: a size is below 0"),
        (
            "/" in item.prefix or "\0" in item.prefix or any("\0" in n for n in item.sizes),
            "data.prefix: not usable in a file name",
        ),
    )


def _where(*checks: tuple[bool, str]) -> list[str]:
    return [fault for holds, fault in checks if holds]
