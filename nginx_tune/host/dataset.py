"""A walk through a tree of files: counts, sizes, and the share in the page cache.

The walk spares a production host: idle I/O priority, unchanged access times where the kernel
permits that, one file system, no symbolic links, hard links counted once, and a time budget after
which the counts are lower bounds. It has one open directory for each level and a sample of fixed
size, so its memory is the same for ten files and for ten million.

On a cold disk, reading each file's size is expensive. With a ``sample_ratio`` below 1, all names
are still counted, but only that share of the files' sizes is read. The files are chosen by inode
number, so that either all names of a file are in the sample or none is.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nginx_tune.documents.facts import Dataset, Residency, Sizes
from nginx_tune.documents.progress import Step
from nginx_tune.host.parse_storage import (
    ByteSample,
    SizeCounter,
    is_inside,
    mount_of,
    parse_mountinfo,
)
from nginx_tune.host.residency import read_residency

_WALK_SHARE = 0.7
"""The walk's share of the time budget; the rest is for checking the page cache."""


def scan_dataset(
    path: str,
    *,
    budget_seconds: float,
    sample_ratio: float = 1.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """Count the files under a directory, their sizes, and their share in the page cache.

    Errors: OSError when the directory cannot be opened.
    """
    start = time.monotonic()
    walk = Walk(
        path,
        deadline=start + _WALK_SHARE * budget_seconds,
        sample_ratio=sample_ratio,
        progress=progress,
    )
    with _idle_io_priority():
        walk.run()
        estimate = walk.estimate()
        progress(f"{path}: reading how much of {estimate.files} files is in the page cache")
        residency = (
            read_residency(
                path,
                walk.sample,
                estimate.bytes,
                deadline=start + budget_seconds,
                is_whole=sample_ratio >= 1 and not walk.reasons_incomplete(),
            )
            if estimate.files
            else Residency(reason="the dataset has no files")
        )
    return Dataset(
        path=path,
        files=estimate.files,
        bytes=estimate.bytes,
        allocated_bytes=estimate.allocated_bytes,
        complete=not walk.reasons_incomplete(),
        reason="; ".join([*walk.reasons_incomplete(), *walk.reasons_left_out()]),
        directories=walk.directories,
        sizes=estimate.sizes,
        sample_ratio=sample_ratio,
        bytes_error_ratio=estimate.bytes_error_ratio,
        symlinks=walk.symlinks,
        hard_links=estimate.hard_links,
        special_files=walk.special_files,
        other_filesystems=walk.other_filesystems,
        residency=residency,
    )


@contextlib.contextmanager
def _idle_io_priority() -> Iterator[None]:
    """A context with idle I/O priority, for I/O schedulers that have priorities."""
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


SAMPLE_FILES = 4096
"""The number of files whose pages in the page cache are counted."""
MOST_LINKED = 100_000
"""Maximum number of files with several names to remember until all names were found."""
DEEPEST = 128
"""Maximum number of levels of directories to enter; each has an open descriptor."""
_CHECKED_EVERY = 64
_REPORTED_EVERY = 50_000
_FEW = 30
_HASH = 0x9E3779B97F4A7C15
_WORD = 1 << 64
_BLOCK_BYTES = 512
"""The unit of ``st_blocks``, independent of the file system's block size (inode(7))."""


class Estimate(NamedTuple):
    """The results of a walk, scaled up from the sampled files."""

    files: int
    bytes: int
    allocated_bytes: int
    bytes_error_ratio: float | None
    hard_links: int
    sizes: Sizes | None


class _Level(NamedTuple):
    """An open directory in the walk."""

    descriptor: int
    entries: os._ScandirIterator[str]
    prefix: str
    """The path below the root with a final slash; empty for the root."""


class Walk:
    """The walk through a tree, depth first."""

    def __init__(
        self,
        root: str,
        *,
        deadline: float,
        sample_ratio: float = 1.0,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.sample = ByteSample(SAMPLE_FILES)
        self.symlinks = 0
        self.special_files = 0
        self.directories = 0
        self.other_filesystems = 0
        self._counter = SizeCounter()
        self._root = root
        self._deadline = deadline
        self._threshold = _WORD if sample_ratio >= 1 else int(sample_ratio * _WORD)
        self._progress = progress
        self._device = 0
        self._mounted_twice = _mounted_twice(root)
        self._names = 0
        self._asked = 0
        self._allocated = 0
        self._entries = 0
        self._late = False
        self._unreadable = 0
        self._too_deep = 0
        self._linked: dict[int, int] = {}
        """The number of names that were not found yet, by inode."""
        self._forgotten_links = 0

    def run(self) -> None:
        """Walk the tree.

        Errors: OSError when its root cannot be opened.
        """
        levels = [self._open(self._root, None, "")]
        self.directories = 1
        self._device = os.fstat(levels[0].descriptor).st_dev
        try:
            while levels and not self._late:
                below = self._read_on(levels[-1])
                if below is None:
                    _close(levels.pop())
                elif len(levels) == DEEPEST:
                    self._too_deep += 1
                else:
                    self._descend(levels, below)
        finally:
            for level in levels:
                _close(level)

    def estimate(self) -> Estimate:
        """The counts and sizes of all files."""
        counter, asked, names = self._counter, self._asked, self._names
        if asked == names:
            links = names - counter.files
            return Estimate(
                counter.files, counter.bytes, self._allocated, 0.0, links, counter.sizes()
            )
        scale = names / asked if asked else 0.0
        return Estimate(
            files=round(counter.files * scale) if asked else names,
            bytes=round(counter.bytes * scale),
            allocated_bytes=round(self._allocated * scale),
            bytes_error_ratio=self._error_ratio(),
            hard_links=round((asked - counter.files) * scale),
            sizes=counter.sizes(scale) if asked else None,
        )

    def _error_ratio(self) -> float | None:
        """Half of the 95 % interval of the mean size, as a share of the mean."""
        counter = self._counter
        if counter.files < _FEW or not counter.bytes:
            return None
        mean = counter.bytes / counter.files
        variance = max(0.0, counter.squares / counter.files - mean * mean)
        left = 1 - self._asked / self._names
        return 1.96 * math.sqrt(variance / counter.files * left) / mean

    def reasons_incomplete(self) -> list[str]:
        """The reasons why the counts are lower bounds."""
        reasons = ["the time budget ran out"] if self._late else []
        if self._unreadable:
            reasons.append(f"{self._unreadable} files or directories could not be read")
        if self._too_deep:
            reasons.append(f"{self._too_deep} directories are deeper than {DEEPEST} levels")
        return reasons

    def reasons_left_out(self) -> list[str]:
        """Notes on files left out on purpose, or possibly counted twice."""
        reasons = []
        if self.other_filesystems:
            reasons.append(f"{self.other_filesystems} directories on other file systems left out")
        if self._forgotten_links:
            reasons.append(f"{self._forgotten_links} names of linked files may be counted twice")
        return reasons

    def _descend(self, levels: list[_Level], name: str) -> None:
        parent = levels[-1]
        prefix = f"{parent.prefix}{name}/"
        if prefix in self._mounted_twice:
            return
        try:
            level = self._open(name, parent.descriptor, prefix)
        except OSError:
            self._unreadable += 1
            return
        if os.fstat(level.descriptor).st_dev == self._device:
            levels.append(level)
            self.directories += 1
            return
        self.other_filesystems += 1
        _close(level)

    def _open(self, path: str, parent: int | None, prefix: str) -> _Level:
        """Open a directory; only the path of the root may contain links."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
        flags |= 0 if parent is None else os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags | os.O_NOATIME, dir_fd=parent)
        except PermissionError:
            descriptor = os.open(path, flags, dir_fd=parent)
        try:
            return _Level(descriptor, os.scandir(descriptor), prefix)
        except OSError:
            os.close(descriptor)
            raise

    def _read_on(self, level: _Level) -> str | None:
        """Count files up to the next subdirectory, and return its name; None at the end."""
        while True:
            try:
                entry = next(level.entries, None)
            except OSError:
                self._unreadable += 1
                return None
            if entry is None or self._is_late():
                return None
            try:
                if entry.is_file(follow_symlinks=False):
                    self._add(level, entry)
                elif entry.is_dir(follow_symlinks=False):
                    return entry.name
                elif entry.is_symlink():
                    self.symlinks += 1
                else:
                    self.special_files += 1
            except OSError:
                self._unreadable += 1

    def _is_late(self) -> bool:
        self._entries += 1
        if self._entries % _CHECKED_EVERY == 0 or self._entries == 1:
            self._late = time.monotonic() > self._deadline
            if self._entries % _REPORTED_EVERY < _CHECKED_EVERY:
                text = f"{self._root}: {self._names} files"
                self._progress(Step(text, done=self._names, unit="file"))
        return self._late

    def _add(self, level: _Level, entry: os.DirEntry[str]) -> None:
        self._names += 1
        if self._threshold < _WORD and entry.inode() * _HASH % _WORD >= self._threshold:
            return
        status = entry.stat(follow_symlinks=False)
        self._asked += 1
        if status.st_nlink > 1 and self._was_met(status):
            return
        self._counter.add(status.st_size)
        self._allocated += status.st_blocks * _BLOCK_BYTES
        self.sample.add(level.prefix, entry.name, status.st_size)

    def _was_met(self, status: os.stat_result) -> bool:
        """True if the file was counted already, by another hard link.

        A file is forgotten after its last hard link. A limited number of files is remembered.
        """
        left = self._linked.get(status.st_ino)
        if left is None:
            if len(self._linked) < MOST_LINKED:
                self._linked[status.st_ino] = status.st_nlink - 1
            else:
                self._forgotten_links += 1
            return False
        if left > 1:
            self._linked[status.st_ino] = left - 1
        else:
            del self._linked[status.st_ino]
        return True


def _close(level: _Level) -> None:
    level.entries.close()
    os.close(level.descriptor)


def _mounted_twice(root: str) -> frozenset[str]:
    """Directories below a root, as prefixes, that would be counted twice.

    They are bind mounts of a part of the walked tree, or of a directory that an earlier bind mount
    shows already.
    """
    foreign = re.match(r"/proc/([0-9]+)/root(/.*)", root)
    process, path = (foreign[1], foreign[2]) if foreign else ("self", os.path.realpath(root))
    try:
        with open(f"/proc/{process}/mountinfo", errors="surrogateescape") as file:  # noqa: PTH123
            mounts = parse_mountinfo(file.read())
    except OSError:
        return frozenset()
    holder = mount_of(mounts, path)
    if holder is None:
        return frozenset()
    within = path.removeprefix(holder.mount_point.rstrip("/"))
    walked = [holder.root.rstrip("/") + within or "/"]
    found = set()
    for mount in mounts:
        point = mount.mount_point
        if mount.device != holder.device or point == path or not is_inside(point, path):
            continue
        if any(is_inside(mount.root, seen) for seen in walked):
            found.add(point.removeprefix(path.rstrip("/")).lstrip("/") + "/")
        else:
            walked.append(mount.root)
    return frozenset(found)
