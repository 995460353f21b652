"""The disks of a lab: made or found, attached, mounted, and switched while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.lab import mounts
from nginx_tune.lab.disks import run_tool
from nginx_tune.lab.images import Image, copy_image, obtain_image
from nginx_tune.lab.kinds import describe_disk, model_of
from nginx_tune.lab.loops import Loop
from nginx_tune.lab.modelled import ModelledFile


class _Mounted(NamedTuple):
    disk: LabDisk
    files: dict[str, int]
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
            files = self._files(disk)
            self._say(
                f"{disk.name}: {sum(files.values()) >> 20} MiB of files, {describe_disk(disk)}"
            )
            self._images[disk.name] = obtain_image(
                files, self._directory, seed=self._lab.seed, progress=self._say
            )

    def open(self) -> None:
        """Attach and mount every disk; models stay off until a load runs."""
        for number, disk in enumerate(self._lab.disks):
            mount = mounts.place(Path(disk.mount))
            path = self._images[disk.name].path
            if disk.writable:
                path = copy_image(self._images[disk.name], self._directory / f"{disk.name}.img")
            modelled = self._model(disk, path, number)
            loop = Loop(str(modelled.path if modelled else path), writable=disk.writable)
            mounted = _Mounted(disk, self._files(disk), loop, modelled, mount)
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
    def files(self) -> dict[str, list[tuple[str, int]]]:
        """Path and bytes of every file, by the disk's name."""
        return {
            mounted.disk.name: [
                (str(mounted.mount / name), size) for name, size in mounted.files.items()
            ]
            for mounted in self._mounted
        }

    def make_names_cold(self) -> None:
        """Mount the disks anew when the lab asks for it, so that names and inodes are cold."""
        if not self._lab.cold_names:
            return
        for mounted in self._mounted:
            run_tool("umount", str(mounted.mount))
            _mount(mounted)

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """The time in which modelled disks answer as their models say, errors included."""
        with contextlib.ExitStack() as stack:
            for mounted in self._mounted:
                if mounted.modelled is not None:
                    mounted.modelled.switch(on=True)
                    stack.callback(mounted.modelled.switch, on=False)
            yield

    def _files(self, disk: LabDisk) -> dict[str, int]:
        return files_of([item for item in self._lab.data if item.disk == disk.name])


def files_of(data: list[LabData]) -> dict[str, int]:
    """The files of a disk by name, with their bytes; pure."""
    found: dict[str, int] = {}
    for item in data:
        found |= item.sizes or {
            f"{item.prefix}f{len(found) + index:05d}.bin": item.file_bytes
            for index in range(item.files)
        }
    return found


def _mount(mounted: _Mounted) -> None:
    options = "noatime" if mounted.disk.writable else "noatime,ro"
    run_tool("mount", "-o", options, mounted.loop.device, str(mounted.mount))
    if mounted.disk.writable:
        mounted.mount.chmod(0o1777)
