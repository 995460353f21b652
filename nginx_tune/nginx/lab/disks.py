"""Emulated disks on the system: loop devices and limits of dirty data.

A loop device frees itself, however its user ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from nginx_tune.errors import MissingPermissionError, MissingToolError, UndecidedError
from nginx_tune.host.programs import ProgramError, run_program
from nginx_tune.sandbox.covers import open_files

if TYPE_CHECKING:
    from typing_extensions import Self


_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "losetup": "mount",
    "umount": "mount",
    "mkfs.ext4": "e2fsprogs",
    "cp": "coreutils",
}
_PATIENCE_SECONDS = 10.0
"""The time to wait for loop devices to be free."""


def run_tool(*argv: str) -> str:
    """The standard output of a system program.

    Errors: MissingToolError, or UndecidedError with the program's message.
    """
    try:
        run = run_program(argv)
    except ProgramError as error:
        raise MissingToolError(
            f"{argv[0]}: {error}", hint=f"apt-get install {_PACKAGES.get(argv[0], argv[0])}"
        ) from None
    if run.returncode != 0:
        reason = run.stderr.decode(errors="replace").strip()
        raise UndecidedError(f"{' '.join(argv[:2])}: {reason or run.returncode}")
    return run.stdout.decode(errors="replace")


def device_number(device: str) -> str:
    """``MAJOR:MINOR`` of a block device node."""
    number = Path(device).stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def release_loops(directory: Path) -> None:
    """Wait until no loop device uses an image in a directory, and detach those that still do.

    The kernel frees a device some time after its last mount is gone. Images are identified by
    inode, since the path that a loop device reports is from a namespace that has ended.
    """
    images = {(st.st_dev, st.st_ino) for st in map(_status, directory.glob("*.img")) if st}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while images and time.monotonic() < deadline:
        busy = [name for name, image in _loops() if image in images]
        if not busy:
            return
        for name in busy:
            with contextlib.suppress(UndecidedError):
                run_tool("losetup", "--detach", name)
        time.sleep(0.02)


def _status(file: Path) -> os.stat_result | None:
    """The status of a file; None if the file was removed."""
    try:
        return file.lstat()
    except OSError:
        return None


def _loops() -> list[tuple[str, tuple[int, int]]]:
    try:
        text = run_tool("losetup", "--list", "--json", "--output", "NAME,BACK-MAJ:MIN,BACK-INO")
        devices = json.loads(text or '{"loopdevices": []}')["loopdevices"]
    except (UndecidedError, ValueError, KeyError):
        return []
    found = []
    for device in devices:
        major, _, minor = str(device.get("back-maj:min") or "").partition(":")
        if device.get("back-ino") and major and minor:  # a device that is being freed has no image
            number = os.makedev(int(major), int(minor))
            found.append((str(device["name"]), (number, int(device["back-ino"]))))
    return found


def evict(directory: Path) -> None:
    """Drop the files in a directory of ours from the page cache (posix_fadvise)."""
    for _, file in open_files(directory):
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_READ_ONLY, _AUTOCLEAR, _DIRECT_IO = 1, 4, 16
_CONFIG = struct.Struct("<II 5Q 4I 64s 64s 32s 2Q 8Q")
_MOST_TRIES = 50
_UNMOUNT_SECONDS = 20.0
_LOOK_SECONDS = 0.02


class Loop:
    """A loop device with direct I/O over an image, freed when it is closed and unmounted."""

    def __init__(self, image: str, *, writable: bool = True) -> None:
        if os.geteuid() != 0:
            raise MissingPermissionError("emulated disks need root", hint="run it with sudo")
        self.device, self._descriptor = _attach(image, writable=writable)

    @property
    def number(self) -> str:
        """``MAJOR:MINOR``."""
        number = os.fstat(self._descriptor).st_rdev
        return f"{os.major(number)}:{os.minor(number)}"

    def wait_unmounted(self) -> None:
        """Wait until its file system is not mounted in any mount namespace.

        A namespace made while the file system was mounted has its own mount, which keeps the file
        system in memory. A tracer has one: bpftrace ends a second after its last answer.
        Errors: UndecidedError after ``_UNMOUNT_SECONDS``. Source: a mounted file system has its
                device exclusively (bd_may_claim(), block/bdev.c).
        """
        deadline = time.monotonic() + _UNMOUNT_SECONDS
        while _is_mounted(self.device):
            if time.monotonic() > deadline:
                raise UndecidedError(
                    f"{self.device}: still mounted in another mount namespace "
                    f"{_UNMOUNT_SECONDS:g} s after it was unmounted here, so its file names and "
                    "inodes stay cached",
                    hint="end the programs that use the lab's files: a tracer, a shell of nsenter",
                )
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Close the descriptor; a mounted device stays until it is unmounted."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_mounted(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return True
    return False


def _attach(image: str, *, writable: bool) -> tuple[str, int]:
    mode = os.O_RDWR if writable else os.O_RDONLY
    backing = os.open(image, mode | os.O_CLOEXEC)
    flags = _AUTOCLEAR | _DIRECT_IO | (0 if writable else _READ_ONLY)
    name = os.fsencode(image)[-63:]
    config = _CONFIG.pack(
        backing, 0, *(0,) * 5, 0, 0, 0, flags, name, b"", b"", *(0,) * 10
    )  # fmt: skip
    try:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        os.close(backing)
        raise UndecidedError(
            f"no loop devices here: /dev/loop-control: {error.strerror}",
            hint="modprobe loop, or give the container /dev/loop-control and /dev/loop*",
        ) from None
    try:
        for _ in range(_MOST_TRIES):
            device = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            descriptor = _open_device(device, mode)
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, config)
            except OSError as error:
                os.close(descriptor)
                if error.errno == errno.EBUSY:  # another process was faster
                    time.sleep(0.005)
                    continue
                raise UndecidedError(f"{device}: {error.strerror}") from None
            return device, descriptor
    finally:
        os.close(control)
        os.close(backing)
    raise UndecidedError("no loop device is free", hint="losetup --list shows their users")


def _open_device(device: str, mode: int) -> int:
    try:
        return os.open(device, mode | os.O_CLOEXEC)
    except OSError as error:
        raise UndecidedError(
            f"{device}: {error.strerror}", hint="give the container /dev/loop*"
        ) from None


BDI = Path("/sys/class/bdi")


def limit_dirty(device: str, most_bytes: int, *, root: Path = BDI) -> None:
    """Limit the unwritten data of a device (``MAJOR:MINOR``); above the limit, writers wait.

    The kernel stores the limit in millionths of the machine's own limit, rounded down.
    Errors: UndecidedError if the kernel has no such limit.
    """
    directory = root / device
    try:
        (directory / "max_bytes").write_text(str(most_bytes))
        (directory / "strict_limit").write_text("1")
    except OSError as error:
        raise UndecidedError(
            f"writes to an emulated disk cannot be limited: {directory}: {error.strerror}",
            hint="it needs Linux 6.2 and a /sys that can be written; or leave dirty_bytes out",
        ) from None


def lift_dirty_limit(device: str) -> None:
    """Remove the limit of a device, if the device still exists."""
    with contextlib.suppress(OSError):
        (BDI / device / "strict_limit").write_text("0")
        (BDI / device / "max_ratio").write_text("100")
