"""Walking a tree of files once: counts, sizes, and what of it the page cache holds.

The walk is a guest on a production host: idle I/O priority, access times left alone where
the kernel permits, one file system, no symbolic links followed, hard links counted once, and
a time budget after which the counts are lower bounds. It holds one open directory per level
and a sample of fixed size, so its memory is the same for ten files and for ten million.

What costs on a cold disk is asking each file for its size. With a ``sample_ratio`` below 1 all
names are still counted, and that share of the files is asked, chosen by inode number: all
names of a file are in the sample or none is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from nginx_tune.documents.facts import Dataset, Residency
from nginx_tune.host.dataset_walk import Walk
from nginx_tune.host.residency import read_residency

_WALK_SHARE = 0.7
"""Share of the budget for the walk; the rest is for asking about the sample."""


def scan_dataset(
    path: str,
    *,
    budget_seconds: float,
    sample_ratio: float = 1.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """The dataset under a directory.

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
        progress(f"{path}: asking what of {estimate.files} files is in the page cache")
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
