"""The disks of a lab: made or found, attached, mounted, and switched while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.nginx.lab.images import Contents, Image, copy_image, obtain_image
from nginx_tune.nginx.lab.kinds import describe_disk, model_of
from nginx_tune.nginx.lab.loops import Loop
from nginx_tune.nginx.lab.modelled import ModelledFile


class _Mounted(NamedTuple):
    disk: LabDisk
    files: Mapping[str, int]
    loop: Loop
    modelled: ModelledFile | None

    @property
    def name(self) -> str:
        """Its name among the covers."""
        return f"disk-{self.disk.name}"


class LabDisks:
    """The disks of one lab, inside its walls. They go with the walls.

    ``prepare`` comes before the enclosure takes the right to write from the host's mounts (images
    move out of the lab's directory into the cache), ``open`` after it.
    """

    def __init__(
        self, lab: Lab, directory: Path, enclosure: Enclosure, say: Callable[[str], None]
    ) -> None:
        self._lab = lab
        self._directory = directory
        self._enclosure = enclosure
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
            path = self._images[disk.name].path
            if disk.writable:
                path = copy_image(self._images[disk.name], self._directory / f"{disk.name}.img")
            modelled = self._model(disk, path, number)
            loop = Loop(str(modelled.path if modelled else path), writable=disk.writable)
            mounted = _Mounted(disk, contents_of(self._lab, disk).files, loop, modelled)
            self._mount(mounted)
            self._enclosure.lay_disk(disk.mount, mounted.name, writable=disk.writable)
            self._mounted.append(mounted)

    def _mount(self, mounted: _Mounted) -> None:
        covers = self._enclosure.covers
        covers.add_disk(mounted.name, mounted.loop.device, writable=mounted.disk.writable)
        if mounted.disk.writable:
            covers.path(mounted.name).chmod(0o1777)

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
        """Path as nginx sees it and bytes of every file, by the disk's name."""
        return {
            mounted.disk.name: [
                (f"{mounted.disk.mount.rstrip('/')}/{name}", size)
                for name, size in mounted.files.items()
            ]
            for mounted in self._mounted
        }

    @property
    def paths(self) -> dict[str, Path]:
        """Where each disk is for the lab's own process, by the path that nginx sees it at."""
        covers = self._enclosure.covers
        return {mounted.disk.mount: covers.path(mounted.name) for mounted in self._mounted}

    def restore(self) -> None:
        """Remove what a block wrote to writable disks."""
        for mounted in self._mounted:
            if not mounted.disk.writable:
                continue
            kept = {Path(name).parts[0] for name in mounted.files} | {"lost+found"}
            self._enclosure.covers.clear(mounted.name, kept)

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
            self._enclosure.covers.remove(mounted.name)
            mounted.loop.wait_unmounted()
            self._mount(mounted)

    def look_names_up(self) -> None:
        """Have the name and the inode of every file in memory; of their data nothing."""
        for mounted in self._mounted:
            for name in mounted.files:
                (self._enclosure.covers.path(mounted.name) / name).lstat()

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
