"""Fetches of a cache from its upstream: ``cache-misses``, ``cache-updates``, ``slice``."""

import math
from itertools import pairwise
from typing import Final

from nginx_tune.decide.answer import (
    LEARN_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    version_evidence,
)
from nginx_tune.decide.cache_layout import key_of
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text

_FEW_MISSES = 0.01
"""Share of misses below which waits for a lock stay out of the 99th percentile."""
_SEGMENT_BYTES = 4 << 20
"""The mean size of objects whose fetch at 64 Mbit/s takes half a second. nginx checks the lock
again after that time."""
_LONGEST_BYTES = 10 * _SEGMENT_BYTES
"""The largest 99th percentile of sizes at which a fetch ends before ``proxy_cache_lock_timeout`` (5
s). Requests for a larger object wait 5 s and fetch it all the same."""
_ONCE = 1.5
"""Mean requests per object up to which the objects of a group count as requested once."""
_MOSTLY_ONCE = 0.5
"""The share of all bytes in objects requested about once from which it pays to keep such objects
out of the cache."""


def decide_cache_misses(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-misses``: concurrent requests for an object that is not in the cache.

    With ``proxy_cache_lock`` one request fetches the object while the others wait. They check every
    half second; where the response cannot be cached they are let through one by one, for up to five
    seconds. Measured on nginx 1.22.1 with 40 concurrent requests for a page that takes the upstream
    20 ms (benchmarks/cache_lock.py): 33 ms without the lock, 0.5 s with it, and 5.0 s where the
    response is ``Cache-Control: private``.

    The lock is set where a log shows so few misses that hardly a request can wait. It is also set
    where it helps most: for live files, which all viewers request as soon as they exist
    (``[site] live_files``), and for segments of 4 to 40 MiB, whose fetch takes as long as the wait.
    Elsewhere it is proposed, since no host shows which responses can be cached.

    ``proxy_cache_min_uses 2`` keeps objects requested once out of the cache, and fetches all
    others a second time. It is proposed where a log shows that most bytes are requested once and
    that the cache is too small for all of them.

    Source: ngx_http_file_cache_lock() and ngx_http_file_cache_lock_wait() in ngx_http_file_cache.c.
    """
    if s.kind != "cache":
        return not_applicable("cache-misses", "Nothing is cached.")
    misses, once = miss_share(s), once_share(s)
    reason = "one request fetches a missing object, the others wait"
    lock = setting("cache-misses", "location", "proxy_cache_lock", "on", reason=reason)
    evidence = known(
        Quantity("share of cached requests that miss", misses, "", "learnt"),
        Quantity("share of the bytes that are requested once", once, "", "learnt"),
    )
    is_mostly_once = once is not None and once >= _MOSTLY_ONCE and _outgrows(s)
    once_text = f"{percent_text(once, 2)} of the bytes are requested once"
    helps = _why_lock(s, misses)
    if helps:
        return Decision(
            id="cache-misses",
            verdict="enable",
            summary=f"One request fetches a missing object: {helps}.",
            settings=[lock],
            evidence=evidence,
            confidence="medium",
            flips_when=[
                "more requests miss, or responses cannot be cached",
                *([f"proxy_cache_min_uses 2: {once_text}"] if is_mostly_once else []),
            ],
            risks=["concurrent requests for a response that cannot be cached wait up to 5 s each"],
        )
    uses = setting("cache-misses", "location", "proxy_cache_min_uses", "2", reason=once_text)
    return Decision(
        id="cache-misses",
        verdict="not_enough_evidence",
        summary="No lock: if a response cannot be cached, the lock lets concurrent requests "
        "through one by one, each up to 5 s late.",
        proposed=[lock, *([uses] if is_mostly_once else [])],
        evidence=evidence,
        confidence="low",
        flips_when=[
            "a log shows that at most one in a hundred requests misses",
            "[site] live_files names files that all viewers request as soon as they exist",
        ],
        next_command=LEARN_COMMAND,
    )


def _why_lock(s: Situation, misses: float | None) -> str:
    """The reason why requests should wait for one fetch; empty if that may not pay."""
    if misses is not None and misses <= _FEW_MISSES:
        return f"{percent_text(misses, 2)} miss"
    if s.site.live_files:
        return "all viewers request a live file as soon as it exists"
    sizes = s.workload.sizes
    mean, long = sizes.mean_bytes or 0.0, sizes.p99_bytes
    is_known = sizes.provenance != "assumed" and long is not None and long <= _LONGEST_BYTES
    if is_known and mean >= _SEGMENT_BYTES:
        return f"fetching a segment of {bytes_text(mean)} takes about as long as the wait"
    return ""


def miss_share(s: Situation) -> float | None:
    """Share of cached requests that miss; None without a log. Bypassing requests do not count."""
    statuses = {} if s.workload.traffic is None else s.workload.traffic.cache_statuses
    asked = sum(share for name, share in statuses.items() if name not in ("none", "BYPASS"))
    return statuses.get("MISS", 0.0) / asked if asked > 0 else None


def once_share(s: Situation) -> float | None:
    """Share of all bytes in objects that were requested about once; None without a log.

    A segment of the popularity curve counts if its objects, assumed to be of mean size, have few
    requests each.
    """
    curve, log, data = s.workload.popularity.curve, s.workload.log, s.workload.dataset
    if not curve or log is None or not data.files or not data.bytes:
        return None
    mean = data.bytes / data.files
    once = 0.0
    for before, after in pairwise([(0.0, 0), *((p.requests_ratio, p.bytes) for p in curve)]):
        requests = (after[0] - before[0]) * log.requests
        objects = (after[1] - before[1]) / mean
        if objects > 0 and requests <= _ONCE * objects:
            once += after[1] - before[1]
    return min(1.0, once / data.bytes)


def _outgrows(s: Situation) -> bool:
    """True if the requested objects do not all fit into the caches."""
    requested = s.workload.dataset.bytes
    room = sum(s.cache_size(place).object_bytes for place in s.data_paths)
    return requested is not None and requested > room


_OLD = "while the upstream does not answer, expired pages are served, up to the time of inactive="
_REVALIDATE_SINCE = (1, 5, 7)


def decide_cache_updates(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-updates``: refreshing expired pages.

    While one request fetches an expired page all others get the old one (``proxy_cache_use_stale
    updating``). The upstream is asked only whether the page has changed
    (``proxy_cache_revalidate``); an unchanged page is neither sent nor written again. When the
    upstream does not answer, an old page is better than none.

    ``proxy_cache_background_update`` would answer the first request from the expired page too,
    however old that is: up to a month with ``inactive=30d``. So it is not written. If
    ``proxy_cache_use_stale`` lacks ``updating``, an upstream can allow this for single pages and a
    limited time (``stale-while-revalidate``, RFC 5861).

    Source: ngx_http_upstream_cache() in ngx_http_upstream.c.
    """
    if s.kind != "cache":
        return not_applicable("cache-updates", "Nothing is cached.")
    stale = "serves the old page while a new one is fetched, or the upstream does not answer"
    same = "fetches an expired page only if it has changed"
    revalidates = s.build.at_least(*_REVALIDATE_SINCE)
    return Decision(
        id="cache-updates",
        verdict="set",
        summary="While an expired page is being fetched, or the upstream does not answer, clients "
        "get the old one.",
        settings=[
            setting(
                "cache-updates",
                "location",
                "proxy_cache_use_stale",
                *("error", "timeout", "updating"),
                reason=stale,
            ),
            *(
                [setting("cache-updates", "location", "proxy_cache_revalidate", "on", reason=same)]
                if revalidates
                else []
            ),
        ],
        evidence=[version_evidence(s.build)],
        confidence="medium",
        flips_when=["pages of any age may be served once: proxy_cache_background_update on"],
        risks=[_OLD],
    )


SMALLEST_SLICE_BYTES = 1 << 20
"""Smallest slice; smaller ones would open a cache file for every few packets."""
LARGEST_SLICE_BYTES = 16 << 20
SLICES_OF_AN_ANSWER = 8
"""Slices of a mean response, roughly."""
_PART_TAKEN = 0.5
"""If clients take more than this share of an object, fetching all of it is better."""
_RANGES = 0.05
"""Share of range requests below which a new cache key does not pay."""
_LARGE_BYTES = 4 * SMALLEST_SLICE_BYTES
_SLICE_MODULE = "--with-http_slice_module"
ASK_COMMAND: Final = "curl -s -r 0-0 -D - -o /dev/null http://UPSTREAM/OBJECT  # 206 and an ETag?"


def decide_slice(s: Situation, _plan: PoolPlan) -> Decision:
    """``slice``: caching parts of large objects instead of whole ones.

    A cache answers a range from the whole object: nginx removes ``Range`` from the request to the
    upstream and fetches everything, so a client that asks for the end waits for all before it. With
    ``slice`` each part has its own request and cache entry (``$slice_range`` in the key). This pays
    where a log shows range requests that take parts of large objects.

    It is proposed, never written. The upstream must answer ranges, and an object that changes while
    its parts are fetched ends in a truncated response (its ETag differs from the first part's); no
    host shows either. All that the cache holds under the current key is fetched again.

    Each slice adds a round trip, a file and a key; a large one fetches bytes that nobody requested
    at both ends of a range. With slices of an eighth of a response these are one part in nine.

    Source: ngx_http_slice_header_filter() in ngx_http_slice_filter_module.c.
    """
    if s.kind != "cache":
        return not_applicable("slice", "Nothing is cached.")
    if not s.build.at_least(1, 9, 8) or s.build.lacks(_SLICE_MODULE):
        return not_applicable(
            "slice",
            f"nginx {s.build.text} has no slice module.",
            evidence=[version_evidence(s.build)],
            flips=f"nginx is 1.9.8 or newer and built {_SLICE_MODULE}",
        )
    sizes = s.workload.sizes
    evidence = known(
        s.object_bytes,
        Quantity("workload.sizes.partial_ratio", sizes.partial_ratio, "", sizes.provenance),
        Quantity("workload.sizes.sent_ratio", sizes.sent_ratio, "", sizes.provenance),
    )
    flips = (
        f"a log shows that one response in {round(1 / _RANGES)} is a range of an object of "
        f"{bytes_text(_LARGE_BYTES)} or more, and that clients take half or less of each"
    )
    if sizes.provenance != "learnt" or sizes.partial_ratio is None or sizes.sent_ratio is None:
        return Decision(
            id="slice",
            verdict="not_enough_evidence",
            summary="Whole objects are fetched: no log shows whether clients request ranges.",
            evidence=evidence,
            confidence="low",
            flips_when=[flips],
            next_command=LEARN_COMMAND,
        )
    takes = f"{percent_text(sizes.partial_ratio, 2)} of the responses are ranges, and clients take "
    takes += f"{percent_text(sizes.sent_ratio, 2)} of the bytes of the objects they request"
    is_large = (s.object_bytes.value or 0.0) >= _LARGE_BYTES
    if not is_large or sizes.partial_ratio < _RANGES or sizes.sent_ratio > _PART_TAKEN:
        return Decision(
            id="slice",
            verdict="disable",
            summary=f"Whole objects are fetched: {takes}; the mean object has "
            f"{bytes_text(s.object_bytes.value)}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[flips],
        )
    size = slice_bytes(sizes.sent_mean_bytes or sizes.sent_ratio * (s.object_bytes.value or 0.0))
    why = "fetches and caches one part at a time"
    return Decision(
        id="slice",
        verdict="not_enough_evidence",
        summary=f"Parts of {nginx_size(size)} could be fetched instead of whole objects, if the "
        f"upstream answers ranges and no object changes in place: {takes}.",
        proposed=[
            setting("slice", "location", "slice", nginx_size(size), reason=why),
            setting(
                *("slice", "location", "proxy_set_header", "Range", "$slice_range"),
                reason="requests that part",
            ),
            setting(
                "slice",
                "location",
                "proxy_cache_key",
                f"{key_of(s.site)}$slice_range",
                reason="gives each part its own key",
            ),
        ],
        evidence=evidence,
        confidence="low",
        flips_when=["the upstream answers a range with 206 and the same ETag each time"],
        risks=[
            "an object that changes while its parts are fetched ends in a truncated response",
            "all objects cached under the old key are fetched again",
        ],
        next_command=ASK_COMMAND,
    )


def slice_bytes(answer_bytes: float) -> int:
    """Slice size for responses of that size: about an eighth, a power of two from 1 to 16 MiB."""
    wanted = max(SMALLEST_SLICE_BYTES, min(LARGEST_SLICE_BYTES, answer_bytes / SLICES_OF_AN_ANSWER))
    return 1 << int(math.log2(wanted))
