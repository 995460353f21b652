"""Cache directories as settings: one ``proxy_cache_path`` each, and keys spread over them (A16)."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import DataPath
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.units import bytes_text

ID: Final = "per-disk-pools"
GIBIBYTE = 1 << 30
SHARE_OF_DISK = 0.8
"""Of the smallest leaf disk: file-system overhead, a mirror's other half and what else lives
there stay out; the manager removes files late (NGINX-FACTS 13.3)."""
SMALL_GIBIBYTES = 10
"""``max_size`` where the disk's size is not known: small enough not to fill one."""
LARGEST_GIBIBYTES = 1 << 20
KEYS_PER_MEBIBYTE = 7000
"""Source: NGINX-FACTS 13.1, 7083 keys left in a zone of 1m after the manager's cut."""
SMALLEST_ZONE_MEBIBYTES = 10
LARGEST_ZONE_MEBIBYTES = 1024
MEMORY_SHARE = 0.05
INACTIVE = "30d"
"""Longer than the disk takes to fill, so that the size bound decides what leaves."""


def cache_settings(s: Situation) -> list[Setting]:
    """The caches, and the choice between them when there are several."""
    several = len(s.data_paths) > 1
    paths = [_cache_path(s, place, number) for number, place in enumerate(s.data_paths, start=1)]
    return [*paths, *(_split(s) if several else [_single()])]


def _single() -> Setting:
    return setting(ID, "location", "proxy_cache", "cache_1", reason="the one cache")


def _split(s: Situation) -> list[Setting]:
    count = len(s.data_paths)
    share = f"{int(1000 / count) / 10:g}%"
    lines = [[share, str(n)] for n in range(1, count)] + [["*", str(count)]]
    return [
        setting(
            ID,
            "http",
            "split_clients",
            "$request_uri",
            "$disk",
            reason="spreads the keys; $request_uri is part of the cache key",
            lines=lines,
        ),
        setting(
            ID,
            "location",
            "proxy_cache",
            "cache_$disk",
            reason="one cache on each disk instead of RAID",
        ),
    ]


def _cache_path(s: Situation, place: DataPath, number: int) -> Setting:
    size, why = _size_gibibytes(s, place)
    words = [
        place.path,
        "levels=1:2",
        f"keys_zone=cache_{number}:{_zone_mebibytes(s, size)}m",
        f"max_size={size}g",
        f"inactive={INACTIVE}",
        "use_temp_path=off",
    ]
    if s.build.version is not None and s.build.at_least(1, 19, 1):
        words.append(f"min_free={max(1, min(64, size // 20))}g")
    reason = f"{why}; written in place, not copied; nginx deletes any other file in here"
    return setting(ID, "http", "proxy_cache_path", *words, reason=reason)


def _size_gibibytes(s: Situation, place: DataPath) -> tuple[int, str]:
    sizes = {d.name: d.size_bytes for d in s.facts.storage.disks if d.size_bytes}
    leaves = [sizes[name] for name in place.leaf_disks if name in sizes]
    if not leaves:
        return SMALL_GIBIBYTES, "the disk's size is not known, so a small bound"
    sharing = Counter(name for other in s.data_paths for name in other.leaf_disks)
    sharers = max(sharing[name] for name in place.leaf_disks)
    usable = int(SHARE_OF_DISK * min(leaves) / sharers / GIBIBYTE)
    size = max(1, min(LARGEST_GIBIBYTES, usable))
    return size, f"{SHARE_OF_DISK:.0%} of {bytes_text(min(leaves) / sharers)}"


def _zone_mebibytes(s: Situation, size_gibibytes: int) -> int:
    objects = size_gibibytes * GIBIBYTE / max(1.0, s.object_bytes.value or 1.0)
    wanted = math.ceil(objects / KEYS_PER_MEBIBYTE)
    memory = s.facts.memory.cgroup_limit_bytes or s.facts.memory.total_bytes
    most = LARGEST_ZONE_MEBIBYTES
    if memory:
        most = min(most, int(MEMORY_SHARE * memory / (1 << 20) / len(s.data_paths)))
    return max(SMALLEST_ZONE_MEBIBYTES, min(most, wanted))
