"""``cache-layout``: a ``proxy_cache_path`` for each directory, and keys spread over them.

Each on a disk of its own, written in place (``use_temp_path=off``) where that has room, instead of
a RAID of which every read of a large file takes several disks; ``split_clients`` spreads the keys,
and adding a disk remaps most of them. How large a cache may grow follows from the file system's
room and from the memory for its keys. Each object counts as the whole blocks of its file, with
nginx's head before the body: of objects of 300 bytes no more than 256 are in a mebibyte.

After a start nginx's loader walks the directories, no more than ``loader_files`` of a cache in a
turn and a turn each ``loader_sleep``: 2,000 files a second. What it has not seen counts for
nothing, so that ``max_size`` is not kept until it is through. A cache that may hold so many files
that this takes longer than five minutes gets longer turns, where the disk can use them: nginx ends
one after ``loader_threshold`` (200 ms), in which a hard disk looks up 25 names. The manager's turns
are as long, and remove as many as are kept where a log shows how many that are.
"""

from __future__ import annotations

import math
from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.cache_growth import FILE_BYTES, CacheSize, size_text
from nginx_tune.decide.cache_key import KEY
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import IN_MEMORY, DataPath, judge_independence
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.units import plural

ID: Final = "cache-layout"
FOREIGN_FILES = "a cache directory must hold nothing else: nginx deletes files it does not know"
_WHOLE = (
    "a cache asks for HEAD as GET, and for all of an object whatever range is wanted: requests "
    "with a signature over method or Range (S3) fail"
)
_STARTS = (
    "a start, unlike a reload, forgets what a cache holds: for a minute, and until the loader has "
    "been through, a page that is asked for again while it is first opened is fetched anew"
)
"""Source: ngx_cache_loader_ctx (60 s), ngx_http_file_cache_exists; scenario cache-disks."""
_IN_PLACE_SINCE = (1, 7, 10)
"""``use_temp_path``."""
INACTIVE = "30d"
"""Longer than the disk takes to fill, so that the size bound decides what leaves."""


_LEAST_ROOM_BYTES = 1 << 30
_TURN_FILES = 100
_TURN_SECONDS = 0.05
_THRESHOLD_SECONDS = 0.2
"""``loader_files``, ``_sleep`` and ``_threshold``, and the manager's; ngx_http_file_cache.c,
ngx_http_file_cache_set_slot()."""
_LOADED_SECONDS = 300.0
_MOST_TURN_FILES = 10_000
_LOADER_SINCE = (1, 1, 0)
_MANAGER_SINCE = (1, 11, 5)
_ROOM = 2.0
"""Over what is removed on average: pages come in bursts."""


def decide_cache_layout(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind != "cache":
        return not_applicable(ID, "Nothing is cached.")
    count = len(s.data_paths)
    several = count > 1
    paths = [_cache_path(s, place, number) for number, place in enumerate(s.data_paths, start=1)]
    foreign = (files_there(s.facts, s.site, place.path) for place in s.data_paths)
    return Decision(
        id=ID,
        verdict="set",
        summary=f"{count} caches, and the keys spread over them." if several else "One cache.",
        settings=[*paths, *(_split(s) if several else [_single()])],
        evidence=known(s.page_cache, s.dataset_bytes, s.object_bytes, _file_bytes(s)),
        confidence="medium",
        flips_when=["the disks have more room or less", "objects are of another size"],
        risks=[
            FOREIGN_FILES,
            _WHOLE,
            _STARTS,
            *filter(None, foreign),
            *(["adding a disk remaps most keys"] if several else []),
        ],
    )


def _file_bytes(s: Situation) -> Quantity:
    """Of an object, on the file system with the smallest blocks."""
    each = min((s.cache_size(place).file_bytes for place in s.data_paths), default=None)
    return Quantity(FILE_BYTES, each, "bytes", s.object_bytes.provenance)


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
            reason="spreads the keys: a page is always in the same cache",
            lines=lines,
        ),
        setting(
            ID,
            "location",
            "proxy_cache",
            "cache_$disk",
            reason=_why_several(s),
        ),
    ]


