"""Directories and keys of a cache: ``cache-layout``, ``cache-key``."""

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
from nginx_tune.decide.cache_growth import FILE_BYTES_FACT, CacheSize, keys_taken_bytes, size_text
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
    "a cache turns HEAD into GET and fetches the whole object for any range: requests signed over "
    "method or Range (S3) fail"
)
_STARTS = (
    "a restart, unlike a reload, forgets the index of the cache: for a minute or more, until the "
    "loader is done, concurrent requests for the same cached object can fetch it again"
)
"""The risk of a cache right after a start.

Source: ngx_cache_loader_ctx (60 s), ngx_http_file_cache_exists; scenario cache-disks."""
NEW_CACHE_RISKS: Final = (FOREIGN_FILES, _WHOLE, _STARTS)
"""Risks of a new cache, which a change to an existing cache does not have."""
_IN_PLACE_SINCE = (1, 7, 10)
"""First version with ``use_temp_path``."""
UNSEEN_ROOM = "written in place, on an unknown disk"
NO_MAX_SIZE = "ca-no-max-size"
"""The audit rule that a cache without any limit violates."""
INACTIVE = "30d"
"""The value of ``inactive``. It is so long that the size of the cache decides what is removed."""

_LEAST_ROOM_BYTES = 1 << 30
_TURN_FILES = 100
_TURN_SECONDS = 0.05
_THRESHOLD_SECONDS = 0.2
"""Defaults of ``loader_files``, ``_sleep`` and ``_threshold``, and of the manager's.

Source: ngx_http_file_cache_set_slot() in ngx_http_file_cache.c."""
_LOADED_SECONDS = 300.0
_MOST_TURN_FILES = 10_000
_LOADER_SINCE = (1, 1, 0)
_MANAGER_SINCE = (1, 11, 5)
_ROOM = 2.0
"""Ratio of possible removals to the mean rate of new objects, which arrive in bursts."""


def decide_cache_layout(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-layout``: a ``proxy_cache_path`` for each directory, and keys spread over them.

    One cache on each disk, written in place (``use_temp_path=off``) where there is room, replaces a
    RAID whose every large read occupies several disks. ``split_clients`` spreads the keys; adding a
    disk remaps most of them.

    The size of a cache follows from the room on its file system and from the memory for its keys:
    an object without a key is fetched again, however much of the disk is free. The goal is the
    least load on the origin, so keys get the memory that the disk space requires, up to half of the
    memory that would otherwise be page cache (a chosen share, which leaves popular objects in
    memory). Each object counts as whole blocks, with nginx's header before the body: at most 256
    objects of 300 bytes fit in a mebibyte. An assumed object size sets no limit: ``max_size`` is
    then the room on the disk. A directory whose disk is not in the facts gets no ``max_size``, but
    leaves 1 GiB free (``min_free``, nginx 1.19.1).

    After a start nginx's loader reads the directories in turns of ``loader_files``, with a pause of
    ``loader_sleep``: 2,000 files a second. Files it has not read yet do not count, so ``max_size``
    does not hold until it is done. A cache with so many files that this takes longer than five
    minutes gets larger turns, where the disk can use them: nginx ends a turn after
    ``loader_threshold`` (200 ms), in which a hard disk looks up 25 names. The cache manager
    works in such turns too; where a log shows the rate of new objects, ``manager_files`` lets it
    remove twice as many as arrive.
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
        summary=f"{count} caches, with keys spread over them." if several else "One cache.",
        settings=[*paths, *(_split(s) if several else [_single()])],
        evidence=known(
            s.page_cache, s.dataset_bytes, s.object_bytes, _file_bytes(s), *_origins_load(s)
        ),
        confidence="medium",
        flips_when=["the room on the disks changes", "the size of objects changes"],
        next_command=next(iter(hint for _, hint in not_known(s)), ""),
        risks=[
            *NEW_CACHE_RISKS,
            *filter(None, foreign),
            *(["adding a disk remaps most keys"] if several else []),
        ],
    )


def _file_bytes(s: Situation) -> Quantity:
    """Mean bytes of a cached file, on the file system with the smallest blocks."""
    each = min((s.cache_size(place).file_bytes for place in s.data_paths), default=None)
    return Quantity(FILE_BYTES_FACT, each, "bytes", s.object_bytes.provenance)


