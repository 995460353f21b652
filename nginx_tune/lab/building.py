"""The disks of a lab: made or found, attached, mounted, and switched while it runs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.lab import mounts
from nginx_tune.lab.disks import run_tool
from nginx_tune.lab.images import Contents, Image, copy_image, obtain_image
from nginx_tune.lab.kinds import describe_disk, model_of
from nginx_tune.lab.loops import Loop
from nginx_tune.lab.modelled import ModelledFile


class _Mounted(NamedTuple):
    disk: LabDisk
    files: Mapping[str, int]
    loop: Loop
    modelled: ModelledFile | None
    mount: Path


class LabDisks:
    """The disks of one lab, inside its walls. They go with the walls.

    ``prepare`` comes before the lab's directory is set apart (images move out of it into the
    cache), ``open`` after it.
    """

    def __init__(self, lab: Lab, directory: Path, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._directory = directory
        self._say = say
        self._images: dict[str, Image] = {}
        self._mounted: list[_Mounted] = []

    def prepare(self) -> None:
        """Have every image: a kept one, or a new one."""
        for disk in self._lab.disks:
            contents = contents_of(self._lab, disk)
            size = sum(contents.files.values()) >> 20
            self._say(f"{disk.name}: {size} MiB of files, {describe_disk(disk)}")
            self._images[disk.name] = obtain_image(contents, self._directory, progress=self._say)

    def open(self) -> None:
        """Attach and mount every disk; models stay off until a load runs."""
        for number, disk in enumerate(self._lab.disks):
            mount = mounts.place(Path(disk.mount))
            path = self._images[disk.name].path
            if disk.writable:
                path = copy_image(self._images[disk.name], self._directory / f"{disk.name}.img")
            modelled = self._model(disk, path, number)
            loop = Loop(str(modelled.path if modelled else path), writable=disk.writable)
            mounted = _Mounted(disk, contents_of(self._lab, disk).files, loop, modelled, mount)
            _mount(mounted)
            self._mounted.append(mounted)

    def _model(self, disk: LabDisk, path: Path, number: int) -> ModelledFile | None:
        if disk.kind != "modelled":
            return None
        model = model_of(disk)
        if model is None:
            raise UndecidedError(f"{disk.name}: there is no model of class {disk.class_name}")
        return ModelledFile(
            path,
            self._directory / f"{disk.name}.disk",
            model,
            seed=self._lab.seed + number,
            writable=disk.writable,
        )

    @property
    def device_numbers(self) -> dict[str, str]:
        """``MAJOR:MINOR`` by the disk's name."""
        return {mounted.disk.name: mounted.loop.number for mounted in self._mounted}

    @property
    def read_errors(self) -> dict[str, int]:
        """Reads that modelled disks failed in the last load, by the disk's name."""
        found = {
            mounted.disk.name: mounted.modelled.failed_reads
            for mounted in self._mounted
            if mounted.modelled is not None
        }
        return {name: count for name, count in found.items() if count}

    @property
    def files(self) -> dict[str, list[tuple[str, int]]]:
        """Path and bytes of every file, by the disk's name."""
        return {
            mounted.disk.name: [
                (str(mounted.mount / name), size) for name, size in mounted.files.items()
            ]
            for mounted in self._mounted
        }

    def restore(self) -> None:
        """Remove what a block wrote to writable disks."""
        for mounted in self._mounted:
            if not mounted.disk.writable:
                continue
            kept = {Path(name).parts[0] for name in mounted.files} | {"lost+found"}
            for entry in mounted.mount.iterdir():
                if entry.name in kept:
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()

    @property
    def has_cold_names(self) -> bool:
        """Whether a block starts with names and inodes that are not in memory."""
        return self._lab.cold_names

    def make_names_cold(self) -> None:
        """Mount the disks anew when the lab asks for it, so that names and inodes are cold.

        Errors: UndecidedError when a file system stays in memory, mounted by somebody else too.
        """
        if not self._lab.cold_names:
            return
        for mounted in self._mounted:
            run_tool("umount", str(mounted.mount))
            mounted.loop.wait_unmounted()
            _mount(mounted)

    def look_names_up(self) -> None:
        """Have the name and the inode of every file in memory; of their data nothing."""
        for mounted in self._mounted:
            for name in mounted.files:
                (mounted.mount / name).stat()

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """The time in which modelled disks answer as their models say, errors included."""
        with contextlib.ExitStack() as stack:
            for mounted in self._mounted:
                if mounted.modelled is not None:
                    mounted.modelled.switch(on=True)
                    stack.callback(mounted.modelled.switch, on=False)
            yield


def contents_of(lab: Lab, disk: LabDisk) -> Contents:
    """What the image of a disk holds; pure."""
    found: dict[str, int] = {}
    for item in lab.data:
        if item.disk != disk.name:
            continue
        found |= item.sizes or {
            _name(item, len(found) + index): item.file_bytes for index in range(item.files)
        }
    return Contents(found, lab.seed, disk.room_bytes)


def _name(item: LabData, number: int) -> str:
    place = f"d{number % item.directories:05d}/" if item.directories else ""
    return f"{place}{item.prefix}f{number:05d}.bin"


def _mount(mounted: _Mounted) -> None:
    options = "noatime" if mounted.disk.writable else "noatime,ro"
    run_tool("mount", "-o", options, mounted.loop.device, str(mounted.mount))
    if mounted.disk.writable:
        mounted.mount.chmod(0o1777)
