"""The cost of opening a file to the loop, which no thread pool takes off it.

A name that the kernel remembers costs some microseconds. One that it has forgotten is looked up on
the disk: its inode at least, which lies in a block with others, so that a block stays in memory as
long as any of them is asked for. A directory of few files is forgotten with them: its inode and its
entries come on top, where a scan counted the directories.
"""

from __future__ import annotations

from nginx_tune.decide.model.blocking import REQUEST_CPU_SECONDS
from nginx_tune.decide.model.cache import cold_overlap
from nginx_tune.decide.model.inputs import (
    BlockingInputs,
    miss_ratio,
    resident_objects,
    usable_objects,
)
from nginx_tune.decide.model.sending import MEMORY_BYTES_PER_SECOND

OPEN_SECONDS = 5e-6
"""open(), fstat() and close() of a known name. Measured: 3,000 names in 13 ms."""
RECHECK_SECONDS = 3e-6
"""stat() of a file that is held open, whose name stays in memory. Measured: 0.64 of open(),
fstat() and close() (50,000 calls each, kernel 6.18)."""
INODES_IN_BLOCK = 16
"""Inodes of 256 bytes in 4 KiB. Source: mke2fs.conf(5), inode_size."""
MANY_FILES = 100_000
"""From here on inodes and directories of data that memory does not hold are no more sure to stay
in it, whatever the model of one tree says: the audit's io-open-blocking asks from here, too."""
FORGOTTEN_RATIO = 0.05
"""Share of the requests whose name is read from the disk, from which that counts by itself: an
open() waits through the disk's rare stalls as well, and no pool takes it off the loop."""
_BLOCK_BYTES = 4096


def open_seconds(i: BlockingInputs | None) -> float:
    """Mean time of one open(); of a known name where nothing is known of data and memory."""
    if i is None:
        return OPEN_SECONDS
    return OPEN_SECONDS + name_reads(i) * i.disk.read_seconds(_BLOCK_BYTES)


def cold_name_ratio(i: BlockingInputs) -> float:
    """Share of requests whose file's inode has to be read from the disk.

    The file itself has left memory (an inode with cached pages stays), and so have the others of
    its block, which are neighbours by chance: each is there as likely as the cache is large.
    """
    return _forgotten(i, INODES_IN_BLOCK)


def name_reads(i: BlockingInputs) -> float:
    """Blocks that the disk reads for the name of one request, on average.

    The file's inode, and of a directory whose files have all left memory its inode and its entries.
    Source: Linux fs/namei.c, walk_component(); scenario cold-open, where ext4 read 3.1 blocks of
            8 ms each for a name (25 to 27 ms), every second file in a directory of its own.
    """
    inodes = cold_name_ratio(i)
    if not i.directories:
        return inodes
    return inodes + _forgotten(i, i.objects / i.directories) * (1 + inodes)


def least_name_reads(i: BlockingInputs) -> float:
    """The same where the disk's inodes have all been read with others: entries alone.

    Source: ext4's inode_readahead_blks, 32 blocks at once; with blocks of 4 KiB scenario cold-open
            waited 10 ms for a name (1.3 reads), with blocks of 1 KiB 25 ms.
    """
    if not i.directories:
        return 0.0
    return _forgotten(i, i.objects / i.directories)


def _forgotten(i: BlockingInputs, together: float) -> float:
    """Share of requests for a file that left memory, and so did all that are kept with it."""
    if not i.names_take_memory:  # somebody else has looked all of them up
        return 0.0
    resident = min(1.0, resident_objects(i) / i.objects)
    return miss_ratio(i) * float((1 - resident) ** max(0.0, together - 1))


def forgets_names(i: BlockingInputs | None, files: float) -> bool:
    """True if names have to be expected to be read from the disk again and again."""
    if i is None or miss_ratio(i) <= 0:
        return False
    return files >= MANY_FILES or cold_name_ratio(i) >= FORGOTTEN_RATIO


def open_blocked_ratio(i: BlockingInputs, reads: float | None = None) -> float:
    """Share of time that a loop stands in open(), with pools or without, at a known rate.

    ``reads`` are those of one name, where they are others than expected.
    """
    each = name_reads(i) if reads is None else reads
    opens = (i.rate_per_second or 0.0) / i.workers * each
    return min(1.0, opens * i.disk.read_seconds(_BLOCK_BYTES))


def shared_descriptor_seconds(i: BlockingInputs | None, transfers: float) -> float:
    """Mean time that a request loses where transfers of one cold file share a descriptor.

    The kernel keeps one record of read-ahead for each descriptor. Readers at different places of
    the file overwrite it, the window beyond the one that is read is then not asked for, and the
    disk positions once more for each turn but the first.
    Source: Linux mm/readahead.c, struct file_ra_state in struct file; ngx_open_cached_file()
            gives one descriptor to all requests of a worker.
    """
    if i is None or transfers <= 1:
        return 0.0
    others = (transfers - 1) / i.workers * cold_overlap(i.classes, usable_objects(i))
    return others * (i.turns_per_miss - 1) * i.disk.latency_seconds


def request_seconds(object_bytes: float) -> float:
    """A request's own time on the loop, everything in memory."""
    return REQUEST_CPU_SECONDS + object_bytes / MEMORY_BYTES_PER_SECOND
