"""File systems for nginx's writes, in a mount namespace in which no program ever runs.

The lab and its processes run in another namespace, where no path leads to these file systems. They
reach them through a descriptor that was opened before nginx started, and open nginx's files below
it without following links.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.confinement import ResourceLimits

T = TypeVar("T")
_PLAIN = calls.MS_NOSUID | calls.MS_NODEV
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


class Covers:
    """A mount namespace, and a directory in it with one mount (a cover) for each name.

    It copies the caller's mounts, so make all mounts of the host read-only first. It ends with the
    process that created it.
    """

    def __init__(self, directory: Path) -> None:
        """``directory`` must be empty; in the lab's own mount namespace it stays empty."""
        self._directory = str(directory)
        self.namespace, self._root = _in_new_thread(self._make)

    def _make(self) -> tuple[int, int]:
        calls.unshare(calls.CLONE_NEWNS)
        calls.mount("none", "/", flags=calls.MS_REC | calls.MS_PRIVATE)
        calls.mount("nginx-tune", self._directory, "tmpfs", _PLAIN, "mode=0700,size=1m")
        namespace = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        return namespace, os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def source(self, name: str) -> str:
        """The path of a cover inside this namespace, for building a sandbox."""
        return f"{self._directory}/{name}"

    def path(self, name: str) -> Path:
        """The path by which this process reaches a cover, through the open descriptor."""
        return Path(f"/proc/self/fd/{self._root}/{name}")

    def add_memory(self, name: str) -> None:
        """Add an empty writable directory of limited size and number of files."""
        limits = ResourceLimits()
        data = f"mode=0755,size={limits.cover_bytes},nr_inodes={limits.cover_files}"
        self._mount("nginx-tune", name, "tmpfs", _PLAIN, data)

    def add_copy(self, name: str, directory: str, own: Collection[str] = ()) -> None:
        """Add a directory of the host with its contents; writes to it go to memory.

        Each name in ``own`` is an empty file that the caller owns. Pipes are removed: a worker that
        opens one as its log would wait forever for a reader.
        """
        layers = f"{name}.layers"
        self.add_memory(layers)
        upper, work = (self.path(layers) / part for part in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        for file in own:
            (upper / file).touch(0o644)
        self._mount_over(name, directory, self.source(layers))
        for path in list(self.path(name).iterdir()):
            with contextlib.suppress(OSError):  # in another user's directory
                if stat.S_ISFIFO(path.lstat().st_mode):
                    path.unlink()

    def _mount_over(self, name: str, lower: str, layers: str) -> None:
        self.path(name).mkdir(0o755)

        def mount() -> None:
            # Layers are given by descriptor, since overlay options reserve some characters.
            opened = [os.open(layer, os.O_PATH | os.O_CLOEXEC) for layer in (lower, layers)]
            below, above = (f"/proc/self/fd/{number}" for number in opened)
            data = f"lowerdir={below},upperdir={above}/upper,workdir={above}/work"
            try:
                calls.mount("nginx-tune", self.source(name), "overlay", _PLAIN, data)
            finally:
                for number in opened:
                    os.close(number)

        _in_new_thread(lambda: self._enter(mount))

    def add_disk(self, name: str, device: str, *, writable: bool) -> None:
        """Add the ext4 file system on a block device."""
        flags = _PLAIN | calls.MS_NOATIME | (0 if writable else calls.MS_RDONLY)
        self._mount(device, name, "ext4", flags, "")

    def remove(self, name: str) -> None:
        """Unmount a cover."""
        _in_new_thread(lambda: self._enter(lambda: calls.unmount(self.source(name))))

    def _mount(self, source: str, name: str, kind: str, flags: int, data: str) -> None:
        with contextlib.suppress(FileExistsError):
            self.path(name).mkdir(0o755)
        target = self.source(name)
        _in_new_thread(lambda: self._enter(lambda: calls.mount(source, target, kind, flags, data)))

    def _enter(self, call: Callable[[], T]) -> T:
        calls.enter_mounts(self.namespace)
        return call()

    def make_directory(self, name: str, inner: str) -> None:
        """Make a directory in a cover with its parents, unless it exists."""
        parts = _parts(inner)
        for number, part in enumerate(parts):
            here = _descend(self.path(name), parts[:number])
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
            finally:
                os.close(here)

    def open(self, name: str, inner: str) -> int:
        """Open a file in a cover for reading; errors as for ``open_below``."""
        return open_below(self.path(name), inner)

    def remove_socket(self, name: str, inner: str) -> bool:
        """Remove a socket that an earlier nginx left or that was copied from the host.

        Returns True if no socket is left, False if it cannot be removed (another user's directory).
        """
        *directories, last = _parts(inner)
        try:
            here = _descend(self.path(name), directories)
            try:
                if stat.S_ISSOCK(os.stat(last, dir_fd=here, follow_symlinks=False).st_mode):
                    os.unlink(last, dir_fd=here)
            finally:
                os.close(here)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def clear(self, name: str, kept: Collection[str]) -> None:
        """Remove all entries of a cover except ``kept``."""
        for entry in list(self.path(name).iterdir()):
            if entry.name in kept:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)  # follows no link
            else:
                entry.unlink()


def open_below(root: Path, path: str) -> int:
    """Open a file for reading, below a directory that nginx may have written to.

    Errors: OSError; ELOOP for a link anywhere on the way, ENODEV for a device such as /dev/null,
            EINVAL for anything else that is not a regular file.
    """
    *directories, last = _parts(path) or ["."]
    file = _step(_descend(root, directories), last, os.O_PATH)
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if stat.S_ISCHR(mode):
            raise OSError(errno.ENODEV, "a device has no contents to read", path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a file", path)
        # Reopened by descriptor, since the name may lead to another file by now.
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(file)


def open_files(root: Path) -> Iterator[tuple[str, int]]:
    """Yield the relative path and an open descriptor of each regular file below a directory.

    A descriptor is valid until the next one. Files are sorted by directory; links are not followed.
    """
    for here, directories, files, number in os.fwalk(root, follow_symlinks=False):
        directories.sort()
        for name in sorted(files):
            with contextlib.suppress(OSError):
                file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=number)
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        yield os.path.relpath(f"{here}/{name}", root), file
                finally:
                    os.close(file)


def _descend(root: Path, directories: Iterable[str]) -> int:
    """Open a directory below another one, without following links."""
    here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in directories:
        here = _step(here, name, os.O_PATH | os.O_DIRECTORY)
    return here


def _parts(path: str) -> list[str]:
    """The components of a path. Errors: OSError ELOOP for ``..``."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise OSError(errno.ELOOP, "a path that leaves the directory", path)
    return parts


def _step(directory: int, name: str, flags: int) -> int:
    """Open an entry without following a link; closes the descriptor of its directory."""
    try:
        return os.open(name, flags | _NO_LINK, dir_fd=directory)
    except NotADirectoryError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), error.filename) from None
    finally:
        os.close(directory)


def _in_new_thread(call: Callable[[], T]) -> T:
    """Call a function in a new thread, so that only this thread enters a namespace."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()
