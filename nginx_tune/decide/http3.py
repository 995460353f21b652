"""``http3``: QUIC beside TCP, where somebody wants it.

It is off unless the site asks for it (``[site] http3 = true``, or a configuration has a ``quic``
listener) or a log shows clients who speak it: what HTTP/3 gives, a round trip less and streams
that do not wait for each other's lost packets, depends on how far away the clients are, and what
it takes is certain. Large bodies cost three to six times the CPU of HTTP/2
(``benchmarks/scenarios/protocols.toml``), ``quic_gso on`` half of that; each stream takes a slot of
``worker_connections``, some six for a client that is idle and one more for each request; a reload
takes answers from clients of HTTP/3 in every release so far
(``benchmarks/scenarios/quic-reload.toml``).

With more than one worker a ``quic`` listener needs ``reuseport``: packets of one connection would
else come to any of them. A client whose port changes (a NAT that forgot it) then comes to another
worker, which does not know it. Browsers learn of HTTP/3 by Alt-Svc, or by DNS. Of a stream no more
than ``http3_stream_buffer_size`` (64 KiB) is under way, so that a download has at most that in a
round trip: it is raised where the round trip and what clients take are known (``round_trip`` and
``concurrency`` of the workload), never by a guess. ``observe`` measures the round trip at the
clients that nginx has: the kernel keeps it for each of their connections (``tcpi_rtt``).
"""

from __future__ import annotations

import re
from typing import Final

from nginx_tune.conf.sockets import socket_name
from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    LEARN_COMMAND,
    not_applicable,
    setting,
    validate_command,
)
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Context, Decision, Evidence, Setting
from nginx_tune.documents.site import tls_listens
from nginx_tune.documents.units import nginx_size

