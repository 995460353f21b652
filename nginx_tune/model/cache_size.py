"""What a cache can hold by its keys: every object has one in shared memory, or is not in the cache.

nginx's manager removes objects, the least recently used first, when the zone of keys is full,
whatever ``max_size`` allows: disk that no key is left for stays empty.

Source: ngx_http_file_cache_add() and ngx_http_file_cache_manager() in ngx_http_file_cache.c.
"""

from __future__ import annotations

from nginx_tune.conf.caches import KEYS_PER_MEBIBYTE

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


def keyed_bytes(zone_mebibytes: int, object_bytes: float | None) -> float:
    """What the objects that a zone has keys for take on the disk."""
    return zone_mebibytes * KEYS_PER_MEBIBYTE * max(1.0, object_bytes or 1.0)
