"""``upstream-keepalive``: idle connections to the origin, by version (NGINX-FACTS 14).

Without kept connections each request to an upstream pays for a handshake and leaves a local port
in TIME_WAIT. Until 1.29.7 they need ``keepalive`` in the upstream, ``proxy_http_version 1.1`` and
an empty ``Connection``; since then all of that is the default, with 32 idle connections for each
location in each worker, which is worth a number of one's own where there are many.

A site that serves files first may pass requests on as well: where its upstreams are known they are
decided too, for the peak of all its requests, of which theirs is a part.
"""

from __future__ import annotations

import math
from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.model.pool import peak_per_worker

ID: Final = "upstream-keepalive"
SMALLEST = 16
LARGEST = 256
ZONE: Final = "64k"
"""Room for some 60 servers."""


def decide_upstream_keepalive(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind in ("static", "media") and not s.site.upstreams:
        return not_applicable(ID, "Nothing is fetched from an upstream.")
    wanted = math.ceil(peak_per_worker(s.concurrency.value or 0.0, s.workers))
    idle = max(SMALLEST, min(LARGEST, wanted))
    evidence = known(s.concurrency, Quantity("workers", s.workers))
    reason = f"idle connections a worker keeps; peak of {wanted} requests at once a worker"
    keepalive = setting(ID, "upstream", "keepalive", str(idle), reason=reason)
    zones = _zones(s)
    if s.build.version is not None and s.build.at_least(1, 29, 7):
        return Decision(
            id=ID,
            verdict="set",
            summary=f"keepalive {idle}: since 1.29.7 the default is 32 for each location; "
            "HTTP/1.1 and an empty Connection are defaults too.",
            settings=[*zones, keepalive],
            evidence=evidence,
            confidence="medium",
            flips_when=["the peak of concurrent requests changes"],
            risks=["idle connections of all workers add up at the origin"],
        )
    return Decision(
        id=ID,
        verdict="enable",
        summary=f"keepalive {idle}: without it each request opens a connection to the origin.",
        settings=[
            *zones,
            keepalive,
            setting(ID, "location", "proxy_http_version", "1.1", reason="keepalive needs it"),
            setting(
                ID, "location", "proxy_set_header", "Connection", "", reason="default is close"
            ),
        ],
        evidence=evidence,
        confidence="medium",
        flips_when=["nginx is 1.29.7 or newer, where most of this is the default"],
        risks=["the origin must keep idle connections longer than nginx does"],
    )


def _zones(s: Situation) -> list[Setting]:
    if not s.build.at_least(1, 9, 0):
        return []
    return [
        setting(
            ID,
            "upstream",
            "zone",
            f"upstream_{upstream.name}",
            ZONE,
            block=upstream.name,
            reason="the workers share what they know of failed servers",
        )
        for upstream in s.site.upstreams
    ]
