"""The directories and the keys of a cache: ``cache-layout``, ``cache-key``."""

from __future__ import annotations

import math
from typing import Final

from nginx_tune.conf.listeners import has_usual_port
from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    LEARN_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
)
from nginx_tune.decide.cache_growth import (
    FILE_BYTES_FACT,
    CacheSize,
    keys_taken_bytes,
    size_text,
)
from nginx_tune.decide.model.cache import hit_ratio
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import DataPath, judge_independence
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_storage import IN_MEMORY
from nginx_tune.documents.site import Site, tls_listens
from nginx_tune.documents.units import plural

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
UNSEEN_ROOM = "written in place, not copied, on a disk that nobody looked at"
NO_MAX_SIZE = "ca-no-max-size"
"""The audit's rule that a cache without any bound goes against."""
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
    """``cache-layout``: a ``proxy_cache_path`` for each directory, and keys spread over them.

    Each on a disk of its own, written in place (``use_temp_path=off``) where that has room, instead
    of a RAID of which every read of a large file takes several disks; ``split_clients`` spreads the
    keys, and adding a disk remaps most of them.

    How large a cache may grow follows from the file system's room and from the memory for its keys:
    an object without a key is fetched anew, however much of the disk is free. Keys, page cache and
    disks share the machine, and the origin's load is to be least, so keys get what the room asks
    for, up to half of the memory that would be page cache; what no object needs stays page cache.
    Each object counts as the whole blocks of its file, with nginx's head before the body: of
    objects of 300 bytes no more than 256 are in a mebibyte. An assumed size of objects makes no
    bound: ``max_size`` is then what the disk has room for. A directory that the facts have no disk
    for gets none, but leaves 1 GiB of its disk free (``min_free``, nginx 1.19.1).

    After a start nginx's loader walks the directories, no more than ``loader_files`` of a cache in
    a turn and a turn each ``loader_sleep``: 2,000 files a second. What it has not seen counts for
    nothing, so that ``max_size`` is not kept until it is through. A cache that may hold so many
    files that this takes longer than five minutes gets longer turns, where the disk can use them:
    nginx ends one after ``loader_threshold`` (200 ms), in which a hard disk looks up 25 names. The
    manager's turns are as long, and remove as many as are kept where a log shows how many that are.
    """
    if s.kind != "cache":
        return not_applicable("cache-layout", "Nothing is cached.")
    count = len(s.data_paths)
    several = count > 1
    paths = [_cache_path(s, place, number) for number, place in enumerate(s.data_paths, start=1)]
    foreign = (files_there(s.facts, s.site, place.path) for place in s.data_paths)
    return Decision(
        id="cache-layout",
        verdict="set",
        summary=f"{count} caches, and the keys spread over them." if several else "One cache.",
        settings=[*paths, *(_split(s) if several else [_single()])],
        evidence=known(
            s.page_cache, s.dataset_bytes, s.object_bytes, _file_bytes(s), *_origins_load(s)
        ),
        confidence="medium",
        flips_when=["the disks have more room or less", "objects are of another size"],
        next_command=next(iter(hint for _, hint in not_known(s)), ""),
        risks=[
            FOREIGN_FILES,
            _WHOLE,
            _STARTS,
            *filter(None, foreign),
            *(["adding a disk remaps most keys"] if several else []),
        ],
    )


def _file_bytes(s: Situation) -> Quantity:
    """Bytes of an object, on the file system with the smallest blocks."""
    each = min((s.cache_size(place).file_bytes for place in s.data_paths), default=None)
    return Quantity(FILE_BYTES_FACT, each, "bytes", s.object_bytes.provenance)


def _origins_load(s: Situation) -> tuple[Quantity, ...]:
    """The memory of all keys when every object that fits has one, and what the origin gets then.

    Of objects that are asked for again; what may not be kept, or has expired, comes on top.
    """
    sizes = [s.cache_size(place) for place in s.data_paths]
    objects = math.fsum(size.held_bytes / size.file_bytes for size in sizes)
    keys = min(keys_taken_bytes(objects), sum(size.zone_mebibytes for size in sizes) * 2.0**20)
    memory = Quantity("most memory of all keys", keys, "bytes", s.object_bytes.provenance)
    if not s.files.value or s.files.provenance == "assumed":
        return (memory,)
    classes = s.popularity_classes(s.files.value * (s.object_bytes.value or 1.0))
    missed = 1 - hit_ratio(classes, objects)
    said = "share of requests for objects that there is no room for (model)"
    return memory, Quantity(said, missed, "", s.exponent.provenance)


