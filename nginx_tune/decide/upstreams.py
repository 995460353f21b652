"""Requests that are passed on to upstreams: ``upstream-keepalive``, ``streaming``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nginx_tune.conf.answer_bodies import is_stream_path
from nginx_tune.decide.answer import (
    LEARN_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    version_evidence,
)
from nginx_tune.decide.descriptors import plan_descriptors
from nginx_tune.decide.model.connections import PORTS_FACT, PORTS_SYSCTL, local_ports, uses_up_ports
from nginx_tune.decide.model.pool import peak_per_worker
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, DecisionVerdict, Evidence, HostSetting, Setting
from nginx_tune.documents.units import plural

SMALLEST_KEPT = 16
LARGEST_KEPT = 256
_SLOTS_SHARE = 4
"""A part of ``worker_connections``: for idle connections to upstreams."""
ADDRESS_BYTES: Final = 4096
"""Bytes of a zone for each address: the server takes 0.8 to 1 KiB (63 fit in 64k, on 1.18 to 1.30),
its TLS session, which stands beside it, up to 3 KiB
(ngx_http_upstream_save_round_robin_peer_session)."""
ADDRESSES_OF_NAME: Final = 8
"""Addresses of most names, at most; each is a server of its own in the zone."""
SMALLEST_ZONE_BYTES: Final = 64 << 10
ZONE_OF_NAMES_BYTES: Final = 1 << 20
"""For some 1000 addresses, or 256 with a TLS session each."""
IDLE_TIME: Final = "1s"
"""Time for which a connection is kept idle: less than the servers do that are named below.

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
    """``upstream-keepalive``: idle connections to the origin, by version.

    Without kept connections each request to an upstream pays for a handshake and leaves a local
    port in TIME_WAIT. Until 1.29.7 they need ``keepalive`` in the upstream, ``proxy_http_version
    1.1`` and an empty ``Connection``; since then all of that is the default, with 32 idle
    connections for each location in each worker, which is worth a number of one's own where the
    peak is known.

    An idle connection holds a thread or process of a server that has one for each connection, and
    nothing in nginx tells such servers from others: eight threads, sixteen clients and connections
    kept for 5 s left 19 of 192 requests without an answer in 9 s, where none waited before. More of
    them than by default do so too: with ``keepalive 60`` on 1.30 a server of 80 threads that each
    hold a connection for 60 s left 120 of 200 clients without an answer in 25 s; with the default
    it left none, nor with ``keepalive_timeout 1s``. So more than 16 are a line only where the
    requests under way at once are known, which these servers then bear anyhow. Where they are not,
    a file of one's own gets as many, with that time (1.15.3), as eight threads of each server bear
    idle: with four workers and one server of eight threads 2 left nine of ten of sixteen clients at
    0.05 s, 16 at 1.3 s (1.22.1). Into a configuration that stands nothing is written then, and
    without that time it is proposed.

    A connection takes a local port of its own towards each address of the servers. Where the peak
    needs more than there are, it is said how many addresses it takes.

    A connection that is kept idle has a slot of its worker's: three quarters are left to others.

    A site that serves files first may pass requests on as well: where its upstreams are known they
    are decided too, for the peak of all its requests, of which theirs is a part.
    """
    if s.kind in ("static", "media") and not s.site.upstreams:
        return not_applicable("upstream-keepalive", "Nothing is fetched from an upstream.")
    wanted = math.ceil(peak_per_worker(s.concurrency.value or 0.0, s.workers))
    slots = plan_descriptors(s).connections // _SLOTS_SHARE
    idle = max(SMALLEST_KEPT, min(LARGEST_KEPT, wanted, slots))
    few = _harmless(s)
    if s.concurrency.provenance == "assumed" and few:
        idle = few
    evidence = [
        *known(s.concurrency, Quantity("workers", s.workers)),
        version_evidence(s.build),
        *_ports(s),
    ]
    reason = f"idle connections a worker keeps; peak of {wanted} requests at once a worker"
    if s.concurrency.provenance == "assumed":
        reason = f"no more idle at a server than {_THREADS} threads bear; the peak is not known"
    if idle == slots < wanted:
        reason += ", a quarter of its slots"
    keepalive = setting("upstream-keepalive", "upstream", "keepalive", str(idle), reason=reason)
    zones = _zones(s)
    risk = _held_at_the_servers(s, idle)
    is_default = s.build.version is not None and s.build.at_least(1, 29, 7)
    is_bounded = s.build.at_least(1, 15, 3)
    lines = [
        *zones,
        keepalive,
        *(
            [setting("upstream-keepalive", "upstream", "keepalive_timeout", IDLE_TIME, reason=_WHY)]
            * is_bounded
        ),
    ]
    if not is_default:
        lines += [
            setting(
                "upstream-keepalive",
                "location",
                "proxy_http_version",
                "1.1",
                reason="keepalive needs it",
            ),
            setting(
                "upstream-keepalive",
                "location",
                "proxy_set_header",
                "Connection",
                "",
                reason="default is close",
            ),
        ]
    is_known = s.concurrency.provenance != "assumed"
    is_written = is_known or (is_bounded and not is_default and few > 0)
    verdict: DecisionVerdict = "set" if is_default else "enable"
    return Decision(
        id="upstream-keepalive",
        verdict=verdict if is_written else "not_enough_evidence",
        summary=_summary(idle, is_known=is_written, is_default=is_default),
        settings=lines if is_written else [],
        proposed=[] if is_written else lines,
        evidence=evidence,
        host_settings=_more_ports(s),
        confidence="medium" if is_known else "low",
        flips_when=[
            "the peak of concurrent requests changes"
            if is_default
            else "nginx is 1.29.7 or newer, where most of this is the default"
        ],
        risks=[
            _CLOSED_BY_THE_ORIGIN + (_BOUNDED if is_bounded else _UNBOUNDED),
            risk,
            *_lacking_ports(s),
        ],
        next_command="" if is_known else LEARN_COMMAND,
    )


