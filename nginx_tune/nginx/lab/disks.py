"""What emulated disks need of the system: its programs, loop devices that are left, the cache."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.host.programs import ProgramError, run_program
from nginx_tune.sandbox.covers import open_files

_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "losetup": "mount",
    "umount": "mount",
    "mkfs.ext4": "e2fsprogs",
    "cp": "coreutils",
}
_PATIENCE_SECONDS = 10.0
"""For loop devices that are being let go."""


def run_tool(*argv: str) -> str:
    """Standard output of a system program.

    Errors: MissingToolError, or UndecidedError with what the program said.
    """
    try:
        run = run_program(argv)
    except ProgramError as error:
        raise MissingToolError(
            f"{argv[0]}: {error}", hint=f"apt-get install {_PACKAGES.get(argv[0], argv[0])}"
        ) from None
    if run.returncode != 0:
        said = run.stderr.decode(errors="replace").strip()
        raise UndecidedError(f"{' '.join(argv[:2])}: {said or run.returncode}")
    return run.stdout.decode(errors="replace")


def device_number(device: str) -> str:
    """``MAJOR:MINOR`` of a block device node."""
    number = Path(device).stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def release_loops(directory: Path) -> None:
    """Wait until no loop device uses an image in a directory, detaching those that still do.

    The kernel frees a device some time after its last mount is gone. Images are known by inode:
    the path that a loop device shows is the one of a namespace that is no more.
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
    """None for a file that goes at this moment."""
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
        if device.get("back-ino") and major and minor:  # a device that is going has none
            number = os.makedev(int(major), int(minor))
            found.append((str(device["name"]), (number, int(device["back-ino"]))))
    return found


def evict(directory: Path) -> None:
    """Drop a directory's files from the page cache (our own files only: posix_fadvise)."""
    for _, file in open_files(directory):
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
