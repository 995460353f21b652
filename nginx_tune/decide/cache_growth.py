"""Size of a cache: the declared ``max_size``, or the size to write.

The emitted directive and the page-cache model use the same size, so that they agree.

Every cached object has a key in shared memory. When the zone of keys is full, nginx's manager
removes the least recently used objects, even below ``max_size``, and the rest of the disk stays
empty. On disk an object is a file of whole blocks with a header before its body, and nginx counts
blocks against ``max_size``: with objects of 300 bytes a cache holds a fourteenth of its size in
object bytes.

Keys and page cache share the machine's memory; the goal is the least load on the origin. Without
page cache a hit is read from disk, but without its key an object is fetched again. So there are
keys for all objects that fit on the disks, but in at most half of the memory that would be page
cache. A zone is mapped, not filled: unused keys take no memory from files.

Source: ngx_http_file_cache_add(), ngx_http_file_cache_update() (``fs_size``) and
        ngx_http_file_cache_manager() in ngx_http_file_cache.c; ngx_shm_alloc() (MAP_ANON) and
        ngx_slab_init(), which writes 24 bytes for each page of a zone and nothing else.
"""

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
"""Share of the smallest leaf disk for a cache. The rest is for file-system overhead, other files,
and files that the manager removes late (ngx_cache_manager_process_handler())."""
SHARE_OF_FREE = 0.9
"""Share of the free space for a cache, which exceeds ``max_size`` while files are written."""
UNKNOWN_DISK = "no max_size, because the facts lack its disk"
BY_KEYS = "as much as the keys in"
NOT_SCANNED = "the space that is free now; the cache was not scanned"
MAY_HOLD_MORE = "the room on the disk; the cache may hold more than that now"
FILE_BYTES_FACT = "mean size of the cached files on the disk"
"""The name of the evidence with which a cache's keys are compared with ``max_size``."""
LARGEST_GIBIBYTES = 1 << 20
_MOST_FREE_GIBIBYTES = 64
_MANY_GIBIBYTES = 16
"""Size from which ``max_size`` is rounded to whole gibibytes."""


class CacheHost(NamedTuple):
    """The limits that a host sets for all its caches."""

    facts: Facts
    places: Sequence[DataPath]
    """Directories of all caches, which may share disks."""
    keys_bytes: float | None
    """Memory for the keys of all caches; None where the memory is not known."""
    object_bytes: Quantity
    """Mean size of cached objects."""
    files: float | None = None
    """Distinct objects that are requested, where known."""


class CacheSize(NamedTuple):
    """The limits of one cache."""

    max_bytes: int | None
    """``max_size``; None where the room on the disk is not known."""
    held_bytes: float
    """Bytes on disk that the cache can hold within ``max_size`` and ``min_free``."""
    zone_mebibytes: int
    file_bytes: float
    """Mean bytes of an object on the disk."""
    object_bytes: float
    """Bytes of the objects that the cache can hold, without the unused rest of their blocks."""
    why: str
    is_firm: bool
    """True if nginx will enforce ``max_bytes``: the limit is in the configuration or will be
    written. A ``max_size`` that an earlier plan wrote counts as the site's own."""
    min_free_bytes: int
    """``min_free`` in bytes if the site sets none; 0 if that would make nginx empty the cache."""


