"""The size of a cache: the ``max_size`` that is declared, or the one that would be written.

The file's line and the model of the page cache both read it here, so that no decision weighs data
that the file beside it forbids.

Every object has a key in shared memory, or is not in the cache: nginx's manager removes objects,
the least recently used first, when the zone of keys is full, whatever ``max_size`` allows. Disk
that no key is left for stays empty. On the disk an object is a file of whole blocks, with a head
before its body, and nginx counts these against ``max_size``: of objects of 300 bytes a cache holds
a fourteenth of what their bytes say.

Keys and page cache share the machine's memory, and what is to be least is the origin's load. The
page cache takes nothing off that: without it a hit is read from the disk, without its key an object
is fetched anew. So keys get what the disks have room for, up to half of the memory that would be
page cache. A zone is mapped, not filled: keys that nobody needs take no memory from files.

Source: ngx_http_file_cache_add(), ngx_http_file_cache_update() (``fs_size``) and
        ngx_http_file_cache_manager() in ngx_http_file_cache.c; ngx_shm_alloc() (MAP_ANON) and
        ngx_slab_init(), which writes 24 bytes for each page of a zone and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.conf.served import KEYS_PER_MEBIBYTE
from nginx_tune.decide.answer import Quantity
from nginx_tune.decide.storage import DataPath
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import CacheBounds
from nginx_tune.documents.units import bytes_text, percent_text

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
SHARE_OF_DISK = 0.8
"""Share of the smallest leaf disk: file-system overhead, a mirror's other half and what else lives
there stay out; the manager removes files late (ngx_cache_manager_process_handler())."""
SHARE_OF_FREE = 0.9
"""Share of what is free: ``max_size`` is overshot while files are written."""
UNKNOWN_DISK = "no max_size, since the facts have no disk for it"
BY_KEYS = "as much as the keys in"
NOT_SCANNED = "what is free now, of a cache that was not scanned"
MAY_HOLD_MORE = "what the disk has room for, and the cache may hold more than that now"
FILE_BYTES_FACT = "mean size of a cached file on the disk"
"""The evidence by which a cache's keys are held against ``max_size``."""
LARGEST_GIBIBYTES = 1 << 20
_MOST_FREE_GIBIBYTES = 64
_MANY_GIBIBYTES = 16
"""From here on a size in whole gibibytes is near enough."""


class CacheHost(NamedTuple):
    """The host as far as it bounds caches, beside their own lines."""

    facts: Facts
    places: Sequence[DataPath]
    """All caches' directories, which may share disks."""
    keys_bytes: float | None
    """Memory for the keys of all caches; null where nobody knows how much there is."""
    object_bytes: Quantity
    """Mean size of what they keep; assumed where nobody knows more than what is usual."""
    files: float | None = None
    """Objects that are asked for, where somebody knows."""


class CacheSize(NamedTuple):
    """One cache as it would be written."""

    max_bytes: int | None
    """``max_size``; null where nobody knows what the disk has room for."""
    held_bytes: float
    """Bytes of that which it can hold: no more than are free beside ``min_free``."""
    zone_mebibytes: int
    file_bytes: float
    """Bytes of an object on the disk, on average."""
    object_bytes: float
    """Bytes of the objects that it can hold, without the rest of their blocks."""
    why: str
    is_firm: bool
    """True if nginx will keep to it: the site's line says so, or the one that would be written.
    Made on the result of itself, a plan reads its own line as the site's."""
    min_free_bytes: int
    """Bytes that the cache leaves free at least, if the site says nothing; 0 where that would have
    nginx empty it."""


def cache_size(host: CacheHost, place: DataPath, bounds: CacheBounds | None) -> CacheSize:
    """The cache in ``place``, by its operator's bounds where there are some."""
    each = _file_bytes(host, place)
    share = min(1.0, (host.object_bytes.value or each) / each)
    if bounds is not None and bounds.max_bytes:
        zone = _zone_mebibytes(host, bounds.max_bytes, each)
        held = float(bounds.max_bytes)
        if place.available_bytes is not None:
            free = place.available_bytes + _held_bytes(host, place)
            held = max(0.0, min(held, free - (bounds.min_free_bytes or 0)))
        why = "the size that the site gives it"
        spare = _min_free_bytes(host, place, bounds.max_bytes)
        return CacheSize(bounds.max_bytes, held, zone, each, share * held, why, True, spare)
    room, why = _most_bytes(host, place)
    if room is None:
        zone = _zone_of_unknown(host)
        held = keyed_bytes(zone, each)
        return CacheSize(None, held, zone, each, share * held, why, False, 0)
    zone = _zone_mebibytes(host, room, each)
    by_keys = keyed_bytes(zone, each)
    size = room
    is_assumed = host.object_bytes.provenance == "assumed" and not _held_bytes(host, place)
    if by_keys < room and not is_assumed:
        # Rounded down: nginx would remove by keys what max_size still has room for.
        size = _whole(by_keys)
        why = (
            f"{BY_KEYS} {zone}m name, of {bytes_text(each)} "
            f"each on the disk; the disk has room for {size_text(room)}"
        )
    is_firm = True
    if bounds is not None:
        if _may_hold_more(host, place, size, is_by_keys=size < room):
            why = MAY_HOLD_MORE
        guesses = (NOT_SCANNED, MAY_HOLD_MORE)
        is_firm = (by_keys >= room or not is_assumed) and not why.startswith(guesses)
    elif by_keys < room and is_assumed:
        is_firm = False
    spare = _min_free_bytes(host, place, size)
    return CacheSize(size, float(size), zone, each, share * size, why, is_firm, spare)


