"""Cache directories as settings: one ``proxy_cache_path`` each, and keys spread over them (A16)."""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.cache_growth import size_text
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import DataPath, judge_independence
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.units import plural

ID: Final = "per-disk-pools"
KEY: Final = "$scheme$host$request_uri"
"""Of a request as its client sent it. nginx's own key has ``$proxy_host``, the name of the
upstream, and so one page for all hosts that it serves."""
_IN_PLACE_SINCE = (1, 7, 10)
"""``use_temp_path``."""
INACTIVE = "30d"
"""Longer than the disk takes to fill, so that the size bound decides what leaves."""


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
    in_place = s.build.at_least(*_IN_PLACE_SINCE)
    if in_place:
        words.append("use_temp_path=off")
    bounds = s.site.cache_bounds.get(place.path)
    min_free_bytes = bounds.min_free_bytes if bounds is not None else None
    if not min_free_bytes and s.build.version is not None and s.build.at_least(1, 19, 1):
        min_free_bytes = size.min_free_bytes
    if min_free_bytes:
        words.append(f"min_free={size_text(min_free_bytes)}")
    how = "written in place, not copied; " if in_place else ""
    there = files_there(s.facts, s.site, place.path)
    reason = f"{size.why}; {how}{there or 'nginx deletes any other file in here'}"
    return setting(ID, "http", "proxy_cache_path", *words, reason=reason)