def not_known(s: Situation) -> list[tuple[str, str]]:
    """What a cache's size is a guess without, each with the command that brings it.

    Empty for other kinds, and for caches that the site bounds.
    """
    if s.kind != "cache":
        return []
    sizes = [(place.path, s.cache_size(place)) for place in s.data_paths]
    bare = [path for path, size in sizes if size.max_bytes is None]
    said = []
    if bare:
        others = f" and {plural(len(bare) - 1, 'other cache')}" if len(bare) > 1 else ""
        text = f"{bare[0]}{others}: not known, the facts have no disk for it: no max_size"
        said.append((text, FACTS_COMMAND))
    mean = s.object_bytes
    if mean.provenance == "assumed" and any(p not in s.site.cache_bounds for p, _ in sizes):
        text = f"the size of objects is neither learnt nor declared: {mean.text} is assumed"
        said.append((f"{text} for the keys of the cache", LEARN_COMMAND))
    return said


def _single() -> Setting:
    return setting("cache-layout", "location", "proxy_cache", "cache_1", reason="the one cache")


def _split(s: Situation) -> list[Setting]:
    count = len(s.data_paths)
    share = f"{int(1000 / count) / 10:g}%"
    lines = [[share, str(n)] for n in range(1, count)] + [["*", str(count)]]
    return [
        setting(
            "cache-layout",
            "http",
            "split_clients",
            KEY,
            "$disk",
            reason="spreads the keys: a page is always in the same cache",
            lines=lines,
        ),
        setting(
            "cache-layout",
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
        *([] if size.max_bytes is None else [f"max_size={size_text(size.max_bytes)}"]),
        f"inactive={INACTIVE}",
    ]
    in_place = s.build.at_least(*_IN_PLACE_SINCE) and _has_room(place)
    if in_place:
        words.append("use_temp_path=off")
    bounds = s.site.cache_bounds.get(place.path)
    min_free_bytes = bounds.min_free_bytes if bounds is not None else None
    if not min_free_bytes and s.build.version is not None and s.build.at_least(1, 19, 1):
        min_free_bytes = size.min_free_bytes
        if size.max_bytes is None and bounds is None:
            min_free_bytes = _LEAST_ROOM_BYTES
    if min_free_bytes:
        words.append(f"min_free={size_text(min_free_bytes)}")
    words += _turns(s, place, size)
    how = f"{_in_place_text(place)}; " if in_place else ""
    there = files_there(s.facts, s.site, place.path)
    reason = f"{size.why}; {how}{there or 'nginx deletes any other file in here'}"
    if size.max_bytes is None and bounds is None and not min_free_bytes:
        reason = f"nginx-tune: ignore[{NO_MAX_SIZE}] {reason}"
    return setting("cache-layout", "http", "proxy_cache_path", *words, reason=reason)


def _has_room(place: DataPath) -> bool:
    """True if an answer that is written there is not cut off by a full file system.

    With a temporary file elsewhere it is sent whole, and only not kept. What is not known counts as
    large; a cache that stands is left as it is there (``UNSEEN_ROOM``).
    """
    if place.filesystem in IN_MEMORY:
        return False
    return place.available_bytes is None or place.available_bytes >= _LEAST_ROOM_BYTES


def _in_place_text(place: DataPath) -> str:
    if place.available_bytes is None and not place.leaf_disks:
        return UNSEEN_ROOM
    return "written in place, not copied"


def _turns(s: Situation, place: DataPath, size: CacheSize) -> list[str]:
    """Files that the loader and the manager may take in a turn, where 100 are too few."""
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


KEY: Final = "$scheme$host$request_uri"
"""The key of a request as its client sent it."""
_KEY_WITH_PORT: Final = "$scheme$host|$http_host|$server_port$request_uri"
"""The same where clients name a port: ``$host`` has none, and over HTTP/3 there is no
``$http_host``."""
_ENCODED: Final = "|$http_accept_encoding"
KEY_AMONG_OTHERS: Final = (
    "$scheme|$server_name:$server_port|$host|$http_host|$http_x_forwarded_proto"
    "|$http_x_forwarded_host|$proxy_host|$uri$is_args$args|$request_uri" + _ENCODED
)
"""The same in a configuration that answers one address in several ways: on other ports, by other
upstreams, by pages put together or led elsewhere, whose requests have the ``$request_uri`` of the
first. An address alone, as it was decoded, is none: ``%2F`` is no slash to every server. The host
of the request line need not be that of the header, and what a client or a proxy in front says of
both (``X-Forwarded-*``) nginx passes on as it is: servers make redirects and links of it."""
_VARY_SINCE = (1, 7, 7)
CREDENTIALS: Final = "$http_authorization"


def decide_cache_key(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-key``: what tells a cache's entries apart, and which answers are for nobody else.

    The key holds the host as the client named it: nginx's own has the name of the upstream, and one
    page for all hosts that pass requests to it. A port that clients name is in it too, and what a
    proxy in front tells of host and scheme, since servers make links and redirects of them.

    Who shows a password or a token gets an answer of his own: nginx does not look at
    ``Authorization``, and would keep what comes with ``max-age`` for all, which a shared cache must
    not (RFC 9111, section 3.5). ``proxy_cache_bypass`` alone would still keep it,
    ``proxy_no_cache`` alone would answer such a request from what others got.

    A server that compresses its answers, as nginx does without ``gzip_vary``, does not always say
    that others would get another one: the cache would give them what they cannot read. So it is
    asked for plain answers where nginx compresses by itself, which a tenth of the CPUs must be
    enough for, or each kind of client has an entry of its own.
    """
    if s.kind != "cache":
        return not_applicable("cache-key", "Nothing is cached.")
    by_host = "each host has pages of its own: the Host header is passed on"
    by_cookie = (
        "a page that differs by a cookie is kept for all if its server lets it be: "
        "Cache-Control: private, or Vary, must come from there"
    )
    encoded = "a server that compresses may say no Vary: one answer for all who take it"
    own = "the answer to who shows a password or a token is for nobody else"
    # nginx compresses by itself what it keeps as it is; else each kind of client has an entry.
    key, plain = f"{key_of(s.site)}{_ENCODED}", []
    if s.site.gzip:
        key = key_of(s.site)
        plain = [
            setting(
                "cache-key", "location", "proxy_set_header", "Accept-Encoding", "", reason=encoded
            )
        ]
    return Decision(
        id="cache-key",
        verdict="set",
        summary="A page for each host and address; none for requests with Authorization.",
        settings=[
            setting("cache-key", "location", "proxy_cache_key", key, reason=by_host),
            *plain,
            setting("cache-key", "location", "proxy_cache_bypass", CREDENTIALS, reason=own),
            setting("cache-key", "location", "proxy_no_cache", CREDENTIALS, reason=own),
        ],
        confidence="high",
        flips_when=[
            "pages differ by a cookie or a header that their server does not name in Vary",
            "all who show credentials may see the same, as where nginx itself asks (auth_basic)",
        ],
        risks=[
            by_cookie,
            *([] if s.build.at_least(*_VARY_SINCE) else [f"nginx {s.build.text} ignores Vary"]),
        ],
    )


def names_a_port(site: Site) -> bool:
    """True if clients of a generated site have its port in their URLs, so in their ``Host``."""
    if site.listen == Site().listen:  # with TLS it becomes that of TLS
        return False
    encrypted = tls_listens(site.listen) if site.tls is not None else []
    return any(
        not has_usual_port(item.split()[0], is_tls=item in encrypted) for item in site.listen
    )


def key_of(site: Site) -> str:
    """The key of a generated site's cache, before what else an answer depends on."""
    return _KEY_WITH_PORT if names_a_port(site) else KEY