def _why_several(s: Situation) -> str:
    judged = judge_independence(s.data_paths)
    if judged.independent:
        return "one cache on each disk instead of RAID"
    return "the keys are spread over the directories as named; they share a disk"


def files_there(facts: Facts, site: Site, path: str) -> str:
    """A warning of what lies already in a directory that no configuration names as a cache's."""
    held = next((d.files for d in facts.datasets if d.path == path), None)
    if not held or path in site.cache_bounds:
        return ""
    return f"{plural(held, 'file')} in {path} already: nginx deletes each that is none of its cache"


def _cache_path(s: Situation, place: DataPath, number: int) -> Setting:
    size = s.cache_size(place)
    words = [
        place.path,
        "levels=1:2",
        f"keys_zone=cache_{number}:{size.zone_mebibytes}m",
        f"max_size={size_text(size.max_bytes)}",
        f"inactive={INACTIVE}",
    ]
    in_place = s.build.at_least(*_IN_PLACE_SINCE) and _has_room(s, place)
    if in_place:
        words.append("use_temp_path=off")
    bounds = s.site.cache_bounds.get(place.path)
    min_free_bytes = bounds.min_free_bytes if bounds is not None else None
    if not min_free_bytes and s.build.version is not None and s.build.at_least(1, 19, 1):
        min_free_bytes = size.min_free_bytes
    if min_free_bytes:
        words.append(f"min_free={size_text(min_free_bytes)}")
    words += _turns(s, place, size)
    how = "written in place, not copied; " if in_place else ""
    there = files_there(s.facts, s.site, place.path)
    reason = f"{size.why}; {how}{there or 'nginx deletes any other file in here'}"
    return setting(ID, "http", "proxy_cache_path", *words, reason=reason)


def _has_room(s: Situation, place: DataPath) -> bool:
    """Whether an answer that is written there is not cut off by a full file system.

    With a temporary file elsewhere it is sent whole, and only not kept. What is not known counts
    as large for a cache that is to come, and as small for one that stands.
    """
    if place.filesystem in IN_MEMORY:
        return False
    if place.available_bytes is None:
        return bool(place.leaf_disks) or place.path not in s.site.cache_bounds
    return place.available_bytes >= _LEAST_ROOM_BYTES


def _turns(s: Situation, place: DataPath, size: CacheSize) -> list[str]:
    """How many files the loader and the manager may take in a turn, where 100 are too few."""
    words = []
    files = _files(s, place, size)
    wanted = files * _TURN_SECONDS / _LOADED_SECONDS
    looks_up_in_time = s.disk.latency_seconds * _TURN_FILES < _THRESHOLD_SECONDS
    if wanted > _TURN_FILES and looks_up_in_time and s.build.at_least(*_LOADER_SINCE):
        words.append(f"loader_files={_whole_hundreds(wanted)}")
    removed = _kept_per_second(s) / len(s.data_paths) * _TURN_SECONDS * _ROOM
    if removed > _TURN_FILES and s.build.at_least(*_MANAGER_SINCE):
        words.append(f"manager_files={_whole_hundreds(removed)}")
    return words


def _files(s: Situation, place: DataPath, size: CacheSize) -> float:
    """Files that a cache may hold, by a size of objects that somebody knows, or holds now."""
    now = next((d.files or 0 for d in s.facts.datasets if d.path == place.path), 0)
    mean = s.object_bytes
    if mean.provenance == "assumed" or not mean.value:
        return float(now)
    return max(float(now), size.held_bytes / size.file_bytes)


def _kept_per_second(s: Situation) -> float:
    """Pages that are fetched and kept a second, at most: what a log shows as misses and expired."""
    statuses = {} if s.workload.traffic is None else s.workload.traffic.cache_statuses
    fetched = statuses.get("MISS", 0.0) + statuses.get("EXPIRED", 0.0)
    return fetched * (s.rate.value or 0.0)


def _whole_hundreds(files: float) -> int:
    return min(_MOST_TURN_FILES, math.ceil(files / _TURN_FILES) * _TURN_FILES)
