"""What opening a file costs the loop, which no thread pool takes off it.

A name that the kernel remembers costs some microseconds. One that it has forgotten is looked up on
the disk: its inode at least, which lies in a block with others, so that a block stays in memory as
long as any of them is asked for. Directories of few files each come on top and are not counted, as
nobody says how many there are.
"""

from __future__ import annotations

from nginx_tune.decide.model_blocking import (
    FITS_RATIO,
    MEMORY_BYTES_PER_SECOND,
    OBJECT_OVERHEAD_BYTES,
    REQUEST_CPU_SECONDS,
    BlockingInputs,
    miss_ratio,
)

OPEN_SECONDS = 5e-6
"""open(), fstat() and close() of a known name. Source: LAB-NOTES §8, 3000 names in 13 ms."""
INODES_IN_BLOCK = 16
"""Of 256 bytes in 4 KiB. Source: mke2fs.conf(5), inode_size."""
_BLOCK_BYTES = 4096


def open_seconds(i: BlockingInputs | None) -> float:
    """Mean time of one open(); of a known name where nothing is known of data and memory."""
    if i is None:
        return OPEN_SECONDS
    return OPEN_SECONDS + cold_name_ratio(i) * i.disk.read_seconds(_BLOCK_BYTES)


def cold_name_ratio(i: BlockingInputs) -> float:
    """Share of requests whose file's inode has to be read from the disk.

    The file itself has left memory (an inode with cached pages stays), and so have the others of
    its block, which are neighbours by chance: each is there as likely as the cache is large.
    """
    objects = sum(c.objects for c in i.classes)
    footprint = i.dataset_bytes + objects * OBJECT_OVERHEAD_BYTES
    resident = min(1.0, FITS_RATIO * i.page_cache_bytes / footprint)
    return miss_ratio(i) * float((1 - resident) ** (INODES_IN_BLOCK - 1))


def request_seconds(object_bytes: float) -> float:
    """A request's own time on the loop, everything in memory."""
    return REQUEST_CPU_SECONDS + object_bytes / MEMORY_BYTES_PER_SECOND
