"""``upstream-keepalive``: idle connections to the origin, by version.

Without kept connections each request to an upstream pays for a handshake and leaves a local port
in TIME_WAIT. Until 1.29.7 they need ``keepalive`` in the upstream, ``proxy_http_version 1.1`` and
an empty ``Connection``; since then all of that is the default, with 32 idle connections for each
location in each worker, which is worth a number of one's own where the peak is known.

An idle connection holds a thread or process of a server that has one for each connection, and
nothing in nginx tells such servers from others: eight threads, sixteen clients and connections kept
for 5 s left 19 of 192 requests without an answer in 9 s, where none waited before. More of them
than by default do so too: with ``keepalive 60`` on 1.30 a server of 80 threads that each hold a
connection for 60 s left 120 of 200 clients without an answer in 25 s; with the default it left
none, nor with ``keepalive_timeout 1s``. So it is a line only where the requests under way at once
are known, which these servers then bear anyhow, and not without that time; else it is proposed.

A connection that is kept idle has a slot of its worker's: three quarters are left to others.

A site that serves files first may pass requests on as well: where its upstreams are known they are
decided too, for the peak of all its requests, of which theirs is a part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from nginx_tune.decide.answer import LEARN_COMMAND, not_applicable, setting
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.descriptors import plan_descriptors
from nginx_tune.decide.model.local_ports import FACT, SYSCTL, uses_up_ports
from nginx_tune.decide.model.pool import peak_per_worker
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Setting, Verdict
from nginx_tune.documents.units import plural

ID: Final = "upstream-keepalive"
SMALLEST = 16
LARGEST = 256
_SLOTS_SHARE = 4
"""A part of ``worker_connections``: for idle connections to upstreams."""
ADDRESS_BYTES: Final = 4096
"""Of a zone for each address: the server takes 0.8 to 1 KiB (63 fit in 64k, on 1.18 to 1.30), its
TLS session, which stands beside it, up to 3 KiB (ngx_http_upstream_save_round_robin_peer_session).
"""
ADDRESSES_OF_NAME: Final = 8
"""What a name mostly resolves to; each address is a server of its own in the zone."""
SMALLEST_ZONE_BYTES: Final = 64 << 10
ZONE_OF_NAMES_BYTES: Final = 1 << 20
"""For some 1000 addresses, or 256 with a TLS session each."""
IDLE_TIME: Final = "1s"
"""How long a connection is kept idle: less than the servers do that are named below.

