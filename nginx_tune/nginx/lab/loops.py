"""Loop devices that free themselves: nothing is left however their user ends.

A device made by ``LOOP_CONFIGURE`` with ``LO_FLAGS_AUTOCLEAR`` is detached by the kernel when the
last that has it open, a mount or a process, lets go; so it is held open until it is mounted.
Source: drivers/block/loop.c, include/uapi/linux/loop.h (Linux 5.8).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from types import TracebackType
from typing import TYPE_CHECKING

from nginx_tune.errors import MissingPermissionError, UndecidedError

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_READ_ONLY, _AUTOCLEAR, _DIRECT_IO = 1, 4, 16
_CONFIG = struct.Struct("<II 5Q 4I 64s 64s 32s 2Q 8Q")
_MOST_TRIES = 50
_UNMOUNT_SECONDS = 20.0
_LOOK_SECONDS = 0.02


class Loop:
    """A loop device over an image, past the page cache; freed when it is closed and unmounted."""

    def __init__(self, image: str, *, writable: bool = True) -> None:
        if os.geteuid() != 0:
            raise MissingPermissionError("emulated disks need root", hint="run it with sudo")
        self.device, self._descriptor = _attach(image, writable=writable)

    @property
    def number(self) -> str:
        """``MAJOR:MINOR``."""
        number = os.fstat(self._descriptor).st_rdev
        return f"{os.major(number)}:{os.minor(number)}"

    def wait_unmounted(self, *, patience_seconds: float = _UNMOUNT_SECONDS) -> None:
        """Wait until no mount is left of what is on it, in any mount namespace.

        One that began while it was mounted has a mount of its own, which an unmount here leaves,
        and with it the file system in memory. A tracer's is such a one: bpftrace ends a second
        after its last answer.
        Errors: UndecidedError when that does not come.
        Source: a mounted file system has its device for itself (bd_may_claim(), block/bdev.c).
        """
        deadline = time.monotonic() + patience_seconds
        while _is_mounted(self.device):
            if time.monotonic() > deadline:
                raise UndecidedError(
                    f"{self.device}: unmounted, and still mounted in another mount namespace after "
                    f"{patience_seconds:g} s, so names stay in memory",
                    hint="end what looks into the lab: a tracer, a shell by nsenter",
                )
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Let go; the device lasts as long as it is mounted."""
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
                if error.errno == errno.EBUSY:  # somebody else was faster
                    time.sleep(0.005)
                    continue
                raise UndecidedError(f"{device}: {error.strerror}") from None
            return device, descriptor
    finally:
        os.close(control)
        os.close(backing)
    raise UndecidedError("no loop device is free", hint="losetup --list shows who has them")


def _open_device(device: str, mode: int) -> int:
    try:
        return os.open(device, mode | os.O_CLOEXEC)
    except OSError as error:
        raise UndecidedError(
            f"{device}: {error.strerror}", hint="give the container /dev/loop*"
        ) from None
