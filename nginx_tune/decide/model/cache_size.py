"""What a cache can hold by its keys: every object has one in shared memory, or is not in the cache.

nginx's manager removes objects, the least recently used first, when the zone of keys is full,
whatever ``max_size`` allows: disk that no key is left for stays empty.

On the disk an object is a file of whole blocks, with a head before its body, and nginx counts these
against ``max_size``: of objects of 300 bytes a cache holds a fourteenth of what their bytes say.

Source: ngx_http_file_cache_add(), ngx_http_file_cache_update() (``fs_size``) and
        ngx_http_file_cache_manager() in ngx_http_file_cache.c.
"""

from __future__ import annotations

import math

from nginx_tune.conf.caches import KEYS_PER_MEBIBYTE

HEAD_BYTES = 640
"""Before a body: nginx's own 336 bytes, ``KEY:`` with the key, the header of the response. Measured
604 with a key of 30 bytes and the header of an nginx (tests/generate/test_serving_blocks.py)."""
BLOCK_BYTES = 4096
"""Of ext4, XFS, Btrfs and tmpfs as they are made."""
_COUNTED_BY_SECTORS = frozenset({"zfs", "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "vfat"})
SECTOR_BYTES = 512
"""What nginx counts in where a file system tells larger blocks than a page (ngx_fs_bsize())."""

SMALLEST_ZONE_MEBIBYTES = 10
LARGEST_ZONE_MEBIBYTES = 4096
"""About 29 million keys: nginx's manager and loader walk all of them."""
MEMORY_SHARE = 0.05
"""Of all memory, for the keys of all caches."""


def most_zone_mebibytes(memory_bytes: int | None, caches: int) -> int:
    """The most that one cache's keys may take of memory; without known memory nginx's own bound."""
    if not memory_bytes:
        return LARGEST_ZONE_MEBIBYTES
    fair = int(MEMORY_SHARE * memory_bytes / (1 << 20) / max(1, caches))
    return max(SMALLEST_ZONE_MEBIBYTES, min(LARGEST_ZONE_MEBIBYTES, fair))


def block_bytes(filesystem: str | None) -> int:
    """The blocks that nginx counts a cache's files in."""
    return SECTOR_BYTES if filesystem in _COUNTED_BY_SECTORS else BLOCK_BYTES


def file_bytes(object_bytes: float | None, block_bytes: int) -> float:
    """What an object counts for in a cache: the blocks of its file, with its head."""
    return float(math.ceil((HEAD_BYTES + (object_bytes or 0.0)) / block_bytes) * block_bytes)


def scanned_file_bytes(
    files: int, bytes_: int, allocated_bytes: int | None, block_bytes: int = BLOCK_BYTES
) -> float:
    """The same of the files that lie in a cache: as many blocks as were told, else as they need.

    Source: ngx_file_fs_size().
    """
    needed = math.ceil(bytes_ / files / block_bytes) * block_bytes * files
    return max(float(block_bytes), max(bytes_, allocated_bytes or needed) / files)


def keyed_bytes(zone_mebibytes: int, file_bytes: float) -> float:
    """What the files that a zone has keys for take on the disk."""
    return zone_mebibytes * KEYS_PER_MEBIBYTE * file_bytes