def _origins_load(s: Situation) -> tuple[Quantity, ...]:
    """Memory for the keys of all objects that fit, and the share of requests for other objects.

    Only requests for objects seen before count, not uncacheable and expired responses.
    """
    sizes = [s.cache_size(place) for place in s.data_paths]
    objects = math.fsum(size.held_bytes / size.file_bytes for size in sizes)
    keys = min(keys_taken_bytes(objects), sum(size.zone_mebibytes for size in sizes) * 2.0**20)
    memory = Quantity("most memory of all keys", keys, "bytes", s.object_bytes.provenance)
    if not s.files.value or s.files.provenance == "assumed":
        return (memory,)
    classes = s.popularity_classes(s.files.value * (s.object_bytes.value or 1.0))
    missed = 1 - hit_ratio(classes, objects)
    fact = "share of requests for objects that do not fit (model)"
    return memory, Quantity(fact, missed, "", s.exponent.provenance)


def not_known(s: Situation) -> list[tuple[str, str]]:
    """Unknown inputs of a cache's size, each with the command that supplies it.

    Empty for kinds without a cache, and for caches with limits in the site file.
    """
    if s.kind != "cache":
        return []
    sizes = [(place.path, s.cache_size(place)) for place in s.data_paths]
    bare = [path for path, size in sizes if size.max_bytes is None]
    unknown = []
    if bare:
        others = f" and {plural(len(bare) - 1, 'other cache')}" if len(bare) > 1 else ""
        text = f"{bare[0]}{others}: no max_size, because the facts lack its disk"
        unknown.append((text, FACTS_COMMAND))
    mean = s.object_bytes
    if mean.provenance == "assumed" and any(p not in s.site.cache_bounds for p, _ in sizes):
        text = f"the size of objects is neither learnt nor declared: {mean.text} is assumed"
        unknown.append((f"{text} for the keys of the cache", LEARN_COMMAND))
    return unknown


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
            reason="spreads the keys; an object is always in the same cache",
            lines=lines,
        ),
        setting("cache-layout", "location", "proxy_cache", "cache_$disk", reason=_why_several(s)),
    ]


def _why_several(s: Situation) -> str:
    judged = judge_independence(s.data_paths)
    if judged.independent:
        return "one cache on each disk instead of RAID"
    return "keys spread over the named directories, which share a disk"


def files_there(facts: Facts, site: Site, path: str) -> str:
    """A warning about files in a directory that is not a cache yet; empty if there are none."""
    files = next((d.files for d in facts.datasets if d.path == path), None)
    if not files or path in site.cache_bounds:
        return ""
    return f"{path} already holds {plural(files, 'file')}: nginx deletes all but cache entries"


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
    warning = files_there(s.facts, s.site, place.path)
    reason = f"{size.why}; {how}{warning or 'nginx deletes any other file in this directory'}"
    if size.max_bytes is None and bounds is None and not min_free_bytes:
        reason = f"nginx-tune: ignore[{NO_MAX_SIZE}] {reason}"
    return setting("cache-layout", "http", "proxy_cache_path", *words, reason=reason)


def _has_room(place: DataPath) -> bool:
    """True if there is room to write responses in place; an unknown file system counts as large.

    On a full file system the response is truncated. With a temporary file elsewhere it is sent
    completely, and only not cached. An existing cache on an unknown disk stays as it is
    (``UNSEEN_ROOM``).
    """
    if place.filesystem in IN_MEMORY:
        return False
    return place.available_bytes is None or place.available_bytes >= _LEAST_ROOM_BYTES


def _in_place_text(place: DataPath) -> str:
    if place.available_bytes is None and not place.leaf_disks:
        return UNSEEN_ROOM
    return "responses are written in place, not copied"


def _turns(s: Situation, place: DataPath, size: CacheSize) -> list[str]:
    """``loader_files`` and ``manager_files`` as arguments, if the default of 100 is too small."""
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
    """Number of files that a cache holds now, or may hold if the size of objects is known."""
    now = next((d.files or 0 for d in s.facts.datasets if d.path == place.path), 0)
    mean = s.object_bytes
    if mean.provenance == "assumed" or not mean.value:
        return float(now)
    return max(float(now), size.held_bytes / size.file_bytes)