_THREADS = 8
"""Threads or processes of a server that has one for each connection, and is small."""


def _harmless(s: Situation) -> int:
    """Idle connections of a worker of which those of all leave each server a thread for another.

    0 where even one for each worker is more, or nobody knows how many workers there are.
    """
    servers = min((addresses_of(one.servers) for one in s.site.upstreams), default=0)
    each = _THREADS * servers // s.workers if s.workers_are_known else 0
    return min(SMALLEST_KEPT, each)


def as_proposed(decision: Decision) -> Decision:
    """The decision for a configuration that stands, where the requests at once are assumed."""
    if decision.confidence != "low" or not decision.settings:
        return decision
    return replace(
        decision,
        verdict="not_enough_evidence",
        summary=_summary(0, is_known=False, is_default=False),
        settings=[],
        proposed=decision.settings,
    )


_ALL_PORTS: Final = (1024, 65535)
"""Ports that no service of the system has by right (RFC 6335, section 6)."""
_PORTS: Final = _ALL_PORTS[1] - _ALL_PORTS[0] + 1


def _ports_held(s: Situation) -> tuple[int, int] | None:
    """Connections to one address of the servers at the peak, and the local ports for them.

    Null where all have one, or something is not known: a connection takes a port of its own
    towards each address and port, and a socket file none.
    """
    groups = s.site.upstreams
    addresses = {one for group in groups for one in group.servers if "unix:" not in one}
    ports, peak = local_ports(s.facts), s.concurrency.value
    if not addresses or ports is None or not peak or s.concurrency.provenance == "assumed":
        return None
    each = math.ceil(peak / max(1, addresses_of(sorted(addresses))))
    return (each, ports) if each > ports else None


def _more_ports(s: Situation) -> list[HostSetting]:
    """All ports that there are, where the peak needs more than there are by default."""
    if (held := _ports_held(s)) is None or held[1] >= _PORTS:
        return []
    return [
        HostSetting(
            kind="sysctl",
            name=PORTS_SYSCTL,
            value=" ".join(map(str, _ALL_PORTS)),
            before=s.facts.kernel.sysctls.get(PORTS_SYSCTL, ""),
            reason=f"{held[0]} connections to one address of the servers, {held[1]} ports for them",
            decision="upstream-keepalive",
        )
    ]


def _lacking_ports(s: Situation) -> list[str]:
    """Servers or own addresses that the peak needs, where ports are what is short."""
    if (held := _ports_held(s)) is None:
        return []
    each, ports = held
    text = (
        f"{each} connections at once to one address of the servers need as many local ports, and "
        f"this host has {ports}"
    )
    times = math.ceil(each / max(ports, _PORTS))
    if times == 1:
        return [f"{text}: all of them ({PORTS_SYSCTL}) are enough"]
    most = max(ports, _PORTS)
    more = f"{times} times as many addresses or ports of the servers, or {times} of this host"
    return [f"{text}, {most} at most: it takes {more} (proxy_bind)"]


def _ports(s: Situation) -> list[Evidence]:
    """The local ports, where a new connection for each request uses them up."""
    rate = 0.0 if s.rate.provenance == "assumed" else s.rate.value or 0.0
    if not uses_up_ports(s.facts, new_per_second=rate):
        return []
    return [Evidence(fact=PORTS_FACT, value=s.facts.kernel.sysctls[PORTS_SYSCTL])]


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
    """The load that the servers of a group must bear."""
    each = f"keepalive {idle} in each worker"
    if s.workers_are_known:
        each = f"{s.workers * idle} ({plural(s.workers, 'worker')} x keepalive {idle})"
    return (
        f"idle connections of all workers add up at the servers of an upstream: {each}; {_HELD} "
        "(Apache prefork, an application with a few threads), so that it needs more of these"
    )