def _zone_of_unknown(host: CacheHost) -> int:
    """The zone of a cache on a disk that nobody looked at: keys are its only bound.

    Keys of what is asked for, where that is known, else of what a small part of memory names.
    """
    caches = max(1, len(host.places))
    most = most_zone_mebibytes(host.keys_bytes, caches)
    if host.files:
        wanted = math.ceil(host.files / caches / KEYS_PER_MEBIBYTE)
    else:
        part = _SHARE_WITHOUT_A_DISK * (host.keys_bytes or 0.0) / MEBIBYTE
        wanted = int(part / caches)
    return max(SMALLEST_ZONE_MEBIBYTES, min(most, wanted))


def _file_bytes(host: CacheHost, place: DataPath) -> float:
    """Mean size of a file in the cache, else of what is asked for."""
    block = block_bytes(place.filesystem)
    for one in host.facts.datasets:
        if one.path == place.path and one.files and one.bytes:
            return scanned_file_bytes(one.files, one.bytes, one.allocated_bytes, block)
    return file_bytes(host.object_bytes.value, block)


def size_text(size_bytes: int) -> str:
    """A size in the largest unit that says it whole, as nginx takes it."""
    for unit, suffix in ((GIBIBYTE, "g"), (MEBIBYTE, "m"), (1 << 10, "k")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return str(size_bytes)


def _whole(size_bytes: float) -> int:
    """Rounded down to what reads well, and never 0: that is no bound to nginx."""
    unit = GIBIBYTE if size_bytes >= _MANY_GIBIBYTES * GIBIBYTE else MEBIBYTE
    return max(1, int(size_bytes / unit)) * unit


def _min_free_bytes(host: CacheHost, place: DataPath, size_bytes: int) -> int:
    """A twentieth of the cache or its file system, up to 64 GiB, and half of what it leaves.

    Shape: whole GiB, or MiB where it is less than one; 0 where the file system was not looked at:
           the manager removes files, all of them if need be, until so much of it is free.
    Source: ngx_http_file_cache_manager (ngx_fs_available against min_free).
    """
    if place.size_bytes is None or place.available_bytes is None:
        return 0
    wanted = min(_MOST_FREE_GIBIBYTES * GIBIBYTE, min(size_bytes, place.size_bytes) // 20)
    left = place.available_bytes // _sharers(host, place) + _held_bytes(host, place) - size_bytes
    spare = max(0, min(wanted, left // 2))
    unit = GIBIBYTE if spare >= GIBIBYTE else MEBIBYTE
    return spare // unit * unit


def _most_bytes(host: CacheHost, place: DataPath) -> tuple[int | None, str]:
    """``max_size`` by the disks alone, and why; never more than there is room for.

    Null where the facts have no disk under the directory: any number would be made up.
    """
    sizes = {d.name: d.size_bytes for d in host.facts.storage.disks if d.size_bytes}
    leaves = [sizes[name] for name in place.leaf_disks if name in sizes]
    room = _room_bytes(host, place)
    if not leaves and room is not None:
        return _whole(room), _room_reason(host, place)
    if not leaves:
        return None, UNKNOWN_DISK
    sharing = Counter(name for other in host.places for name in other.leaf_disks)
    sharers = max(sharing[name] for name in place.leaf_disks)
    usable = SHARE_OF_DISK * min(leaves) / sharers
    if room is not None and room < usable:
        return _whole(room), _room_reason(host, place)
    size = _whole(min(LARGEST_GIBIBYTES * GIBIBYTE, usable))
    return size, f"{percent_text(SHARE_OF_DISK, 2)} of {bytes_text(min(leaves) / sharers)}"


def _room_bytes(host: CacheHost, place: DataPath) -> float | None:
    """Bytes that a cache may take of its file system; null when that was not looked at.

    The share of all of it that is left to caches on it, and no more than what is free or taken
    by the cache already.
    """
    if place.size_bytes is None:
        return None
    sharers = _sharers(host, place)
    room = SHARE_OF_DISK * place.size_bytes / sharers
    if place.available_bytes is None:
        return room
    return min(room, SHARE_OF_FREE * place.available_bytes / sharers + _held_bytes(host, place))


def _room_reason(host: CacheHost, place: DataPath) -> str:
    is_scanned = any(d.path == place.path and d.bytes is not None for d in host.facts.datasets)
    if place.available_bytes is not None and not is_scanned:
        return NOT_SCANNED
    return f"what {place.path} has room for"


def _may_hold_more(host: CacheHost, place: DataPath, size_bytes: int, *, is_by_keys: bool) -> bool:
    """True if a cache that stands without a bound may hold more than ``size_bytes`` already.

    At the next start of nginx the manager would remove the rest. Where no scan tells it, all that
    is taken of the file system may be the cache; of fewer keys than decided it holds no more than
    they name (``with_own_words`` looks at these).
    Source: ngx_http_file_cache_manager().
    """
    scanned = [d for d in host.facts.datasets if d.path == place.path and d.complete]
    if scanned and scanned[0].bytes is not None:
        return _held_bytes(host, place) > size_bytes
    if is_by_keys:
        return False
    if place.size_bytes is None or place.available_bytes is None:
        return True
    return place.size_bytes - place.available_bytes > size_bytes


def _sharers(host: CacheHost, place: DataPath) -> int:
    """Caches that lie on the same disks."""
    return max(1, sum(1 for other in host.places if other.leaf_disks == place.leaf_disks))


def _held_bytes(host: CacheHost, place: DataPath) -> int:
    """Bytes in the cache now, where it was scanned, as nginx counts them (ngx_file_fs_size)."""
    held = ((d.bytes or 0, d.allocated_bytes or 0) for d in host.facts.datasets
            if d.path == place.path)  # fmt: skip
    return max(next(held, (0, 0)))


def _zone_mebibytes(host: CacheHost, size_bytes: int, each_bytes: float) -> int:
    objects = size_bytes / each_bytes
    wanted = math.ceil(objects / KEYS_PER_MEBIBYTE)
    most = most_zone_mebibytes(host.keys_bytes, len(host.places))
    return max(SMALLEST_ZONE_MEBIBYTES, min(most, wanted))


HEAD_BYTES = 640
"""Before a body: nginx's own 336 bytes, ``KEY:`` with the key, the header of the response. Measured
604 with a key of 30 bytes and the header of an nginx (tests/generate/test_serving_blocks.py)."""
BLOCK_BYTES = 4096
"""Blocks of ext4, XFS, Btrfs and tmpfs as they are made."""
_COUNTED_BY_SECTORS = frozenset({"zfs", "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "vfat"})
SECTOR_BYTES = 512
"""The unit of nginx where a file system tells larger blocks than a page (ngx_fs_bsize())."""

SMALLEST_ZONE_MEBIBYTES = 10
LARGEST_ZONE_MEBIBYTES = 65_536
"""About 460 million keys, which nginx's loader walks in an hour after a start."""
_UNKNOWN_MEMORY_MEBIBYTES = 4096
"""The largest zone where nobody knows how much memory there is."""
KEYS_SHARE = 0.5
"""Share of the memory that would be page cache that keys of all caches may take."""
_SHARE_WITHOUT_A_DISK = 0.1
"""Share of that where neither the disks nor the number of objects is known."""


def keys_bytes(memory_bytes: float | None, page_cache_bytes: float | None) -> float | None:
    """Memory for the keys of all caches, in bytes; null without known memory."""
    known = [size for size in (memory_bytes, page_cache_bytes) if size]
    return KEYS_SHARE * min(known) if known else None


def keys_taken_bytes(objects: float) -> float:
    """Bytes that the keys of so many objects take."""
    return objects / KEYS_PER_MEBIBYTE * MEBIBYTE


def most_zone_mebibytes(keys_bytes: float | None, caches: int) -> int:
    """The most that one cache's keys may take of the memory for those of all, in MiB."""
    if not keys_bytes:
        return _UNKNOWN_MEMORY_MEBIBYTES
    fair = int(keys_bytes / MEBIBYTE / max(1, caches))
    return max(SMALLEST_ZONE_MEBIBYTES, min(LARGEST_ZONE_MEBIBYTES, fair))


def block_bytes(filesystem: str | None) -> int:
    """The blocks that nginx counts a cache's files in."""
    return SECTOR_BYTES if filesystem in _COUNTED_BY_SECTORS else BLOCK_BYTES


def file_bytes(object_bytes: float | None, block_bytes: int) -> float:
    """Bytes that an object counts for in a cache: the blocks of its file, with its head."""
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
    """Bytes on the disk of the files that a zone has keys for."""
    return zone_mebibytes * KEYS_PER_MEBIBYTE * file_bytes
