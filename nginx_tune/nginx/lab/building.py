"""The lab inside its sandbox: disks, clients behind a link, an origin, a certificate.

Disk images come from the cache or are new. Disks are attached and mounted, and their models are
switched on and off during the lab.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from nginx_tune.documents.lab import DiskModel, Lab, LabData, LabDisk, has_origin
from nginx_tune.errors import UndecidedError
from nginx_tune.host.program import die_with_parent
from nginx_tune.host.programs import own_module, start_text_program
from nginx_tune.nginx.lab.disk_models import describe_disk, model_of
from nginx_tune.nginx.lab.disk_server import ServerRequest
from nginx_tune.nginx.lab.disks import Loop
from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.nginx.lab.images import Contents, Image, copy_image, obtain_image
from nginx_tune.nginx.lab.network import SERVER_ADDRESS, Certificate, ClientSide, make_certificate
from nginx_tune.nginx.lab.operation import LOOPBACK, Placement
from nginx_tune.nginx.lab.origin import OriginRequest, origin_objects

T = TypeVar("T")


class LabDisks:
    """The disks of a lab inside its sandbox; they end with the sandbox.

    Call ``prepare`` before the enclosure makes the host's mounts read-only, since images move from
    the lab's directory into the cache. Call ``open`` afterwards.
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
        """Get the image of every disk, from the cache or newly made."""
        for disk in self._lab.disks:
            contents = contents_of(self._lab, disk)
            size = sum(contents.files.values()) >> 20
            self._say(f"{disk.name}: {size} MiB of files, {describe_disk(disk)}")
            self._images[disk.name] = obtain_image(contents, self._directory, progress=self._say)

    def open(self) -> None:
        """Attach and mount every disk; models stay off until there is load."""
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
        """``MAJOR:MINOR`` of each disk, by the disk's name."""
        return {mounted.disk.name: mounted.loop.number for mounted in self._mounted}

    @property
    def read_errors(self) -> dict[str, int]:
        """Failed reads of modelled disks during the last load, by the disk's name."""
        found = {
            mounted.disk.name: mounted.modelled.failed_reads
            for mounted in self._mounted
            if mounted.modelled is not None
        }
        return {name: count for name, count in found.items() if count}

    @property
    def files(self) -> dict[str, list[tuple[str, int]]]:
        """For each disk, the path that nginx sees and the size in bytes of every file."""
        return {
            mounted.disk.name: [
                (f"{mounted.disk.mount.rstrip('/')}/{name}", size)
                for name, size in mounted.files.items()
            ]
            for mounted in self._mounted
        }

    @property
    def paths(self) -> dict[str, Path]:
        """The paths of the disks for the lab's process, by their mount points for nginx."""
        covers = self._enclosure.covers
        return {mounted.disk.mount: covers.path(mounted.name) for mounted in self._mounted}

    def restore(self) -> None:
        """Remove the files that a run wrote to writable disks."""
        for mounted in self._mounted:
            if not mounted.disk.writable:
                continue
            kept = {Path(name).parts[0] for name in mounted.files} | {"lost+found"}
            self._enclosure.covers.clear(mounted.name, kept)

    @property
    def has_cold_names(self) -> bool:
        """True if runs start without names and inodes in memory."""
        return self._lab.cold_names

    def make_names_cold(self) -> None:
        """Remount the disks if the lab wants cold names and inodes.

        Errors: UndecidedError if a file system stays in memory because it is mounted elsewhere too.
        """
        if not self._lab.cold_names:
            return
        for mounted in self._mounted:
            self._enclosure.covers.remove(mounted.name)
            mounted.loop.wait_unmounted()
            self._mount(mounted)

    def look_names_up(self) -> None:
        """Load the name and inode of every file into memory, but not its data."""
        for mounted in self._mounted:
            for name in mounted.files:
                (self._enclosure.covers.path(mounted.name) / name).lstat()

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """A context in which modelled disks answer as their models say, including errors."""
        with contextlib.ExitStack() as stack:
            for mounted in self._mounted:
                if mounted.modelled is not None:
                    mounted.modelled.switch(on=True)
                    stack.callback(mounted.modelled.switch, on=False)
            yield


