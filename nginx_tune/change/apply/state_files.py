"""What a state directory is made of: names, files that are flushed, and nobody else's."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from nginx_tune.change.apply import calls


def next_id(now: str, last: str) -> str:
    """An id that sorts behind the last, in the same second and where the clock was set back too.

    What is taken back without a name is the last change, so that their order must hold.
    """
    time, _, number = last.partition("-")
    if now > time:
        return f"{now}-{secrets.randbelow(1 << 20):06x}"
    return f"{time}-{int(number, 16) + 1:06x}"


def fault(status: os.stat_result) -> str:
    """Why somebody else could have changed what is kept; empty when nobody could."""
    is_foreign = status.st_uid != os.geteuid()
    if is_foreign or stat.S_ISLNK(status.st_mode):
        return "another user's" if is_foreign else "a link"
    return "others may write there" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def make_missing(path: Path, mode: int = 0o700) -> None:
    """A directory and those above it, where they are not there yet.

    Errors: OSError.
    """
    if path.is_dir():
        return
    make_missing(path.parent, 0o777)
    with contextlib.suppress(FileExistsError):  # somebody else was quicker
        calls.make_directory(path, mode)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def store(directory: int, name: str, content: bytes) -> None:
    """A new file, whole and on the disk; its name comes there with its directory.

    Errors: OSError.
    """
    descriptor = calls.create(directory, name)
    try:
        calls.write(descriptor, content)
        calls.flush(descriptor)
    finally:
        os.close(descriptor)
