"""Images of emulated disks, kept in a cache that later runs share.

An image is filled with files once and then shared read-only. Its name is a hash of its contents
(the names, sizes and seed of its files, and the version of this layout), so a later run with the
same data finds it. A run holds a shared lock on its image through a descriptor, which closes when
the run ends; only unlocked images are removed. An image is made in the run's own directory, which
is cleaned up in any case, and moved to the cache once it is complete.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nginx_tune.documents.progress import Progress
from nginx_tune.errors import UndecidedError
from nginx_tune.host.paths import open_own, why_not_own
from nginx_tune.nginx.lab.disks import Loop, run_tool

CACHE_BYTES = 8 << 30
"""Maximum size of all images, in bytes; the least recently used ones are removed first."""
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
