"""Proxied requests: ``upstream-keepalive``, ``streaming``."""

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
"""Divisor of ``worker_connections`` that gives the most idle connections to upstreams."""
ADDRESS_BYTES: Final = 4096
"""Bytes of a zone per address. The server takes 0.8 to 1 KiB (63 fit in 64k, on 1.18 to 1.30), and
its TLS session up to 3 KiB (ngx_http_upstream_save_round_robin_peer_session)."""
ADDRESSES_OF_NAME: Final = 8
"""Addresses to expect for a host name; each is a separate server in the zone."""
SMALLEST_ZONE_BYTES: Final = 64 << 10
ZONE_OF_NAMES_BYTES: Final = 1 << 20
"""Bytes of a zone for names: about 1000 addresses, or 256 with a TLS session each."""
IDLE_TIME: Final = "1s"
"""Idle time of a connection to an upstream, shorter than the idle time of usual servers. A POST on
a connection that its server is closing gets 502: 32 of 640 with a server that closes after 2 s, in
rounds of 64 every 2 s (1.22.1, on one host); none of 640 with 1s. The short time costs one
handshake for each second in which a connection is not needed."""
_SERVERS: Final = "gunicorn 2 s, Node.js, Apache and uvicorn 5 s, Tomcat 20 s"
_CLOSED_BY_THE_ORIGIN: Final = (
    "the origin must keep idle connections longer than nginx does: a POST on a connection that the "
    "origin is closing gets 502 (proxy_next_upstream retries only idempotent requests); "
)
_BOUNDED: Final = (
    f"keepalive_timeout {IDLE_TIME} is below the defaults of {_SERVERS}; an existing keepalive "
    "keeps its own, 60s by default"
)
_UNBOUNDED: Final = f"nginx before 1.15.3 has no limit of its own; server defaults are {_SERVERS}"
_WHY: Final = f"shorter than the idle timeouts of servers ({_SERVERS})"
_SINCE_1_29_7: Final = "32 for each location and worker since 1.29.7, for 60s"
_HELD: Final = "idle connections occupy a server that has a thread or process for each connection"
_IS_ADDRESS: Final = re.compile(r"unix:|\[|[0-9.]+(?::[0-9]+)?(?:\s|$)")