A POST on a connection that its server is closing is answered 502: 32 of 640 to a server that closes
after 2 s, in rounds of 64 every 2 s (1.22.1, on one host); with 1s none of 640. What is lost by it
is one handshake for each second that a connection was not needed.
"""
_SERVERS: Final = "gunicorn 2 s, Node.js, Apache and uvicorn 5 s, Tomcat 20 s"
_POST: Final = (
    "a POST on one that it is closing gets 502 (proxy_next_upstream repeats only what may"
)
_CLOSED_BY_THE_ORIGIN: Final = (
    f"the origin must keep idle connections longer than nginx does: {_POST} be done twice); "
)
_BOUNDED: Final = (
    f"keepalive_timeout {IDLE_TIME} is below the defaults of {_SERVERS}; a keepalive that stands "
    "keeps its own, 60s by default"
)
_UNBOUNDED: Final = (
    f"nginx before 1.15.3 keeps them as long as they do, and they do by default {_SERVERS}"
)
_WHY: Final = f"shorter than servers keep them idle ({_SERVERS})"
_SINCE_1_29_7: Final = "32 for each location and worker since 1.29.7, for 60s"
_HELD: Final = (
    "a server with a thread or process for each connection keeps others waiting while idle ones "
    "hold them"
)
_IS_ADDRESS: Final = re.compile(r"unix:|\[|[0-9.]+(?::[0-9]+)?(?:\s|$)")


def decide_upstream_keepalive(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind in ("static", "media") and not s.site.upstreams:
        return not_applicable(ID, "Nothing is fetched from an upstream.")
    wanted = math.ceil(peak_per_worker(s.concurrency.value or 0.0, s.workers))
    slots = plan_descriptors(s).connections // _SLOTS_SHARE
    idle = max(SMALLEST, min(LARGEST, wanted, slots))
    evidence = [
        *known(s.concurrency, Quantity("workers", s.workers)),
        version_evidence(s.build),
        *_ports(s),
    ]
    reason = f"idle connections a worker keeps; peak of {wanted} requests at once a worker"
    if idle == slots < wanted:
        reason += ", a quarter of its slots"
    keepalive = setting(ID, "upstream", "keepalive", str(idle), reason=reason)
    zones = _zones(s)
    risk = _held_at_the_servers(s, idle)
    is_default = s.build.version is not None and s.build.at_least(1, 29, 7)
    is_bounded = s.build.at_least(1, 15, 3)
    lines = [
        *zones,
        keepalive,
        *([setting(ID, "upstream", "keepalive_timeout", IDLE_TIME, reason=_WHY)] * is_bounded),
    ]
    if not is_default:
        lines += [
            setting(ID, "location", "proxy_http_version", "1.1", reason="keepalive needs it"),
            setting(
                ID, "location", "proxy_set_header", "Connection", "", reason="default is close"
            ),
        ]
    is_known = s.concurrency.provenance != "assumed"
    verdict: Verdict = "set" if is_default else "enable"
    return Decision(
        id=ID,
        verdict=verdict if is_known else "not_enough_evidence",
        summary=_summary(idle, is_known=is_known, is_default=is_default),
        settings=lines if is_known else [],
        proposed=[] if is_known else lines,
        evidence=evidence,
        confidence="medium" if is_known else "low",
        flips_when=[
            "the peak of concurrent requests changes"
            if is_default
            else "nginx is 1.29.7 or newer, where most of this is the default"
        ],
        risks=[_CLOSED_BY_THE_ORIGIN + (_BOUNDED if is_bounded else _UNBOUNDED), risk],
        next_command="" if is_known else LEARN_COMMAND,
    )


def _ports(s: Situation) -> list[Evidence]:
    """The local ports, where a new connection for each request uses them up."""
    rate = 0.0 if s.rate.provenance == "assumed" else s.rate.value or 0.0
    if not uses_up_ports(s.facts, new_per_second=rate):
        return []
    return [Evidence(fact=FACT, value=s.facts.kernel.sysctls[SYSCTL])]


def _summary(idle: int, *, is_known: bool, is_default: bool) -> str:
    if not is_known:
        left = f"Left at the default, {_SINCE_1_29_7}" if is_default else "Left off"
        return f"{left}: how many requests are under way at once is only assumed, and {_HELD}."
    if is_default:
        return (
            f"keepalive {idle}, each for {IDLE_TIME} at most: the default is {_SINCE_1_29_7}; "
            "HTTP/1.1 and an empty Connection are defaults too."
        )
    return f"keepalive {idle}: without it each request opens a connection to the origin."


def _held_at_the_servers(s: Situation, idle: int) -> str:
    """What the servers of a group must bear."""
    each = f"keepalive {idle} in each worker"
    if s.workers_are_known:
        each = f"{s.workers * idle} ({plural(s.workers, 'worker')} x keepalive {idle})"
    return (
        f"idle connections of all workers add up at the servers of an upstream: {each}; {_HELD} "
        "(Apache prefork, an application with a few threads), so that it needs more of these"
    )


def addresses_of(servers: Sequence[str]) -> int:
    """How many addresses ``server`` lines (their arguments) may have together."""
    return sum(1 if _IS_ADDRESS.match(one) else ADDRESSES_OF_NAME for one in servers)


def zone_size(servers: Sequence[str]) -> str:
    """Room for the addresses of ``server`` lines (their arguments), in nginx's notation.

    A zone without room for all is an error at start, and at the next reload after a name got more
    addresses: "no memory in upstream zone". How many a name has nobody says for ever, and memory
    that is not used costs nothing, so that a name gets a large one.
    """
    addresses = addresses_of(servers)
    has_names = not all(map(_IS_ADDRESS.match, servers))
    size = ZONE_OF_NAMES_BYTES if has_names else SMALLEST_ZONE_BYTES
    while size < addresses * ADDRESS_BYTES:
        size *= 2
    return f"{size >> 20}m" if size >= 1 << 20 else f"{size >> 10}k"


def _zones(s: Situation) -> list[Setting]:
    if not s.build.at_least(1, 9, 0) or (s.workers == 1 and s.workers_are_known):
        return []
    return [
        setting(
            ID,
            "upstream",
            "zone",
            f"upstream_{upstream.name}",
            zone_size(upstream.servers),
            block=upstream.name,
            reason="the workers share what they know of failed servers",
        )
        for upstream in s.site.upstreams
    ]
