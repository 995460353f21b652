"""Pages that a cache fetches: ``cache-misses``, ``cache-updates``, ``slice``."""

from __future__ import annotations

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
"""So few requests may wait for a lock that no 99th percentile shows them."""
_SEGMENT_BYTES = 4 << 20
"""Mean size from which on a fetch takes about the half second after which those who wait look:
0.5 s from a server that gives 64 Mbit/s."""
_LONGEST_BYTES = 10 * _SEGMENT_BYTES
"""The size of 99 in 100 up to which such a fetch ends before ``proxy_cache_lock_timeout`` (5 s):
those who wait for a longer one come 5 s late and fetch it all the same."""
_ONCE = 1.5
"""Requests for each of some objects up to which they count as asked for once."""
_MOSTLY_ONCE = 0.5
"""Share of the bytes that are asked for once from which on it would pay to leave them out."""


def decide_cache_misses(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-misses``: whether requests for a page that is missing wait for one another.

    ``proxy_cache_lock`` has one of them fetch it while the others wait. They look every half
    second, and where the answer may not be kept they are let through one by one, for five seconds.
    Measured on nginx 1.22.1, 40 requests at once for a page that its server makes in 20 ms
    (benchmarks/cache_lock.py): 33 ms without it; with it 0.5 s, and 5.0 s where the answer is
    ``Cache-Control: private``. It is set where a log shows that hardly a request misses, so that
    hardly one can wait. It is set too where it helps most: for live files, each of which all
    viewers ask for as soon as it is there (``[site] live_files``), and for segments of 4 to 40 MiB,
    whose fetch takes as long as the wait, and each of which is worth one fetch less. Elsewhere it
    is proposed, since no host shows which answers may be kept.

    ``proxy_cache_min_uses 2`` keeps what is asked for once out of the cache, and fetches everything
    else once more. It is proposed where a log shows that most of the bytes are asked for once, and
    that the cache is too small for all of them.

    Source: ngx_http_file_cache_lock() and ngx_http_file_cache_lock_wait() in ngx_http_file_cache.c.
    """
    if s.kind != "cache":
        return not_applicable("cache-misses", "Nothing is cached.")
    misses, once = miss_share(s), once_share(s)
    reason = "one request fetches a missing page, the others wait"
    lock = setting("cache-misses", "location", "proxy_cache_lock", "on", reason=reason)
    evidence = known(
        Quantity("share of cached requests that miss", misses, "", "learnt"),
        Quantity("share of the bytes that are asked for once", once, "", "learnt"),
    )
    is_mostly_once = once is not None and once >= _MOSTLY_ONCE and _outgrows(s)
    once_text = f"{percent_text(once, 2)} of the bytes are asked for once"
    helps = _why_lock(s, misses)
    if helps:
        return Decision(
            id="cache-misses",
            verdict="enable",
            summary=f"One request fetches a missing page: {helps}.",
            settings=[lock],
            evidence=evidence,
            confidence="medium",
            flips_when=[
                "more requests miss, or their answers may not be kept",
                *([f"proxy_cache_min_uses 2: {once_text}"] if is_mostly_once else []),
            ],
            risks=["requests at once for one page that may not be kept wait for up to 5 s each"],
        )
    uses = setting("cache-misses", "location", "proxy_cache_min_uses", "2", reason=once_text)
    return Decision(
        id="cache-misses",
        verdict="not_enough_evidence",
        summary="No lock: where answers may not be kept it lets requests for one page through one "
        "by one, each up to 5 s late.",
        proposed=[lock, *([uses] if is_mostly_once else [])],
        evidence=evidence,
        confidence="low",
        flips_when=[
            "a log shows that at most one in a hundred requests misses",
            "[site] live_files says that all viewers ask for new files at once",
        ],
        next_command=LEARN_COMMAND,
    )


def _why_lock(s: Situation, misses: float | None) -> str:
    """The reason for which those who wait for a missing page gain; empty where they may lose."""
    if misses is not None and misses <= _FEW_MISSES:
        return f"{percent_text(misses, 2)} miss"
    if s.site.live_files:
        return "all viewers ask for a live file as soon as it is there"
    sizes = s.workload.sizes
    mean, long = sizes.mean_bytes or 0.0, sizes.p99_bytes
    is_known = sizes.provenance != "assumed" and long is not None and long <= _LONGEST_BYTES
    if is_known and mean >= _SEGMENT_BYTES:
        return f"a segment of {bytes_text(mean)} takes about as long to fetch as they wait"
    return ""


def miss_share(s: Situation) -> float | None:
    """Share of the requests to the cache that found nothing there; None where no log tells.

    Those that pass it by are none of them: no lock is asked for.
    """
    statuses = {} if s.workload.traffic is None else s.workload.traffic.cache_statuses
    asked = sum(share for name, share in statuses.items() if name not in ("none", "BYPASS"))
    return statuses.get("MISS", 0.0) / asked if asked > 0 else None


def once_share(s: Situation) -> float | None:
    """Share of the bytes of all objects that a log saw asked for about once; None without one.

    By the pieces of the curve: requests of a piece over its objects, taken as of mean size.
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
    """True if more is asked for than the caches hold."""
    asked = s.workload.dataset.bytes
    return asked is not None and asked > sum(s.cache_size(one).object_bytes for one in s.data_paths)


_OLD = "while the server does not answer a page is shown that expired, as long as inactive keeps it"
_REVALIDATE_SINCE = (1, 5, 7)


def decide_cache_updates(s: Situation, _plan: PoolPlan) -> Decision:
    """``cache-updates``: how a page that a cache has had for too long is fetched anew.

    While an expired page is fetched all others get the old one (``proxy_cache_use_stale
    updating``), and its server is asked whether it has changed at all (``proxy_cache_revalidate``):
    what has not is neither sent nor written again. When the server does not answer, the old page is
    better than none.

    ``proxy_cache_background_update`` would answer the first request too from the expired page,
    however old that is: with ``inactive=30d`` a month. Without ``updating`` beside it a server
    allows it page by page, for as long as it says (``stale-while-revalidate``, RFC 5861). It is not
    written.

    Source: ngx_http_upstream_cache() in ngx_http_upstream.c.
    """
    if s.kind != "cache":
        return not_applicable("cache-updates", "Nothing is cached.")
    stale = "the old page while a new one is fetched, and when its server does not answer"
    same = "an expired page is asked after, and fetched only where it has changed"
    revalidates = s.build.at_least(*_REVALIDATE_SINCE)
    return Decision(
        id="cache-updates",
        verdict="set",
        summary="While an expired page is fetched, or its server does not answer, others get the "
        "old one.",
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
        flips_when=["a page may be shown once however old it is: proxy_cache_background_update on"],
        risks=[_OLD],
    )


SMALLEST_SLICE_BYTES = 1 << 20
"""Less would open a file of the cache for every few packets."""
LARGEST_SLICE_BYTES = 16 << 20
SLICES_OF_AN_ANSWER = 8
"""Slices that one answer carries, or so."""
_PART_TAKEN = 0.5
"""Share of an object that clients take, of which more is worth a fetch of all of it."""
_RANGES = 0.05
"""Share of answers that are ranges, of which fewer are not worth another key."""
_LARGE_BYTES = 4 * SMALLEST_SLICE_BYTES
_SLICE_MODULE = "--with-http_slice_module"
ASK_COMMAND: Final = "curl -s -r 0-0 -D - -o /dev/null http://UPSTREAM/OBJECT  # 206 and an ETag?"


def decide_slice(s: Situation, _plan: PoolPlan) -> Decision:
    """``slice``: a cache that fetches and keeps the parts of large objects, not all of each.

    A cache answers a range from the whole object: nginx takes ``Range`` off the request to the
    server and fetches all of it, and who asks for its end waits for the rest. With ``slice`` each
    part is a request and an entry of its own, by ``$slice_range`` in the key. That pays where a log
    shows ranges of large objects, of which clients take a part. It is proposed, never written: the
    server must answer ranges, and an object that changes in place while it is fetched ends in a cut
    answer (another ETag than the first part's), which no host shows. What a cache holds under the
    key of today is fetched anew.

    Each part is one more round trip to the server, a file and a key; a large one fetches what
    nobody asked for at both ends of a range. An eighth of what an answer carries makes that one
    part in nine.

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
        f"a log shows that one answer in {round(1 / _RANGES)} is a range, of objects of "
        f"{bytes_text(_LARGE_BYTES)} or more, of which clients take half or less"
    )
    if sizes.provenance != "learnt" or sizes.partial_ratio is None or sizes.sent_ratio is None:
        return Decision(
            id="slice",
            verdict="not_enough_evidence",
            summary="Whole objects are fetched: no log shows whether clients ask for ranges.",
            evidence=evidence,
            confidence="low",
            flips_when=[flips],
            next_command=LEARN_COMMAND,
        )
    takes = f"{percent_text(sizes.partial_ratio, 2)} of the answers are ranges, and clients take "
    takes += f"{percent_text(sizes.sent_ratio, 2)} of the bytes of what they ask for"
    is_large = (s.object_bytes.value or 0.0) >= _LARGE_BYTES
    if not is_large or sizes.partial_ratio < _RANGES or sizes.sent_ratio > _PART_TAKEN:
        return Decision(
            id="slice",
            verdict="disable",
            summary=f"Whole objects are fetched: {takes}; the mean one has "
            f"{bytes_text(s.object_bytes.value)}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[flips],
        )
    size = slice_bytes(sizes.sent_mean_bytes or sizes.sent_ratio * (s.object_bytes.value or 0.0))
    why = "one part at a time"
    return Decision(
        id="slice",
        verdict="not_enough_evidence",
        summary=f"Parts of {nginx_size(size)} would be fetched, not whole objects, if the server "
        f"answers ranges and no object changes in place: {takes}.",
        proposed=[
            setting("slice", "location", "slice", nginx_size(size), reason=why),
            setting(
                "slice", "location", "proxy_set_header", "Range", "$slice_range", reason="that part"
            ),
            setting(
                "slice",
                "location",
                "proxy_cache_key",
                f"{key_of(s.site)}$slice_range",
                reason="and its key",
            ),
        ],
        evidence=evidence,
        confidence="low",
        flips_when=["the server answers a range with 206 and an ETag that stays"],
        risks=[
            "an object that changes while its parts are fetched ends in a cut answer",
            "all that the cache holds under another key is fetched anew",
        ],
        next_command=ASK_COMMAND,
    )


def slice_bytes(answer_bytes: float) -> int:
    """The part, a power of two from 1 to 16 MiB, of which answers of that size have eight or so."""
    wanted = max(SMALLEST_SLICE_BYTES, min(LARGEST_SLICE_BYTES, answer_bytes / SLICES_OF_AN_ANSWER))
    return 1 << int(math.log2(wanted))