def decide_upstream_keepalive(s: Situation, _plan: PoolPlan) -> Decision:
    """``upstream-keepalive``: idle connections to upstreams.

    Without keepalive each proxied request pays for a handshake and leaves a local port in
    TIME_WAIT. Before 1.29.7 keepalive needs ``keepalive`` in the upstream, ``proxy_http_version
    1.1`` and an empty ``Connection``. Since then all of that is the default, with 32 idle
    connections per location and worker; a different number pays where the peak is known.

    On a server with a thread or process for each connection, every idle connection occupies one,
    and nginx cannot detect such servers. With eight threads, sixteen clients and connections kept
    for 5 s, 19 of 192 requests had no answer within 9 s; without keepalive none waited. With
    ``keepalive 60`` on 1.30, a server of 80 threads that keep connections for 60 s left 120 of 200
    clients without an answer for 25 s; with the default, or with ``keepalive_timeout 1s``, none.

    So more than 16 are set only where the peak of concurrent requests is known, since the servers
    must bear that peak anyway. Where it is not, a generated file has ``keepalive_timeout 1s``
    (1.15.3) and so few idle connections that each server has a free thread if it has eight. With
    four workers and one such server, nine of ten requests from sixteen clients took at most 0.05 s
    with ``keepalive 2`` and 1.3 s with 16 (1.22.1). In an existing configuration, or where that
    timeout is not available, this is only proposed.

    Each connection takes a local port per address of the servers. Where the peak needs more ports
    than the host has, a risk names the number of addresses that would suffice. Idle connections
    take at most a quarter of a worker's slots.

    A site that mainly serves files may proxy requests too. Where its upstreams are known, this is
    decided for the peak of all requests.
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
    reason = f"idle connections per worker; peak of {wanted} concurrent requests per worker"
    if s.concurrency.provenance == "assumed":
        reason = f"safe for a server with {_THREADS} threads; the peak is not known"
    if idle == slots < wanted:
        reason += ", limited to a quarter of its slots"
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
                reason="the default is close",
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
"""Threads or processes of a small server that has one for each connection."""


def _harmless(s: Situation) -> int:
    """Idle connections per worker that leave each server a free thread.

    The number is 0 if even one per worker is too many, or if the workers are not known.
    """
    servers = min((addresses_of(upstream.servers) for upstream in s.site.upstreams), default=0)
    each = _THREADS * servers // s.workers if s.workers_are_known else 0
    return min(SMALLEST_KEPT, each)


def as_proposed(decision: Decision) -> Decision:
    """The decision for an existing configuration, without settings if the peak is assumed."""
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
"""Ports outside the range of system services (RFC 6335, section 6)."""
_PORTS: Final = _ALL_PORTS[1] - _ALL_PORTS[0] + 1


def _ports_held(s: Situation) -> tuple[int, int] | None:
    """Connections to one server address at the peak, and the number of local ports.

    None if there are enough ports or a number is not known. Each connection to a remote address and
    port takes a local port; connections to a unix socket take none.
    """
    groups = s.site.upstreams
    addresses = {server for group in groups for server in group.servers if "unix:" not in server}
    ports, peak = local_ports(s.facts), s.concurrency.value
    if not addresses or ports is None or not peak or s.concurrency.provenance == "assumed":
        return None
    each = math.ceil(peak / max(1, addresses_of(sorted(addresses))))
    return (each, ports) if each > ports else None


def _more_ports(s: Situation) -> list[HostSetting]:
    """The widest range of local ports, if the peak needs more than the current range has."""
    if (held := _ports_held(s)) is None or held[1] >= _PORTS:
        return []
    return [
        HostSetting(
            kind="sysctl",
            name=PORTS_SYSCTL,
            value=" ".join(map(str, _ALL_PORTS)),
            before=s.facts.kernel.sysctls.get(PORTS_SYSCTL, ""),
            reason=f"{held[0]} connections to one server address need more than {held[1]} ports",
            decision="upstream-keepalive",
        )
    ]


def _lacking_ports(s: Situation) -> list[str]:
    """The risk of too few local ports, with the number of server addresses that would suffice."""
    if (held := _ports_held(s)) is None:
        return []
    each, ports = held
    text = (
        f"{each} concurrent connections to one server address need as many local ports, and this "
        f"host has {ports}"
    )
    times = math.ceil(each / max(ports, _PORTS))
    if times == 1:
        return [f"{text}: the full range is enough ({PORTS_SYSCTL})"]
    most = max(ports, _PORTS)
    more = f"{times} times as many server addresses or ports, or {times} addresses of this host"
    return [f"{text}, and can have {most}: use {more} (proxy_bind)"]


def _ports(s: Situation) -> list[Evidence]:
    """The local ports as evidence, if a new connection for each request uses them up."""
    rate = 0.0 if s.rate.provenance == "assumed" else s.rate.value or 0.0
    if not uses_up_ports(s.facts, new_per_second=rate):
        return []
    return [Evidence(fact=PORTS_FACT, value=s.facts.kernel.sysctls[PORTS_SYSCTL])]


def _summary(idle: int, *, is_known: bool, is_default: bool) -> str:
    if not is_known:
        left = f"Left at the default, {_SINCE_1_29_7}" if is_default else "Left off"
        return f"{left}: the peak of concurrent requests is only assumed, and {_HELD}."
    if is_default:
        return (
            f"keepalive {idle}, each idle for at most {IDLE_TIME}: the default is {_SINCE_1_29_7}; "
            "HTTP/1.1 and an empty Connection are defaults too."
        )
    return f"keepalive {idle}: without it each request opens a connection to the origin."


def _held_at_the_servers(s: Situation, idle: int) -> str:
    """The risk that idle connections occupy threads of an upstream's servers."""
    each = f"keepalive {idle} in each worker"
    if s.workers_are_known:
        each = f"{s.workers * idle} ({plural(s.workers, 'worker')} x keepalive {idle})"
    return (
        f"idle connections of all workers add up at the servers of an upstream: {each}; {_HELD} "
        "(Apache prefork, an application with few threads), so it may need more of these"
    )


def addresses_of(servers: Sequence[str]) -> int:
    """Upper bound of the addresses in the arguments of ``server`` directives."""
    return sum(1 if _IS_ADDRESS.match(server) else ADDRESSES_OF_NAME for server in servers)