def _kept_per_second(s: Situation) -> float:
    """Upper bound of new objects in the cache per second: a log's misses and expired responses."""
    statuses = {} if s.workload.traffic is None else s.workload.traffic.cache_statuses
    fetched = statuses.get("MISS", 0.0) + statuses.get("EXPIRED", 0.0)
    return fetched * (s.rate.value or 0.0)


def _whole_hundreds(files: float) -> int:
    return min(_MOST_TURN_FILES, math.ceil(files / _TURN_FILES) * _TURN_FILES)


KEY: Final = "$scheme$host$request_uri"
"""The cache key of a generated site."""
_KEY_WITH_PORT: Final = "$scheme$host|$http_host|$server_port$request_uri"
"""The key if clients send a port: ``$host`` lacks the port, and HTTP/3 has no ``$http_host``."""
_ENCODED: Final = "|$http_accept_encoding"
KEY_AMONG_OTHERS: Final = (
    "$scheme|$server_name:$server_port|$host|$http_host|$http_x_forwarded_proto"
    "|$http_x_forwarded_host|$proxy_host|$uri$is_args$args|$request_uri" + _ENCODED
)
"""The key if one URL has several responses: by port, by upstream, or in subrequests and redirects.
These keep the ``$request_uri`` of the first request. The decoded
``$uri`` alone is not enough, since some servers distinguish ``%2F`` from a slash. The host in the
request line may differ from that in the header. nginx passes on ``X-Forwarded-*``, from which
servers build redirects and links."""
_VARY_SINCE = (1, 7, 7)
CREDENTIALS: Final = "$http_authorization"


def decide_cache_key(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-key``: the key of a cache entry, and requests that bypass the cache.

    The key contains the host that the client named. nginx's default key has the upstream's name
    instead, so all hosts proxied to it would share one page. The key also contains a port that
    clients name, and the host and scheme that a proxy in front reports, since servers build links
    and redirects from them.

    Responses to requests with credentials are not shared. nginx ignores ``Authorization`` and would
    cache any such response that has ``max-age``, which a shared cache must not do (RFC 9111,
    section 3.5). ``proxy_cache_bypass`` alone would still store it; ``proxy_no_cache`` alone would
    still answer such a request from the cache.

    An upstream that compresses does not always send ``Vary`` (nginx does not without
    ``gzip_vary``), and the cache would send compressed pages to clients that cannot read them. So
    nginx requests uncompressed responses and compresses them itself, where a tenth of the CPUs is
    enough for that; otherwise the key contains the client's ``Accept-Encoding``.
    """
    if s.kind != "cache":
        return not_applicable("cache-key", "Nothing is cached.")
    by_host = "separate pages for each host; the Host header is passed on"
    by_cookie = (
        "a page that differs by cookie is cached for all clients unless the upstream sends "
        "Cache-Control: private or Vary"
    )
    encoded = "uncompressed from the upstream, which may compress without sending Vary"
    own = "a response to a request with credentials is not shared"
    # With gzip nginx caches uncompressed responses; else the key has the client's encodings.
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
        summary="One entry per host and URL; requests with Authorization bypass the cache.",
        settings=[
            setting("cache-key", "location", "proxy_cache_key", key, reason=by_host),
            *plain,
            setting("cache-key", "location", "proxy_cache_bypass", CREDENTIALS, reason=own),
            setting("cache-key", "location", "proxy_no_cache", CREDENTIALS, reason=own),
        ],
        confidence="high",
        flips_when=[
            "pages differ by a cookie or a header that the upstream does not name in Vary",
            "all authenticated clients may see the same page, as with nginx's own auth_basic",
        ],
        risks=[
            by_cookie,
            *([] if s.build.at_least(*_VARY_SINCE) else [f"nginx {s.build.text} ignores Vary"]),
        ],
    )


def names_a_port(site: Site) -> bool:
    """True if URLs of a generated site, and so ``Host`` headers, contain its port."""
    if site.listen == Site().listen:  # with TLS it becomes port 443
        return False
    encrypted = tls_listens(site.listen) if site.tls is not None else []
    return any(
        not has_usual_port(item.split()[0], is_tls=item in encrypted) for item in site.listen
    )


def key_of(site: Site) -> str:
    """The cache key of a generated site, without the client's encodings."""
    return _KEY_WITH_PORT if names_a_port(site) else KEY
