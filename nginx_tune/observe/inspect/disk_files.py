"""Files of a tree for the disk probe: a sample in which any byte is as likely as any other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LEAST_FILE_BYTES = 4096
"""Smaller ones cannot be read in blocks past the page cache."""
MOST_FILES = 512
_MOST_SEEN = 200_000


class FileSample(NamedTuple):
    """Files to read."""

    paths: list[str]
    bytes: int
    """Of the sample."""


def choose_files(directories: Sequence[str], *, budget_seconds: float) -> FileSample:
    """Up to 512 regular files below some directories (or these files themselves).

    Symbolic links are not followed, other file systems not entered. Where the time runs out the
    sample is of what was seen by then.
    """
    deadline = time.monotonic() + budget_seconds
    seen: list[tuple[int, str]] = []
    for directory in directories:
        for found in _walk(os.path.realpath(directory), deadline):
            seen.append(found)
            if len(seen) >= _MOST_SEEN:
                break
    chosen = _spread(seen) if len(seen) > MOST_FILES else seen
    return FileSample([path for _, path in chosen], sum(size for size, _ in chosen))


def _spread(files: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The files that hold one of evenly spaced bytes, all files laid end to end."""
    stride = sum(size for size, _ in files) / MOST_FILES
    chosen = []
    end = 0
    mark = stride / 2
    for size, path in files:
        end += size
        if end > mark:
            chosen.append((size, path))
            mark += stride * ((end - mark) // stride + 1)
    return chosen


def _walk(root: str, deadline: float) -> Iterator[tuple[int, str]]:
    try:
        status = os.lstat(root)
    except OSError:
        return
    if os.path.isfile(root):  # noqa: PTH113
        yield status.st_size, root
        return
    waiting = [root]
    while waiting and time.monotonic() < deadline:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.stat(follow_symlinks=False).st_dev == status.st_dev:
                            waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False) and _is_text(entry.path):
                        size = entry.stat(follow_symlinks=False).st_size
                        if size >= LEAST_FILE_BYTES:
                            yield size, entry.path
        except OSError:
            continue


def _is_text(path: str) -> bool:
    """Whether a plan, which is JSON, can name the file."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