ID: Final = "http3"
MODULE: Final = "--with-http_v3_module"
_SINCE = (1, 25, 0)
_GSO_KERNEL = (4, 18)
"""UDP_SEGMENT (udp(7)); nginx tries it when it is built, and is built there."""
_GSO_BYTES = 16 << 10
"""Of a body: nginx gathers packets where more than three wait (ngx_quic_allow_segmentation)."""
_STREAM_BYTES = 64 << 10
"""``http3_stream_buffer_size``. Source: ngx_http_v3_module.c."""
_MOST_STREAM_BYTES = 1 << 20
_IDLE_SLOTS = 6
"""Of ``worker_connections`` for a connection of QUIC and its streams of control.

Source: ngx_quic_create_stream() takes a connection for each stream, of one direction too. Held
idle by the load probe, which opens one such stream, 59 clients fit into 256 slots of nginx 1.30.6
and 119 into 512: 4.3 each. Browsers open three (RFC 9114 §6.2, RFC 9204 §4.2), so two more.
"""
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def decide_http3(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    wish = _wish(s)
    if wish is None:
        return not_applicable(
            ID,
            "Left off: neither the site nor the workload asks for HTTP/3.",
            flips="[site] http3 = true, or a log whose $server_protocol has HTTP/3.0",
        )
    if s.build.version is None or s.build.flags is None:
        return Decision(
            id=ID,
            verdict="not_enough_evidence",
            summary="Left off: version and build of nginx, which must have it, are not known.",
            evidence=[wish, version_evidence(s.build)],
            flips_when=["the facts have the version and the configure arguments of nginx"],
            next_command=FACTS_COMMAND,
        )
    evidence = [
        wish,
        version_evidence(s.build),
        Evidence(fact=f"nginx.flags[{MODULE}]", value=not s.build.lacks(MODULE)),
    ]
    if (reason := _hindrance(s)) is not None:
        why, flips = reason
        return not_applicable(ID, why, evidence=evidence, flips=flips)
    lines = [_listen(s), *_gso(s), *_stream_buffer(s), _announcement(s)]
    workers = Quantity("workers", s.workers)
    evidence += known(workers, s.object_bytes, s.round_trip, s.client_rate)
    is_assumed = wish.provenance == "assumed"
    return Decision(
        id=ID,
        verdict="not_enough_evidence" if is_assumed else "enable",
        summary="Left off: that clients speak HTTP/3 is only assumed."
        if is_assumed
        else "On, since it is wanted: QUIC on the port of TLS, which browsers use once told.",
        settings=[] if is_assumed else lines,
        proposed=lines if is_assumed else [],
        evidence=evidence,
        confidence="low" if is_assumed else "medium",
        flips_when=_flips(s),
        risks=[
            (
                "a reload takes answers under way from clients of HTTP/3, and none from those of "
                "HTTP/2: reload seldom, and bound it by worker_shutdown_timeout"
            ),
            "large bodies cost several times the CPU of HTTP/2",
            (
                f"an idle client takes some {_IDLE_SLOTS} slots of worker_connections, and each "
                "request one more"
            ),
            *_of_moving_clients(s),
            _of_uploads(lines),
            "UDP must come through: the firewall has to let the port in",
        ],
        next_command=LEARN_COMMAND if is_assumed else validate_command(s),
    )


def _of_uploads(lines: list[Setting]) -> str:
    """What a client may send before nginx has read: QUIC's window is bound to the buffer.

    Source: initial_max_stream_data_bidi_remote in ngx_quic_transport.c, from stream_buffer_size.
    """
    written = [one.args[0] for one in lines if one.directive == "http3_stream_buffer_size"]
    size = written[0] if written else nginx_size(_STREAM_BYTES)
    return f"of an upload no more than {size} comes in a round trip (http3_stream_buffer_size)"


def _of_moving_clients(s: Situation) -> list[str]:
    """What becomes of clients whose port changes, behind a NAT that forgets them."""
    others = s.workers - 1
    by_worker = (
        f"a client whose UDP port changes comes to another worker {others} times of {s.workers}, "
        "and loses its connection (reuseport without quic_bpf)"
    )
    return [
        *([by_worker] if others > 0 else []),
        (
            "its second change finds no connection ID where quic_active_connection_id_limit is 2, "
            "the default"
        ),
    ]


def offers_http3(s: Situation) -> bool:
    """Whether the decision turns it on."""
    wish = _wish(s)
    return (
        wish is not None
        and wish.provenance != "assumed"
        and s.build.version is not None
        and s.build.flags is not None
        and _hindrance(s) is None
    )


def slots_of_a_client(s: Situation) -> int:
    """Slots that a client of HTTP/3 takes beside that of its request; 0 where it is off."""
    return _IDLE_SLOTS if offers_http3(s) else 0


def _wish(s: Situation) -> Evidence | None:
    """Who asks for it."""
    if s.site.http3:
        return Evidence(fact="site.http3", value=True, provenance="declared")
    version = s.workload.http_version
    share = version.shares.get("3", 0.0)
    if share > 0:
        fact = "workload.http_version.shares[3]"
        return Evidence(fact=fact, value=share, provenance=version.provenance)
    if version.value == "3":
        fact = "workload.http_version.value"
        return Evidence(fact=fact, value="3", provenance=version.provenance)
    return None


def _hindrance(s: Situation) -> tuple[str, str] | None:
    """Why it cannot be had, and what would change that."""
    tls = s.site.tls
    if tls is None:
        return (
            "QUIC is always encrypted, and the site has no certificate.",
            "[site] tls names a certificate and its key",
        )
    if not s.build.at_least(*_SINCE) or s.build.lacks(MODULE):
        return f"This nginx is without HTTP/3 ({MODULE}, since 1.25.0).", f"nginx is built {MODULE}"
    if tls.protocols and "TLSv1.3" not in tls.protocols:
        return "QUIC has TLS 1.3 alone, and the site has not.", "[site] tls has TLSv1.3"
    if _port(s) is None:
        return (
            "Every listener of the site's TLS is a unix socket, and QUIC is UDP.",
            "the site listens for TLS on an address and port",
        )
    return None


def _listen(s: Situation) -> Setting:
    if s.workers == 1:
        return setting(ID, "server", "listen", "quic", reason="HTTP/3 beside TCP, on its port")
    reason = "HTTP/3 beside TCP; without reuseport any worker would read any packet"
    return setting(ID, "server", "listen", "quic", "reuseport", reason=reason)


def _gso(s: Situation) -> list[Setting]:
    """Where the kernel has it and bodies are longer than a few packets, as somebody knows."""
    mean = s.object_bytes
    is_long = (mean.value or 0) >= _GSO_BYTES and mean.provenance != "assumed"
    if not is_long or not _has_gso(s):
        return []
    reason = "up to 64 packets in a system call: half of the CPU of large bodies"
    return [setting(ID, "http", "quic_gso", "on", reason=reason)]


def _has_gso(s: Situation) -> bool:
    match = _RELEASE.match(s.facts.kernel.release or "")
    return (
        s.facts.kernel.system == "Linux"
        and match is not None
        and (int(match[1]), int(match[2])) >= _GSO_KERNEL
    )


def _stream_buffer(s: Situation) -> list[Setting]:
    """As much of a stream under way as a client takes in a round trip, by a power of two."""
    trip, rate, mean = s.round_trip, s.client_rate, s.object_bytes
    if any(one.value is None or one.provenance == "assumed" for one in (trip, rate, mean)):
        return []
    wanted = (trip.value or 0) * (rate.value or 0)
    if wanted <= _STREAM_BYTES or (mean.value or 0) <= _STREAM_BYTES:
        return []
    size = _STREAM_BYTES
    while size < wanted and size < _MOST_STREAM_BYTES:
        size *= 2
    reason = f"of a stream under way; 64k in {trip.value:.3g} s would be less than clients take"
    return [setting(ID, "http", "http3_stream_buffer_size", nginx_size(size), reason=reason)]


def _announcement(s: Situation) -> Setting:
    """Alt-Svc; where locations have a header of their own (caches), in these."""
    value = f'h3=":{_port(s)}"; ma=86400'
    reason = "browsers begin with TCP and go over when they are told (RFC 7838)"
    context: Context = "location" if s.kind == "cache" else "http"
    return setting(ID, context, "add_header", "Alt-Svc", value, "always", reason=reason)


def _port(s: Situation) -> str | None:
    """Of the first address of TLS; none where all are sockets of files."""
    for item in tls_listens(s.site.listen):
        name = socket_name(item.split()[0] if item.split() else "")
        if name.first:
            return f"{name.first}"
    return None


def _flips(s: Situation) -> list[str]:
    found = ["nobody wants it, or UDP does not come through to this host"]
    if s.round_trip.value is None or s.client_rate.value is None:
        found.append(
            "round_trip.p90_seconds and concurrency.client_bytes_per_second of the workload are "
            "known (observe measures the first, at 100 client connections or more, and learn reads "
            "it from $tcpinfo_rtt): then http3_stream_buffer_size follows, which is 64 KiB in a "
            "round trip"
        )
    return found
