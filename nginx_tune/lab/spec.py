"""``--lab SPEC``: a class of host by name, or a TOML file with the words of the lab document."""

from __future__ import annotations

from nginx_tune.documents.lab import Lab, LabData, LabDisk

MIB = 1 << 20

_LIMITS: dict[str, tuple[int | None, int | None]] = {
    "hdd": (80 * MIB, 400),
    "ssd": (400 * MIB, 20_000),
    "nvme": (1_500 * MIB, 80_000),
    "memory": (None, None),
}
"""Bytes and reads a second. The hdd row is the four-disk array of SOURCES A2 seen by one worker
on the development machine (LAB-NOTES 1); the others are plateaus typical of their class."""

CLASSES = tuple(_LIMITS)


def lab_of_class(name: str, *, mount: str, files: int, file_bytes: int) -> Lab:
    """The scale model of a class of host: one disk, memory a fifth of the data.

    ``memory`` is the host whose memory holds all.
    """
    bytes_per_second, reads_per_second = _LIMITS[name]
    memory = None if name == "memory" else max(files * file_bytes * 3 // 16, 64 * MIB)
    disk = LabDisk(
        name="disk1",
        class_name=name,  # type: ignore[arg-type]  # one of CLASSES
        mount=mount,
        bytes_per_second=bytes_per_second,
        reads_per_second=reads_per_second,
    )
    data = LabData(disk="disk1", files=files, file_bytes=file_bytes)
    return Lab(name=name, memory_bytes=memory, disks=[disk], data=[data])
