"""``cache-misses``: whether requests for a page that is missing wait for one another.

``proxy_cache_lock`` has one of them fetch it while the others wait. They look every half second,
and where the answer may not be kept they are let through one by one, for five seconds. Measured on
nginx 1.22.1, 40 requests at once for a page that its server makes in 20 ms
(benchmarks/cache_lock.py): 33 ms without it; with it 0.5 s, and 5.0 s where the answer is
``Cache-Control: private``. It is set where a log shows that hardly a request misses, so that hardly
one can wait; elsewhere it is proposed, since no host shows which answers may be kept.

``proxy_cache_min_uses 2`` keeps what is asked for once out of the cache, and fetches everything
else once more. It is proposed where a log shows that most of the bytes are asked for once, and that
the cache is too small for all of them.

Source: ngx_http_file_cache_lock() and ngx_http_file_cache_lock_wait() in ngx_http_file_cache.c.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from nginx_tune.decide.answer import LEARN_COMMAND, not_applicable, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import percent_text

ID: Final = "cache-misses"
_FEW_MISSES = 0.01
"""So few requests may wait for a lock that no 99th percentile shows them."""
_ONCE = 1.5
"""Requests for each of some objects up to which they count as asked for once."""
_MOSTLY_ONCE = 0.5
"""Share of the bytes that are asked for once from which on it would pay to leave them out."""


def decide_cache_misses(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind != "cache":
        return not_applicable(ID, "Nothing is cached.")
    misses, once = miss_share(s), once_share(s)
    reason = "one request fetches a missing page, the others wait"
    lock = setting(ID, "location", "proxy_cache_lock", "on", reason=reason)
    evidence = known(
        Quantity("share of cached requests that miss", misses, "", "learnt"),
        Quantity("share of the bytes that are asked for once", once, "", "learnt"),
    )
    is_mostly_once = once is not None and once >= _MOSTLY_ONCE and _outgrows(s)
    once_text = f"{percent_text(once, 2)} of the bytes are asked for once"
    if misses is not None and misses <= _FEW_MISSES:
        return Decision(
            id=ID,
            verdict="enable",
            summary=f"One request fetches a missing page: {percent_text(misses, 2)} miss.",
            settings=[lock],
            evidence=evidence,
            confidence="medium",
            flips_when=[
                "more requests miss, or their answers may not be kept",
                *([f"proxy_cache_min_uses 2: {once_text}"] if is_mostly_once else []),
            ],
            risks=["requests at once for one page that may not be kept wait for up to 5 s each"],
        )
    uses = setting(ID, "location", "proxy_cache_min_uses", "2", reason=once_text)
    return Decision(
        id=ID,
        verdict="not_enough_evidence",
        summary="No lock: where answers may not be kept it lets requests for one page through one "
        "by one, each up to 5 s late.",
        proposed=[lock, *([uses] if is_mostly_once else [])],
        evidence=evidence,
        confidence="low",
        flips_when=["a log shows that at most one in a hundred requests misses"],
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
    return asked is not None and asked > sum(s.cache_size(one).object_bytes for one in s.data_paths)
