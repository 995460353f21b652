"""The cost of open() on the event loop, which no thread pool takes over.

To open a file whose name is in the kernel's cache takes some microseconds. For any other name, at
least the inode is read from the disk. The inode's block holds other inodes too, and stays in memory
as long as any of their files is requested. A directory of few files leaves memory together with its
files, and its inode and entries must then be read too. The model includes this only if a scan
counted the directories.
"""

from nginx_tune.decide.model.blocking import REQUEST_CPU_SECONDS
from nginx_tune.decide.model.cache import cold_overlap
from nginx_tune.decide.model.inputs import BlockingInputs, resident_objects, usable_objects
from nginx_tune.decide.model.sending import MEMORY_BYTES_PER_SECOND

OPEN_SECONDS = 5e-6
"""Time of open(), fstat() and close() for a cached name. Measured: 3,000 names in 13 ms."""
RECHECK_SECONDS = 3e-6
"""Time of stat() for an open file, whose name stays in memory. Measured: 0.64 of open(), fstat()
and close() (50,000 calls each, kernel 6.18)."""
INODES_IN_BLOCK = 16
"""Inodes of 256 bytes in 4 KiB. Source: mke2fs.conf(5), inode_size."""
MANY_FILES = 100_000
"""Number of files from which inodes and directories are assumed to leave memory if the data does
not fit, even if the model disagrees. The audit's io-open-blocking has the same bound."""
FORGOTTEN_RATIO = 0.05
"""Share of requests with names read from the disk, from which such reads matter even if they are
short: open() also waits through the disk's rare stalls, and no pool takes the call over."""
_BLOCK_BYTES = 4096


def open_seconds(i: BlockingInputs | None) -> float:
    """Mean time of one open(); that of a cached name if data and memory are not known."""
    if i is None:
        return OPEN_SECONDS
    return OPEN_SECONDS + name_reads(i) * i.disk.read_seconds(_BLOCK_BYTES)


def cold_name_ratio(i: BlockingInputs) -> float:
    """Share of requests for which an inode is read from the disk.

    For such a request the file itself has left memory (an inode with cached pages stays), and so
    have the other files with inodes in the same block. The size of the cache gives the probability.
    """
    return _forgotten(i, INODES_IN_BLOCK)


def name_reads(i: BlockingInputs) -> float:
    """Mean number of blocks that are read from the disk for the name in one request.

    These are the file's inode, and the directory's inode and entries if no other file of the
    directory is in memory.
    Source: Linux fs/namei.c, walk_component(); scenario cold-open, where ext4 read 3.1 blocks of
            8 ms each for a name (25 to 27 ms), every second file in a directory of its own.
    """
    inodes = cold_name_ratio(i)
    if not i.directories:
        return inodes
    return inodes + _forgotten(i, i.objects / i.directories) * (1 + inodes)


def least_name_reads(i: BlockingInputs) -> float:
    """``name_reads`` if read-ahead already has read all inodes, so that only entries are read.

    Source: ext4's inode_readahead_blks, 32 blocks at once; with blocks of 4 KiB scenario cold-open
            waited 10 ms for a name (1.3 reads), with blocks of 1 KiB 25 ms.
    """
    if not i.directories:
        return 0.0
    return _forgotten(i, i.objects / i.directories)


def _forgotten(i: BlockingInputs, together: float) -> float:
    """Share of requests for a file whose whole group of ``together`` files has left memory."""
    if not i.names_take_memory:  # all names are in memory
        return 0.0
    resident = min(1.0, resident_objects(i) / i.objects)
    return i.miss_ratio * float((1 - resident) ** max(0.0, together - 1))


def forgets_names(i: BlockingInputs | None, files: float) -> bool:
    """True if names are likely to be read from the disk repeatedly."""
    if i is None or i.miss_ratio <= 0:
        return False
    return files >= MANY_FILES or cold_name_ratio(i) >= FORGOTTEN_RATIO


def open_blocked_ratio(i: BlockingInputs, reads: float | None = None) -> float:
    """Share of time that a loop spends in open(), with or without pools, at a known rate.

    ``reads`` overrides ``name_reads``.
    """
    each = name_reads(i) if reads is None else reads
    opens = (i.rate_per_second or 0.0) / i.workers * each
    return min(1.0, opens * i.disk.read_seconds(_BLOCK_BYTES))


def shared_descriptor_seconds(i: BlockingInputs | None, transfers: float) -> float:
    """Mean time that a request loses when transfers of one cold file share a descriptor.

    The kernel has one read-ahead state for each descriptor. Readers at different places of the file
    overwrite it, so the next window is not read ahead, and the disk must position again for each
    turn except the first.
    Source: Linux mm/readahead.c, struct file_ra_state in struct file; ngx_open_cached_file()
            gives one descriptor to all requests of a worker.
    """
    if i is None or transfers <= 1:
        return 0.0
    others = (transfers - 1) / i.workers * cold_overlap(i.classes, usable_objects(i))
    return others * (i.turns_per_miss - 1) * i.disk.latency_seconds


def request_seconds(object_bytes: float) -> float:
    """Time of a request on the loop if everything is in memory."""
    return REQUEST_CPU_SECONDS + object_bytes / MEMORY_BYTES_PER_SECOND
