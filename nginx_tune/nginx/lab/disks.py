"""Emulated disks on the system: loop devices, limits of dirty data, images that later runs reuse.

A loop device frees itself, however its user ends.

An image is filled with files once and then shared read-only. Its name is a hash of its contents
(the names, sizes and seed of its files, and the version of this layout), so a later run with the
same data finds it. A run holds a shared lock on its image through a descriptor, which closes when
the run ends; only unlocked images are removed. An image is made in the run's own directory, which
is cleaned up in any case, and moved to the cache once it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.documents.progress import Progress
from nginx_tune.errors import MissingPermissionError, MissingToolError, UndecidedError
from nginx_tune.host.paths import open_own, why_not_own
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

    def wait_unmounted(self, *, patience_seconds: float = _UNMOUNT_SECONDS) -> None:
        """Wait until its file system is not mounted in any mount namespace.

        A namespace made while the file system was mounted has its own mount, which keeps the file
        system in memory. A tracer has one: bpftrace ends a second after its last answer.
        Errors: UndecidedError after ``patience_seconds``. Source: a mounted file system has its
                device exclusively (bd_may_claim(), block/bdev.c).
        """
        deadline = time.monotonic() + patience_seconds
        while _is_mounted(self.device):
            if time.monotonic() > deadline:
                raise UndecidedError(
                    f"{self.device}: unmounted here, but after {patience_seconds:g} s still "
                    "mounted in another mount namespace, so names stay in memory",
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


def lift_dirty_limit(device: str, *, root: Path = BDI) -> None:
    """Remove the limit of a device, if the device still exists."""
    with contextlib.suppress(OSError):
        (root / device / "strict_limit").write_text("0")
        (root / device / "max_ratio").write_text("100")


CACHE_BYTES = 8 << 30
"""The most bytes that all images may take; the least recently used ones are removed first."""
_LAYOUT = 1
_LAYOUT_WITH_ROOM = 2
_ROOM_BYTES_PER_INODE = 16 << 10
"""Bytes of free space per inode, as by default in mke2fs. A cache makes a directory or two for each
of its first files."""
_OVERHEAD_BYTES = 24 << 20
_SPARE_BYTES = 256 << 20
"""The bytes that must stay free on the file system."""
_BLOCK_BYTES = 4096
_GROUP_BYTES = 8 << 20
"""A block group of ext4 with blocks of 1 KiB; with larger blocks there are fewer groups."""
_PIECE_BYTES = 4 << 20


class Image(NamedTuple):
    """An image in use; it is not removed while the descriptor is open."""

    path: Path
    descriptor: int


class Cached(NamedTuple):
    """An image in the cache."""

    path: Path
    bytes: int
    used_at: float
    """Seconds since the epoch."""
    in_use: bool


def cache_directory() -> Path:
    """The directory of cached images: ``nginx-tune/lab`` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118  # a home that is not known stays "~"
    return Path(base) / "nginx-tune" / "lab"


def list_images(directory: Path | None = None) -> list[Cached]:
    """The images in the cache, the last used one at the end."""
    found = []
    for path in sorted((directory or cache_directory()).glob("*.img")):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append(
                Cached(path, status.st_blocks * 512, status.st_mtime, in_use=_is_held(path))
            )
    return sorted(found, key=lambda image: image.used_at)