def cache_size(host: CacheHost, place: DataPath, bounds: CacheBounds | None) -> CacheSize:
    """The limits of the cache in ``place``; bounds from the operator take precedence."""
    each = _file_bytes(host, place)
    share = min(1.0, (host.object_bytes.value or each) / each)
    if bounds is not None and bounds.max_bytes:
        zone = _zone_mebibytes(host, bounds.max_bytes, each)
        held = float(bounds.max_bytes)
        if place.available_bytes is not None:
            free = place.available_bytes + _held_bytes(host, place)
            held = max(0.0, min(held, free - (bounds.min_free_bytes or 0)))
        why = "the size that is set"
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
        # Rounded down: with more, nginx would remove objects for want of keys.
        size = _whole(by_keys)
        why = (
            f"{BY_KEYS} {zone}m can name, at {bytes_text(each)} "
            f"each on disk; the disk has room for {size_text(room)}"
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
    """Zone size in MiB for a cache on an unknown disk, whose size only its keys limit.

    Enough keys for the requested objects where they are known, else a small part of memory.
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
    """Mean bytes on disk of a cached file: as scanned, or else computed from the requests."""
    block = block_bytes(place.filesystem)
    for scan in host.facts.datasets:
        if scan.path == place.path and scan.files and scan.bytes:
            return scanned_file_bytes(scan.files, scan.bytes, scan.allocated_bytes, block)
    return file_bytes(host.object_bytes.value, block)


def size_text(size_bytes: int) -> str:
    """A size in nginx's notation, in the largest unit without a remainder."""
    for unit, suffix in ((GIBIBYTE, "g"), (MEBIBYTE, "m"), (1 << 10, "k")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return str(size_bytes)


def _whole(size_bytes: float) -> int:
    """The size rounded down to whole MiB or GiB, but never 0, which means no limit to nginx."""
    unit = GIBIBYTE if size_bytes >= _MANY_GIBIBYTES * GIBIBYTE else MEBIBYTE
    return max(1, int(size_bytes / unit)) * unit


def _min_free_bytes(host: CacheHost, place: DataPath, size_bytes: int) -> int:
    """``min_free``: a twentieth of cache or file system, whichever is smaller.

    It is at most 64 GiB and at most half of the space beyond the cache.
    Shape: whole GiB, or MiB below 1 GiB. 0 if the free space is not known, since the manager
           removes files, even all of them, until ``min_free`` is free.
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
    """``max_size`` in bytes by the disks alone (None: disk not known), and the reason."""
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
    """Bytes that a cache may take of its file system; None if its size is not known.

    The result is at most an equal share among the caches there, and at most the free space plus the
    cache's own files.
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
    return f"the room in {place.path}"


def _may_hold_more(host: CacheHost, place: DataPath, size_bytes: int, *, is_by_keys: bool) -> bool:
    """True if an existing cache without a limit may already hold more than ``size_bytes``.

    The manager would then remove the excess at the next start. Without a scan, all used space of
    the file system may belong to the cache. A cache limited by its keys holds no more than these
    allow; ``with_own_words`` checks the keys.
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
    """Number of caches on the same disks."""
    return max(1, sum(1 for other in host.places if other.leaf_disks == place.leaf_disks))


def _held_bytes(host: CacheHost, place: DataPath) -> int:
    """Bytes in a scanned cache now, as nginx counts them (ngx_file_fs_size); else 0."""
    held = ((d.bytes or 0, d.allocated_bytes or 0) for d in host.facts.datasets
            if d.path == place.path)  # fmt: skip
    return max(next(held, (0, 0)))


def _zone_mebibytes(host: CacheHost, size_bytes: int, each_bytes: float) -> int:
    objects = size_bytes / each_bytes
    wanted = math.ceil(objects / KEYS_PER_MEBIBYTE)
    most = most_zone_mebibytes(host.keys_bytes, len(host.places))
    return max(SMALLEST_ZONE_MEBIBYTES, min(most, wanted))


HEAD_BYTES = 640
"""Bytes before a body: nginx's own 336, ``KEY:`` with the key, the response header. Measured 604
with a key of 30 bytes and an nginx header (tests/generate/test_serving_blocks.py)."""
BLOCK_BYTES = 4096
"""Default block size of ext4, XFS, Btrfs and tmpfs."""
_COUNTED_BY_SECTORS = frozenset({"zfs", "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "vfat"})
SECTOR_BYTES = 512
"""nginx's unit where a file system reports blocks larger than a page (ngx_fs_bsize())."""

SMALLEST_ZONE_MEBIBYTES = 10
LARGEST_ZONE_MEBIBYTES = 65_536
"""The largest zone holds about 460 million keys, which nginx's loader reads in an hour after a
start."""
_UNKNOWN_MEMORY_MEBIBYTES = 4096
"""Largest zone where the memory is not known."""
KEYS_SHARE = 0.5
"""Largest share of the page cache's memory to use for keys instead (chosen, not measured)."""
_SHARE_WITHOUT_A_DISK = 0.1
"""Share of the memory for keys to use if the disks and the number of objects are not known."""


def keys_bytes(memory_bytes: float | None, page_cache_bytes: float | None) -> float | None:
    """Memory for the keys of all caches, in bytes; None where the memory is not known."""
    known = [size for size in (memory_bytes, page_cache_bytes) if size]
    return KEYS_SHARE * min(known) if known else None


def keys_taken_bytes(objects: float) -> float:
    """Bytes that the keys of ``objects`` objects take."""
    return objects / KEYS_PER_MEBIBYTE * MEBIBYTE


def most_zone_mebibytes(keys_bytes: float | None, caches: int) -> int:
    """One cache's fair share of the memory for keys, in MiB."""
    if not keys_bytes:
        return _UNKNOWN_MEMORY_MEBIBYTES
    fair = int(keys_bytes / MEBIBYTE / max(1, caches))
    return max(SMALLEST_ZONE_MEBIBYTES, min(LARGEST_ZONE_MEBIBYTES, fair))


def block_bytes(filesystem: str | None) -> int:
    """Bytes of the blocks in which nginx counts cached files."""
    return SECTOR_BYTES if filesystem in _COUNTED_BY_SECTORS else BLOCK_BYTES


def file_bytes(object_bytes: float | None, block_bytes: int) -> float:
    """Bytes that an object takes in a cache: whole blocks, with its header."""
    return float(math.ceil((HEAD_BYTES + (object_bytes or 0.0)) / block_bytes) * block_bytes)


def scanned_file_bytes(
    files: int, bytes_: int, allocated_bytes: int | None, block_bytes: int = BLOCK_BYTES
) -> float:
    """Mean bytes on disk of scanned cache files: allocated blocks if known, else computed blocks.

    Source: ngx_file_fs_size().
    """
    needed = math.ceil(bytes_ / files / block_bytes) * block_bytes * files
    return max(float(block_bytes), max(bytes_, allocated_bytes or needed) / files)


def keyed_bytes(zone_mebibytes: int, file_bytes: float) -> float:
    """Bytes on disk of the files that a zone has keys for."""
    return zone_mebibytes * KEYS_PER_MEBIBYTE * file_bytes