class _Mounted(NamedTuple):
    """A mounted disk."""

    disk: LabDisk
    files: Mapping[str, int]
    loop: Loop
    modelled: ModelledFile | None

    @property
    def name(self) -> str:
        """The name of the disk among the covers."""
        return f"disk-{self.disk.name}"


def contents_of(lab: Lab, disk: LabDisk) -> Contents:
    """The contents of a disk's image; pure."""
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


def find_missing() -> str:
    """The reason why disks cannot be modelled here; empty if they can."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    return ""


class ModelledFile:
    """An image as a file with delayed reads; at first the model is off.

    The server ends with the process that started it. The mount stays in this mount namespace until
    ``close``.
    """

    def __init__(
        self, image: Path, point: Path, model: DiskModel, *, seed: int, writable: bool
    ) -> None:
        request = ServerRequest(
            image=str(image), point=str(point), model=model, seed=seed, writable=writable
        )
        self.path = point
        self.failed_reads = 0
        """Number of failed reads of the last run with the model; set when the model is off."""
        self._process = start_text_program(
            own_module("nginx_tune.nginx.lab.disk_server", msgspec.json.encode(request).decode()),
            is_checked=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )
        self._expect("off")

    def switch(self, *, on: bool) -> None:
        """Answer reads as the model says, or at once."""
        word = "on" if on else "off"
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(word + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise UndecidedError(f"the modelled disk ended: {self._last_words()}") from None
        self._expect(word)

    def close(self) -> None:
        """End the server; pending reads fail, and the file can be unmounted."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process.wait()

    def _expect(self, word: str) -> None:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        answer, _, failed = line.strip().partition(" ")
        if answer != word:
            raise UndecidedError(f"the modelled disk ended: {self._last_words()}")
        self.failed_reads = int(failed)

    def _last_words(self) -> str:
        self._process.kill()
        text = "" if self._process.stderr is None else self._process.stderr.read().strip()
        return text.splitlines()[-1] if text else "no reason given"


class Topology:
    """The surroundings of a lab inside its sandbox; they end with the sandbox."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._clients = ClientSide(lab.link) if lab.topology == "link" else None
        self._origin: subprocess.Popen[str] | None = None
        address = SERVER_ADDRESS if self._clients is not None else LOOPBACK
        certificate: Certificate | None = None
        if lab.tls:
            certificate = make_certificate(directory, names=["localhost", LOOPBACK, address])
        is_proxy = has_origin(lab)
        self.placement = Placement(
            address=address,
            origin=self._start_origin(lab) if is_proxy else None,
            objects=origin_objects(lab.origin) if is_proxy else {},
            certificate=str(certificate.certificate) if certificate else None,
            certificate_key=str(certificate.key) if certificate else None,
        )

    def from_clients(self, call: Callable[[], T]) -> T:
        """Call a function in the network of the clients."""
        return call() if self._clients is None else self._clients.run(call)

    def _start_origin(self, lab: Lab) -> str:
        request = OriginRequest(address=LOOPBACK, origin=lab.origin, seed=lab.seed)
        self._origin = start_text_program(
            own_module("nginx_tune.nginx.lab.origin", msgspec.json.encode(request).decode()),
            is_checked=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )
        port = "" if self._origin.stdout is None else self._origin.stdout.readline().strip()
        if not port:
            self._origin.kill()
            errors = "" if self._origin.stderr is None else self._origin.stderr.read().strip()
            why = errors.splitlines()[-1] if errors else "no message"
            raise UndecidedError(f"the origin has exited: {why}")
        return f"{LOOPBACK}:{port}"


class OpenLab(NamedTuple):
    """The parts of an open lab that a run needs."""

    disks: LabDisks
    topology: Topology
    enclosure: Enclosure