def remove_image(path: Path) -> bool:
    """Remove an image from the cache unless a run uses it; True if it was removed."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        path.unlink()
        return True
    return False


class Contents(NamedTuple):
    """The contents of an image."""

    files: Mapping[str, int]
    """Size in bytes by name, relative to the root of the image."""
    seed: int
    room_bytes: int = 0
    """Free space in bytes, in addition to the files."""

    @property
    def key(self) -> str:
        """The name of the image: a hash of its contents."""
        layout = _LAYOUT_WITH_ROOM if self.room_bytes else _LAYOUT
        text = json.dumps([layout, self.seed, self.room_bytes, sorted(self.files.items())])
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]

    @property
    def directories(self) -> int:
        """The number of directories; each takes an inode and a block."""
        return len({parent for name in self.files for parent in PurePosixPath(name).parents})

    @property
    def inodes(self) -> int:
        """The number of inodes for mke2fs, which rounds it down to sixteen per block group."""
        groups = 1 + self.image_bytes // _GROUP_BYTES
        return len(self.files) + self.directories + self._room_inodes + 64 + 16 * groups

    @property
    def _room_inodes(self) -> int:
        """The number of inodes that files in the free space may need."""
        return self.room_bytes // _ROOM_BYTES_PER_INODE

    @property
    def image_bytes(self) -> int:
        """The size of the image in bytes: whole blocks of data and the overhead of ext4."""
        data = sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in self.files.values())
        data += self.room_bytes + self.directories * _BLOCK_BYTES
        inodes = (len(self.files) + self.directories + self._room_inodes) * 512
        return data + data // 64 + inodes + _OVERHEAD_BYTES


def obtain_image(contents: Contents, scratch: Path, *, progress: Progress) -> Image:
    """An ext4 image with files of random bytes: from the cache, or new and then cached.

    ``scratch`` is the run's own directory.
    Errors: UndecidedError if there is not enough room.
    Side effects: may mount below ``scratch`` for a while, remove old images and make one.
    """
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_kept = not why_not_own(directory)
    except OSError:  # no writable home directory
        is_kept = False
    if not is_kept:  # this run uses an image of its own
        return _hold(_make(contents, scratch, progress))
    path = directory / f"{contents.key}.img"
    with _making(path):
        found = _try_hold(path)
        if found is not None:
            return found
        make_room(contents.image_bytes, directory)
        return _keep(_make(contents, scratch, progress), path)


def copy_image(image: Image, path: Path) -> Path:
    """Make a private writable copy, which shares blocks if the file system can."""
    _check_room(path.parent, os.fstat(image.descriptor).st_size)
    run_tool("cp", "--reflink=auto", "--sparse=never", str(image.path), str(path))
    path.chmod(0o600)
    return path


def make_room(wanted_bytes: int, directory: Path) -> None:
    """Remove the least recently used images until there is room for a new one."""
    images = list_images(directory)
    total = sum(image.bytes for image in images) + wanted_bytes
    for image in images:
        if total <= CACHE_BYTES:
            return
        if remove_image(image.path):
            total -= image.bytes


def _check_room(directory: Path, size: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < size + _SPARE_BYTES:
        raise UndecidedError(
            f"{directory}: {size >> 20} MiB needed for an emulated disk, {free >> 20} MiB free",
            hint="make room, remove kept images with 'nginx-tune lab clean --images', or set "
            "TMPDIR to a larger file system",
        )


def make_file_system(contents: Contents, image: Path) -> None:
    """Make an empty ext4 for ``contents`` in a file that already has the right size."""
    options = ["-m", "0", "-N", str(contents.inodes)]
    options += ["-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=0"]
    run_tool("mkfs.ext4", "-F", "-q", *options, str(image))


def _make(contents: Contents, scratch: Path, progress: Progress) -> Path:
    """Make an image. Its blocks are allocated, so that reads reach the device."""
    size = contents.image_bytes
    _check_room(scratch, size)
    image = scratch / f"{contents.key}.img"
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    files = contents.files
    make_file_system(contents, image)
    mount = scratch / "filling"
    mount.mkdir()
    with Loop(str(image)) as loop:
        run_tool("mount", "-o", "noatime", loop.device, str(mount))
    try:
        _fill(mount, files, random.Random(contents.seed), progress)  # noqa: S311  # the same data again
    finally:
        run_tool("umount", str(mount))
        mount.rmdir()
    image.chmod(0o400)
    return image


def _fill(mount: Path, files: Mapping[str, int], source: random.Random, progress: Progress) -> None:
    total = sum(files.values())
    done = reported = 0
    for name, size in files.items():
        path = mount / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for start in range(0, size, _PIECE_BYTES):
                file.write(source.randbytes(min(_PIECE_BYTES, size - start)))
        done += size
        if done - reported >= 64 << 20:
            progress(f"filling: {done >> 20} of {total >> 20} MiB")
            reported = done
    mount.chmod(0o755)


@contextlib.contextmanager
def _making(path: Path) -> Iterator[None]:
    """Lock an image while it is made. Whoever waits for the lock then finds the image complete."""
    lock = path.with_suffix(".lock")
    with _locked(lock):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of the file at ``path``.

    The previous holder may remove the file while we wait. In that case, the new file of that name
    is locked.
    """
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                is_current = os.path.samestat(os.fstat(file.fileno()), path.stat())
            except FileNotFoundError:
                is_current = False
            if is_current:
                yield
                return


def _keep(made: Path, path: Path) -> Image:
    """Move a complete image into the cache."""
    try:
        made.rename(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            return _hold(made)
        part = path.with_suffix(".part")
        try:
            shutil.copyfile(made, part)
            part.chmod(0o400)
            part.rename(path)
        except OSError:  # no room in the cache, so the run uses its own
            part.unlink(missing_ok=True)
            return _hold(made)
        made.unlink()
    return _hold(path)


def _hold(path: Path) -> Image:
    descriptor = open_own(path)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return Image(path, descriptor)


def _try_hold(path: Path) -> Image | None:
    try:
        image = _hold(path)
    except FileNotFoundError:
        return None
    if not path.exists():  # removed while we waited for the lock
        os.close(image.descriptor)
        return None
    os.utime(path)
    return image


def _is_held(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
