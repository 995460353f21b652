"""Emulated disks: an ext4 image on a loop device, limited by the block cgroup around nginx.

``--direct-io=on`` keeps the image out of the page cache: otherwise a read that missed nginx's
cache would be answered from the image's own, at memory speed. A limited disk is a plateau: it
has a bandwidth and a rate, and no knee.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from nginx_tune.errors import MissingPermissionError, MissingToolError, UndecidedError

_OVERHEAD_BYTES = 48 << 20
"""ext4's own structures and the journal."""


def run_tool(*argv: str) -> str:
    """Standard output of a system program.

    Errors: MissingToolError, or UndecidedError with what the program said.
    """
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    try:
        run = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False, env=environment
        )
    except FileNotFoundError:
        raise MissingToolError(
            f"{argv[0]} is not installed", hint="apt-get install util-linux e2fsprogs mount"
        ) from None
    if run.returncode != 0:
        raise UndecidedError(f"{' '.join(argv[:2])}: {run.stderr.strip() or run.returncode}")
    return run.stdout


def make_image(image: Path, data_bytes: int, files: int) -> None:
    """An ext4 image with room for so much data.

    Errors: UndecidedError when the file system has no room. The image's blocks are allocated,
    not sparse, so that its reads reach the device.
    """
    size = data_bytes + data_bytes // 16 + files * 512 + _OVERHEAD_BYTES
    free = os.statvfs(image.parent)
    if free.f_bavail * free.f_frsize < size + (256 << 20):
        raise UndecidedError(
            f"{image.parent}: {size >> 20} MiB needed for an emulated disk, "
            f"{free.f_bavail * free.f_frsize >> 20} MiB free",
            hint="make room or set TMPDIR to a larger file system",
        )
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    inodes = str(files + 1024)
    run_tool("mkfs.ext4", "-F", "-q", "-m", "0", "-N", inodes, "-E", "nodiscard", str(image))


def attach_loop(image: Path) -> str:
    """The loop device over an image, with direct I/O."""
    if os.geteuid() != 0:
        raise MissingPermissionError("emulated disks need root", hint="run it with sudo")
    return run_tool("losetup", "--direct-io=on", "--find", "--show", str(image)).strip()


def detach_when_unmounted(device: str) -> None:
    """Let the kernel free the device as soon as nothing uses it (LO_FLAGS_AUTOCLEAR)."""
    run_tool("losetup", "--detach", device)


def device_number(device: str) -> str:
    """``MAJOR:MINOR`` of a block device node."""
    number = Path(device).stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def release_loops(directory: Path, *, patience_seconds: float = 10.0) -> None:
    """Wait until no loop device uses an image in a directory, detaching those that still do.

    The kernel frees a device some time after its last mount is gone. Images are known by inode:
    the path that a loop device shows is the one of a namespace that is no more.
    """
    images = {(file.stat().st_dev, file.stat().st_ino) for file in directory.glob("*.img")}
    deadline = time.monotonic() + patience_seconds
    while images and time.monotonic() < deadline:
        busy = [name for name, image in _loops() if image in images]
        if not busy:
            return
        for name in busy:
            with contextlib.suppress(UndecidedError):
                run_tool("losetup", "--detach", name)
        time.sleep(0.02)


def _loops() -> list[tuple[str, tuple[int, int]]]:
    try:
        text = run_tool("losetup", "--list", "--json", "--output", "NAME,BACK-MAJ:MIN,BACK-INO")
        devices = json.loads(text or '{"loopdevices": []}')["loopdevices"]
    except (UndecidedError, ValueError, KeyError):
        return []
    found = []
    for device in devices:
        major, _, minor = str(device.get("back-maj:min") or "").partition(":")
        if device.get("back-ino") and major and minor:  # a device that is going has none
            number = os.makedev(int(major), int(minor))
            found.append((str(device["name"]), (number, int(device["back-ino"]))))
    return found


def fill(
    directory: Path, files: int, file_bytes: int, progress: Callable[[int, int], None]
) -> list[str]:
    """Names of the files of random bytes written to a directory."""
    names = [f"f{index:05d}.bin" for index in range(files)]
    for index, name in enumerate(names):
        with (directory / name).open("wb") as file:
            file.write(os.urandom(file_bytes))
        if index % 32 == 0:
            progress(index * file_bytes, files * file_bytes)
    os.sync()
    return names


def evict(directory: Path) -> None:
    """Drop a directory's files from the page cache (our own files only: posix_fadvise)."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
