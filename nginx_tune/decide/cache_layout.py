"""Cache directories as settings: one ``proxy_cache_path`` each, and keys spread over them (A16)."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.model_cache_size import (
    KEYS_PER_MEBIBYTE,
    SMALLEST_ZONE_MEBIBYTES,
    keyed_bytes,
    most_zone_mebibytes,
)
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import DataPath
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.units import bytes_text

ID: Final = "per-disk-pools"
GIBIBYTE = 1 << 30
SHARE_OF_DISK = 0.8
"""Of the smallest leaf disk: file-system overhead, a mirror's other half and what else lives
there stay out; the manager removes files late (NGINX-FACTS 13.3)."""
SHARE_OF_FREE = 0.9
"""Of what is free: ``max_size`` is overshot while files are written."""
SMALL_GIBIBYTES = 10
"""``max_size`` where the disk's size is not known: small enough not to fill one."""
LARGEST_GIBIBYTES = 1 << 20
KEY: Final = "$scheme$host$request_uri"
"""Of a request as its client sent it. nginx's own key has ``$proxy_host``, the name of the
upstream, and so one page for all hosts that it serves."""
INACTIVE = "30d"
"""Longer than the disk takes to fill, so that the size bound decides what leaves."""

_MANY_GIBIBYTES = 16
"""From here on a size in whole gibibytes is near enough."""


def cache_settings(s: Situation) -> list[Setting]:
    """The caches, and the choice between them when there are several."""
    several = len(s.data_paths) > 1
    paths = [_cache_path(s, place, number) for number, place in enumerate(s.data_paths, start=1)]
    return [*paths, *(_split(s) if several else [_single()]), _key()]


def _key() -> Setting:
    reason = "each host has pages of its own: the Host header is passed on"
    return setting(ID, "location", "proxy_cache_key", KEY, reason=reason)


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
            KEY,
            "$disk",
            reason="spreads the keys: the same string as the cache key",
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
    by_disk, why = _size_gibibytes(s, place)
    zone = _zone_mebibytes(s, by_disk)
    by_keys = keyed_bytes(zone, s.object_bytes.value) / GIBIBYTE
    size = max(1, int(min(by_disk, by_keys)))
    largest = f"{size}g"
    if by_keys < by_disk:
        # Rounded down: nginx would remove by keys what max_size still has room for.
        largest = f"{size}g" if by_keys > _MANY_GIBIBYTES else f"{int(by_keys * 1024)}m"
        why = (
            f"as much as the keys in {zone}m name, of {bytes_text(s.object_bytes.value or 1.0)} "
            f"each; the disk has room for {by_disk}g"
        )
    words = [
        place.path,
        "levels=1:2",
        f"keys_zone=cache_{number}:{zone}m",
        f"max_size={largest}",
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
    if not leaves and (room := _room_bytes(s, place)) is not None:
        return max(1, int(room / GIBIBYTE)), f"what {place.path} has room for"
    if not leaves:
        return SMALL_GIBIBYTES, "the disk's size is not known, so a small bound"
    sharing = Counter(name for other in s.data_paths for name in other.leaf_disks)
    sharers = max(sharing[name] for name in place.leaf_disks)
    usable = int(SHARE_OF_DISK * min(leaves) / sharers / GIBIBYTE)
    size = max(1, min(LARGEST_GIBIBYTES, usable))
    room = _room_bytes(s, place)
    if room is not None and room < size * GIBIBYTE:
        return max(1, int(room / GIBIBYTE)), f"what {place.path} has room for"
    return size, f"{SHARE_OF_DISK:.0%} of {bytes_text(min(leaves) / sharers)}"


def _room_bytes(s: Situation, place: DataPath) -> float | None:
    """What a cache may take of its file system; null when that was not looked at.

    The share of all of it that is left to caches on it, and no more than what is free or taken
    by the cache already.
    """
    if place.size_bytes is None:
        return None
    sharers = sum(1 for other in s.data_paths if other.leaf_disks == place.leaf_disks)
    room = SHARE_OF_DISK * place.size_bytes / max(1, sharers)
    held = next((d.bytes or 0 for d in s.facts.datasets if d.path == place.path), 0)
    if place.available_bytes is None:
        return room
    return min(room, SHARE_OF_FREE * place.available_bytes / max(1, sharers) + held)


def _zone_mebibytes(s: Situation, size_gibibytes: int) -> int:
    objects = size_gibibytes * GIBIBYTE / max(1.0, s.object_bytes.value or 1.0)
    wanted = math.ceil(objects / KEYS_PER_MEBIBYTE)
    most = most_zone_mebibytes(s.memory_bytes, len(s.data_paths))
    return max(SMALLEST_ZONE_MEBIBYTES, min(most, wanted))