def zone_size(servers: Sequence[str]) -> str:
    """Size of a zone for the arguments of ``server`` directives, in nginx's notation.

    If a zone is too small, nginx does not start, and does not reload once a name has more
    addresses: "no memory in upstream zone". Unused memory costs nothing, so names get a large zone.
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
            reason="workers share the state of failed servers",
        )
        for upstream in s.site.upstreams
    ]


WATCH_COMMAND: Final = "curl -N http://127.0.0.1/STREAM"
_READ_TIMEOUT_SECONDS = 60
"""``proxy_read_timeout``. Source: ngx_http_proxy_merge_loc_conf."""
_MOST_SECONDS = 86_400
_ROOM = 2.0
"""Ratio of the timeout to the longest silence, since a heartbeat may be late."""


def decide_streaming(s: Situation, _plan: PoolPlan) -> Decision:
    """``streaming``: event streams (notifications, tokens of a model) passed on unbuffered.

    Streams are known from the site (``[site] streams``), from a configuration (the path of a
    location, ``Accept: text/event-stream``, ``X-Accel-Buffering``), or from a log with such a
    location. nginx passes a buffered response on when a buffer is full or the response ends: with
    HTTP/1.0, its default up to 1.29.6, after sixteen events of 256 bytes. Forty streams of 20 such
    events a second arrived 14 events at a time and 0.35 s late (p50); with ``proxy_buffering off``
    they arrived one by one and 0.1 ms late. gzip of ``text/event-stream`` delayed a stream of 100
    events to its end (2026-11-24, nginx 1.22.1, ``benchmarks/README.md``).

    ``proxy_buffering off`` in the location passes each read on, whatever the upstream sends, and
    makes gzip flush it. An upstream that sends chunked HTTP/1.1 or ``X-Accel-Buffering: no`` does
    not need it.

    nginx closes a stream that is silent for ``proxy_read_timeout`` (60 s). Where the site declares
    the longest silence (``stream_silence_seconds``), the timeout is twice that.
    """
    evidence = _stream_evidence(s)
    if not evidence:
        return not_applicable(
            "streaming", "No event streams are known.", flips="[site] streams names their locations"
        )
    if s.kind in ("static", "media") and not s.site.upstreams:
        return not_applicable(
            "streaming",
            "The site has no upstream, so it has no event streams.",
            evidence=evidence,
            flips="the site has an upstream",
        )
    locations = list(dict.fromkeys(str(item.value) for item in evidence))
    silence = s.site.stream_silence_seconds
    risks = ["limit_rate has no effect there, and a slow client occupies an upstream connection"]
    if silence is None:
        risks.append(
            f"a stream that is silent for {_READ_TIMEOUT_SECONDS} s is closed "
            "(proxy_read_timeout): send heartbeats, or set [site] stream_silence_seconds"
        )
    return Decision(
        id="streaming",
        verdict="set",
        summary=f"proxy_buffering off for {', '.join(locations)}; events are passed on as they "
        "arrive.",
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
        flips_when=["the upstream sends chunked HTTP/1.1 or X-Accel-Buffering: no"],
        risks=risks,
        next_command=WATCH_COMMAND,
    )


def _stream_evidence(s: Situation) -> list[Evidence]:
    """The locations of streams as evidence."""
    found = [
        Evidence(fact="site.streams", value=location, provenance="declared")
        for location in s.site.streams
    ]
    learnt = s.workload.traffic.locations if s.workload.traffic else []
    return found + [
        Evidence(fact="workload.traffic.locations", value=location.location, provenance="learnt")
        for location in learnt
        if location.location.startswith("/")
        and is_stream_path(location.location)
        and location.location not in s.site.streams
    ]


def _lines(s: Situation, location: str, silence: float | None) -> list[Setting]:
    why = "events are passed on as they arrive, whatever headers the upstream sends"
    found = [setting("streaming", "location", "proxy_buffering", "off", reason=why, block=location)]
    if s.kind == "cache":
        why = "a stream cannot be cached"
        found.append(
            setting("streaming", "location", "proxy_cache", "off", reason=why, block=location)
        )
    if silence is not None and silence * _ROOM > _READ_TIMEOUT_SECONDS:
        seconds = math.ceil(min(_MOST_SECONDS, silence * _ROOM))
        limit = f"for {silence:g} s" if silence < _MOST_SECONDS else "indefinitely"
        why = f"a stream may be silent {limit}"
        timeout = f"{seconds}s"
        found.append(
            setting(
                "streaming", "location", "proxy_read_timeout", timeout, reason=why, block=location
            )
        )
    return found
