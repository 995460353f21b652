"""Walking a tree of files once: counts, sizes, and what of it the page cache holds.

The walk is a guest on a production host: idle I/O priority, access times left alone where
the kernel permits, one file system, no symbolic links followed, hard links counted once, and
a time budget after which the counts are lower bounds.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator

from nginx_tune.documents.facts import Dataset, Residency
from nginx_tune.host.parse_sizes import ByteSample, SizeCounter
from nginx_tune.host.residency import read_residency

_SAMPLE_FILES = 4096
_WALK_SHARE = 0.7
"""Share of the budget for the walk; the rest is for asking about the sample."""


def scan_dataset(path: str, *, budget_seconds: float) -> Dataset:
    """The dataset under a directory.

    Errors: OSError when the directory cannot be opened.
    """
    start = time.monotonic()
    root = os.path.realpath(path, strict=True)
    walk = _Walk(root, deadline=start + _WALK_SHARE * budget_seconds)
    with _idle_io_priority():
        walk.run()
        residency = (
            read_residency(root, walk.sample, walk.counter.bytes, deadline=start + budget_seconds)
            if walk.counter.files
            else Residency(reason="the dataset has no files")
        )
    return Dataset(
        path=path,
        files=walk.counter.files,
        bytes=walk.counter.bytes,
        complete=not walk.reasons_incomplete(),
        reason="; ".join([*walk.reasons_incomplete(), *walk.reasons_left_out()]),
        sizes=walk.counter.sizes(),
        residency=residency,
    )


class _Walk:
    """One pass over a tree."""

    def __init__(self, root: str, *, deadline: float) -> None:
        self.counter = SizeCounter()
        self.sample = ByteSample(_SAMPLE_FILES)
        self._root = root
        self._deadline = deadline
        self._late = False
        self._unreadable = 0
        self._other_filesystems = 0
        self._linked: set[int] = set()
        self._directories: set[int] = set()

    def reasons_incomplete(self) -> list[str]:
        """Why the counts are lower bounds."""
        reasons = ["the time budget ran out"] if self._late else []
        if self._unreadable:
            reasons.append(f"{self._unreadable} files or directories could not be read")
        return reasons

    def reasons_left_out(self) -> list[str]:
        """What was left out on purpose."""
        if not self._other_filesystems:
            return []
        return [f"{self._other_filesystems} directories on other file systems left out"]

    def run(self) -> None:
        """Walk the tree, depth first."""
        device = os.stat(self._root).st_dev  # noqa: PTH116
        waiting = [""]
        while waiting and not self._late:
            directory = waiting.pop()
            place = f"{self._root}/{directory}" if directory else self._root
            try:
                with _opened(place) as descriptor:
                    status = os.fstat(descriptor)
                    if status.st_dev != device:
                        self._other_filesystems += 1
                        continue
                    # The same directory bound in twice counts once.
                    if status.st_ino in self._directories:
                        continue
                    self._directories.add(status.st_ino)
                    waiting += self._read_directory(descriptor, directory)
            except OSError:
                if not directory:
                    raise
                self._unreadable += 1

    def _read_directory(self, descriptor: int, directory: str) -> list[str]:
        """Count the files of one directory; its subdirectories come back."""
        below = []
        prefix = f"{directory}/" if directory else ""
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if time.monotonic() > self._deadline:
                    self._late = True
                    break
                try:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(prefix + entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        self._add(prefix + entry.name, entry.stat(follow_symlinks=False))
                except OSError:
                    self._unreadable += 1
        return below

    def _add(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            return
        if status.st_nlink > 1:
            if status.st_ino in self._linked:
                return
            self._linked.add(status.st_ino)
        self.counter.add(status.st_size)
        self.sample.add(path, status.st_size)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _idle_io_priority() -> Iterator[None]:
    """Be served only when nobody else wants the disk (schedulers that know priorities)."""
    import psutil  # noqa: PLC0415  # only for datasets

    process = psutil.Process()
    try:
        before = process.ionice()
        process.ionice(psutil.IOPRIO_CLASS_IDLE)
    except (psutil.Error, OSError, ValueError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            process.ionice(before.ioclass, before.value)
