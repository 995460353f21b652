"""``cache-updates``: how a page that a cache has had for too long is fetched anew.

While an expired page is fetched all others get the old one (``proxy_cache_use_stale updating``),
and its server is asked whether it has changed at all (``proxy_cache_revalidate``): what has not is
neither sent nor written again. When the server does not answer, the old page is better than none.

``proxy_cache_background_update`` would answer the first request too from the expired page, however
old that is: with ``inactive=30d`` a month. Without ``updating`` beside it a server allows it page
by page, for as long as it says (``stale-while-revalidate``, RFC 5861). It is not written.

Source: ngx_http_upstream_cache() in ngx_http_upstream.c.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision

ID: Final = "cache-updates"
_OLD = "while the server does not answer a page is shown that expired, as long as inactive keeps it"
_REVALIDATE_SINCE = (1, 5, 7)


def decide_cache_updates(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind != "cache":
        return not_applicable(ID, "Nothing is cached.")
    stale = "the old page while a new one is fetched, and when its server does not answer"
    same = "an expired page is asked after, and fetched only where it has changed"
    revalidates = s.build.at_least(*_REVALIDATE_SINCE)
    return Decision(
        id=ID,
        verdict="set",
        summary="While an expired page is fetched, or its server does not answer, others get the "
        "old one.",
        settings=[
            setting(
                ID,
                "location",
                "proxy_cache_use_stale",
                *("error", "timeout", "updating"),
                reason=stale,
            ),
            *(
                [setting(ID, "location", "proxy_cache_revalidate", "on", reason=same)]
                if revalidates
                else []
            ),
        ],
        evidence=[version_evidence(s.build)],
        confidence="medium",
        flips_when=["a page may be shown once however old it is: proxy_cache_background_update on"],
        risks=[_OLD],
    )