def addresses_of(servers: Sequence[str]) -> int:
    """Addresses that ``server`` lines (their arguments) may have together."""
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
            "upstream-keepalive",
            "upstream",
            "zone",
            f"upstream_{upstream.name}",
            zone_size(upstream.servers),
            block=upstream.name,
            reason="the workers share what they know of failed servers",
        )
        for upstream in s.site.upstreams
    ]


WATCH_COMMAND: Final = "curl -N http://127.0.0.1/STREAM"
_READ_TIMEOUT_SECONDS = 60
"""``proxy_read_timeout``. Source: ngx_http_proxy_merge_loc_conf."""
_MOST_SECONDS = 86_400
_ROOM = 2.0
"""Over the longest silence: a heartbeat may come late."""


def decide_streaming(s: Situation, _plan: PoolPlan) -> Decision:
    """``streaming``: streams of events (notifications, tokens of a model) passed on as they come.

    Somebody must tell of them: the site (``[site] streams``), a configuration whose locations say
    so (their path, ``Accept: text/event-stream``, ``X-Accel-Buffering``), or a log with such a
    location. A buffered answer is passed on when a buffer is full or the answer ends: asked for in
    HTTP/1.0, which was nginx's default up to 1.29.6, that is after sixteen events of 256 bytes.
    Forty streams of 20 such events a second came 14 events at a time and 0.35 s late (p50), with
    ``proxy_buffering off`` each by itself and 0.1 ms late; gzip of ``text/event-stream`` held a
    stream of 100 events back to its end (2026-11-24, nginx 1.22.1, ``benchmarks/README.md``).
    ``proxy_buffering off`` in the location of the stream passes on each read, whatever the server
    answers with, and has gzip flush it. In HTTP/1.1 a server that answers in chunks needs none of
    it, nor one that says ``X-Accel-Buffering: no``.

    nginx gives up on a stream that says nothing for ``proxy_read_timeout`` (60 s). How long one is
    silent only its maker knows: where the site says so (``stream_silence_seconds``) there is room
    for twice that.
    """
    evidence = _told(s)
    if not evidence:
        return not_applicable(
            "streaming",
            "Nothing tells of streams of events.",
            flips="[site] streams names the locations that they have",
        )
    if s.kind in ("static", "media") and not s.site.upstreams:
        return not_applicable(
            "streaming",
            "Nothing is fetched from an upstream that could stream.",
            evidence=evidence,
            flips="the site has an upstream",
        )
    locations = list(dict.fromkeys(str(one.value) for one in evidence))
    silence = s.site.stream_silence_seconds
    said = ", ".join(locations)
    risks = [
        "limit_rate does nothing there, and a slow client holds its upstream's connection",
    ]
    if silence is None:
        risks.append(
            f"a stream that says nothing for {_READ_TIMEOUT_SECONDS} s is cut "
            "(proxy_read_timeout): send heartbeats, or say [site] stream_silence_seconds"
        )
    return Decision(
        id="streaming",
        verdict="set",
        summary=f"Not buffered: {said}; an event is passed on when it comes.",
        settings=[line for location in locations for line in _lines(s, location, silence)],
        evidence=[
            *evidence,
            *(
                [
                    Evidence(
                        fact="site.stream_silence_seconds",
                        value=silence,
                        unit="s",
                        provenance="declared",
                    )
                ]
                if silence is not None
                else []
            ),
        ],
        confidence="medium",
        flips_when=["its server answers in chunks or says X-Accel-Buffering: no itself"],
        risks=risks,
        next_command=WATCH_COMMAND,
    )


def _told(s: Situation) -> list[Evidence]:
    """The locations of streams, each with who told of it."""
    found = [
        Evidence(fact="site.streams", value=one, provenance="declared") for one in s.site.streams
    ]
    learnt = s.workload.traffic.locations if s.workload.traffic else []
    return found + [
        Evidence(fact="workload.traffic.locations", value=one.location, provenance="learnt")
        for one in learnt
        if one.location.startswith("/")
        and is_stream_path(one.location)
        and one.location not in s.site.streams
    ]


def _lines(s: Situation, location: str, silence: float | None) -> list[Setting]:
    why = "events are passed on as they come, whatever their server answers with"
    found = [setting("streaming", "location", "proxy_buffering", "off", reason=why, block=location)]
    if s.kind == "cache":
        why = "no stream is an object that could be kept for others"
        found.append(
            setting("streaming", "location", "proxy_cache", "off", reason=why, block=location)
        )
    if silence is not None and silence * _ROOM > _READ_TIMEOUT_SECONDS:
        seconds = math.ceil(min(_MOST_SECONDS, silence * _ROOM))
        said = f"for {silence:g} s" if silence < _MOST_SECONDS else "for as long as it likes"
        why = f"a stream may say nothing {said}"
        timeout = f"{seconds}s"
        found.append(
            setting(
                "streaming", "location", "proxy_read_timeout", timeout, reason=why, block=location
            )
        )
    return found
