"""The page cache that a block starts with: nothing, all of the data, or as much as fits."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from nginx_tune.errors import UndecidedError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.programs import run_program
from nginx_tune.lab.disks import evict

OVERFILLED = 1.25
"""Bytes that are read over the limit, so that the cache is full whatever else is charged."""


def make_cold(directories: Sequence[str]) -> int | None:
    """Drop the lab's own files from the page cache; the bytes that are still resident."""
    for directory in directories:
        evict(Path(directory))
    return resident_bytes(directories)


def make_warm(directories: Sequence[str]) -> int | None:
    """Read the lab's own files unless all are there; the bytes that are resident."""
    if any(_resident(directory)[0] != 1.0 for directory in directories):
        for path in _files(directories):
            path.read_bytes()
    return resident_bytes(directories)


def make_full(
    directories: Sequence[str], *, limit_bytes: int, join_files: Sequence[str], seed: int
) -> None:
    """Read files at random until the memory limit is reached, as one of nginx's group.

    That is what an LRU cache holds in the long run where all files are asked for alike; a hard
    disk would take minutes to get there by itself. Pages belong to the group that reads them
    first, so the reader has to be in nginx's.

    Errors: UndecidedError when the files cannot be read.
    """
    files = list(_files(directories))
    random.Random(seed).shuffle(files)  # noqa: S311  # a load, no secret
    wanted, names = OVERFILLED * limit_bytes, []
    for path in files:
        if wanted <= 0:
            break
        wanted -= path.stat().st_size
        names.append(bytes(path))

    def enter() -> None:
        for file in join_files:
            Path(file).write_text("0")

    argv = ["xargs", "-0", "cat"]
    read = run_program(
        argv,
        stdin=b"\0".join(names),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=enter,  # file writes in a single-threaded process
    )
    if read.returncode != 0:
        said = read.stderr.decode(errors="replace").strip() or read.returncode
        raise UndecidedError(f"the page cache cannot be filled: {said}")


def resident_bytes(directories: Sequence[str]) -> int | None:
    """Bytes of the lab's own files in the page cache; None where it does not say."""
    total = 0.0
    for directory in directories:
        share, size = _resident(directory)
        if share is None or size is None:
            return None
        total += share * size
    return int(total) if directories else None


def _resident(directory: str) -> tuple[float | None, int | None]:
    """The share of its files' bytes that is in the page cache, and the bytes."""
    dataset = LiveHost().scan_dataset(directory, budget_seconds=5.0)
    return dataset.residency.ratio, dataset.bytes


def _files(directories: Sequence[str]) -> Iterator[Path]:
    for directory in directories:
        yield from sorted(path for path in Path(directory).rglob("*") if path.is_file())
