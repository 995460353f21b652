"""The page cache that a block starts with: nothing, all of the data, or as much as fits.

nginx may have written below the directories: what is opened there is opened without following a
link.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from nginx_tune.errors import UndecidedError
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.lab.disks import evict
from nginx_tune.sandbox.covers import open_below, open_files

OVERFILLED = 1.25
"""Bytes that are read over the limit, so that the cache is full whatever else is charged."""
_PIECE_BYTES = 1 << 20


def make_cold(directories: Iterable[Path]) -> int | None:
    """Drop the lab's own files from the page cache; the bytes that are still resident."""
    directories = list(directories)
    for directory in directories:
        evict(directory)
    return resident_bytes(directories)


def make_warm(directories: Iterable[Path]) -> int | None:
    """Read the lab's own files unless all are there; the bytes that are resident."""
    directories = list(directories)
    if any(_resident(directory)[0] != 1.0 for directory in directories):
        for directory in directories:
            for _, file in open_files(directory):
                _read(file)
    return resident_bytes(directories)


def make_full(
    directories: Iterable[Path], *, limit_bytes: int, join_files: Sequence[str], seed: int
) -> None:
    """Read files at random until the memory limit is reached, as one of nginx's group.

    That is what an LRU cache holds in the long run where all files are asked for alike; a hard
    disk would take minutes to get there by itself. Pages belong to the group that reads them
    first, so the reader has to be in nginx's.

    Errors: UndecidedError when the files cannot be read.
    """
    files = [
        (directory, name, os.fstat(file).st_size)
        for directory in directories
        for name, file in open_files(directory)
    ]
    random.Random(seed).shuffle(files)  # noqa: S311  # a load, no secret
    reader = os.fork()
    if not reader:
        try:
            for group in join_files:
                Path(group).write_text("0")
            wanted = OVERFILLED * limit_bytes
            for directory, name, size in files:
                if wanted <= 0:
                    break
                wanted -= size
                file = open_below(directory, name)
                _read(file)
                os.close(file)
        except OSError as error:
            os._exit(error.errno or 1)
        except BaseException:  # noqa: BLE001  # a fork has nobody above
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1])
    if status:
        said = os.strerror(status) if status > 0 else f"something killed its reader ({-status})"
        raise UndecidedError(f"the page cache cannot be filled: {said}")


def _read(file: int) -> None:
    while os.read(file, _PIECE_BYTES):
        pass


def resident_bytes(directories: Iterable[Path]) -> int | None:
    """Bytes of the lab's own files in the page cache; None where it does not say."""
    total = 0.0
    directories = list(directories)
    for directory in directories:
        share, size = _resident(directory)
        if share is None or size is None:
            return None
        total += share * size
    return int(total) if directories else None


def _resident(directory: Path) -> tuple[float | None, int | None]:
    """The share of its files' bytes that is in the page cache, and the bytes."""
    dataset = LiveHost().scan_dataset(str(directory), budget_seconds=5.0)
    return dataset.residency.ratio, dataset.bytes
