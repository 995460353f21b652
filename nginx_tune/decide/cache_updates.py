"""``cache-updates``: how what a cache lacks, or has for too long, is fetched.

While an expired page is fetched all others get the old one (``proxy_cache_use_stale updating``),
and its server is asked whether it has changed at all (``proxy_cache_revalidate``): what has not is
neither sent nor written again. When the server does not answer, the old page is better than none.

Three more lines are known to help, and each does harm where something is so that no host shows:

- ``proxy_cache_lock`` has one request fetch a missing page while the others wait. They look every
  half second, and where the answer may not be kept they are let through one by one, for five
  seconds. Measured on nginx 1.22.1, 40 requests at once for a page that its server makes in 20 ms
  (benchmarks/cache_lock.py): 33 ms without it; with it 0.5 s, and 5.0 s where the answer is
  ``Cache-Control: private``. It is set where a log shows that hardly a request misses, so that
  hardly one can wait.
- ``proxy_cache_background_update`` answers the first request too from the expired page, however old
  that is: with ``inactive=30d`` a month. Without ``updating`` beside it a server allows it page by
  page, for as long as it says (``stale-while-revalidate``, RFC 5861).
- ``proxy_cache_min_uses 2`` keeps what is asked for once out of the cache, and fetches everything
  else once more.

Source: ngx_http_file_cache_lock() and ngx_http_file_cache_lock_wait() in ngx_http_file_cache.c;
        ngx_http_upstream_cache() in ngx_http_upstream.c.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from nginx_tune.decide.answer import LEARN_COMMAND, not_applicable, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.units import percent_text

ID: Final = "cache-updates"
_FEW_MISSES = 0.01
"""So few requests may wait for a lock that no 99th percentile shows them."""
_ONCE = 1.5
"""Requests for each of some objects up to which they count as asked for once."""
_MOSTLY_ONCE = 0.5
"""Share of the bytes that are asked for once from which on it would pay to leave them out."""
_OLD = "while the server does not answer a page is shown that expired, as long as inactive keeps it"
_WAITS = "requests at once for one page that may not be kept wait for up to 5 s each"
_REVALIDATE_SINCE = (1, 5, 7)
_BACKGROUND_SINCE = (1, 11, 10)


def decide_cache_updates(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind != "cache":
        return not_applicable(ID, "Nothing is cached.")
    misses = miss_share(s)
    lock = _line("proxy_cache_lock", "on", "one request fetches a missing page, the others wait")
    locks = misses is not None and misses <= _FEW_MISSES
    once = once_share(s)
    settings = [
        _line(
            "proxy_cache_use_stale",
            *("error", "timeout", "updating"),
            "the old page while a new one is fetched, and when its server does not answer",
        )
    ]
    if s.build.at_least(*_REVALIDATE_SINCE):
        reason = "an expired page is asked after, and fetched only where it has changed"
        settings.append(_line("proxy_cache_revalidate", "on", reason))
    proposed = [] if locks else [lock]
    if s.build.at_least(*_BACKGROUND_SINCE):
        reason = "nobody waits for an expired page; the first one after a long time gets it too"
        proposed.append(_line("proxy_cache_background_update", "on", reason))
    if once is not None and once >= _MOSTLY_ONCE and _outgrows(s):
        reason = f"{percent_text(once, 2)} of the bytes are asked for once"
        proposed.append(_line("proxy_cache_min_uses", "2", reason))
    evidence = known(
        Quantity("share of cached requests that miss", misses, "", "learnt"),
        Quantity("share of the bytes that are asked for once", once, "", "learnt"),
    )
    return Decision(
        id=ID,
        verdict="set",
        summary="While an expired page is fetched the others get the old one. "
        + (
            f"One request fetches a missing one: {percent_text(misses or 0.0, 2)} miss."
            if locks
            else "No lock: where answers may not be kept it lets requests for one page through "
            "one by one, each up to 5 s late."
        ),
        settings=[*settings, lock] if locks else settings,
        proposed=proposed,
        evidence=evidence,
        confidence="medium",
        flips_when=[
            "more requests miss: no proxy_cache_lock"
            if locks
            else "a log shows that at most one in a hundred requests misses: proxy_cache_lock on",
            "a page may be shown once however old it is: proxy_cache_background_update on",
        ],
        risks=[_OLD, *([_WAITS] if locks else [])],
        next_command=LEARN_COMMAND,
    )


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
    """Whether more is asked for than the caches hold."""
    asked = s.workload.dataset.bytes
    return asked is not None and asked > sum(s.cache_size(one).held_bytes for one in s.data_paths)


def _line(directive: str, *words: str) -> Setting:
    *args, reason = words
    return setting(ID, "location", directive, *args, reason=reason)
