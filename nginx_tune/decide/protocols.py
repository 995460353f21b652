"""Protocols: ``http2``, ``http3``."""

import re
from typing import Final

from nginx_tune.conf.http2 import ONE_LIMIT_SINCE, HeaderBuffers
from nginx_tune.conf.listeners import socket_name
from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    LEARN_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
    version_evidence,
)
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import (
    Decision,
    DirectiveContext,
    Evidence,
    HostSetting,
    Setting,
)
from nginx_tune.documents.site import tls_listens
from nginx_tune.documents.units import nginx_size

HTTP2_MODULE: Final = "--with-http_v2_module"
_HTTP2_SINCE = (1, 9, 5)
_DIRECTIVE_SINCE = (1, 25, 1)


def decide_http2(s: Situation, _plan: PoolPlan) -> Decision:
    """``http2``: one connection for all requests of a browser, where the site has TLS.

    Browsers speak HTTP/2 over TLS only. Instead of six connections, each with its own handshake,
    they open one. The version is negotiated in the TLS handshake, so other clients keep HTTP/1.1.
    The gain depends on the clients and is not predicted. Files are read the same way, since under
    TLS they go through buffers either way.

    Before 1.25.1 ``http2`` is a parameter of ``listen`` and applies to every server on that
    address; from 1.25.1 on it is a directive of the server.

    In an existing configuration HTTP/2 stays off, and the line is named, where something depends on
    HTTP/1.1: a connection limit by address, Lua, an ``if`` on ``$server_protocol``, names that
    ``stream`` reads from TLS, a connection header that nginx is configured to send (``add_header
    Connection``, which makes clients abort the response), and unbuffered request bodies. With
    ``proxy_request_buffering off`` an upload transfers at most 64 KiB per round trip;
    ``client_body_buffer_size 1m`` there, or ``http2_body_preread_size``, opens the window.

    Before 1.19.7 HTTP/2 closes connections on request headers that HTTP/1.1 accepts: a field of
    more than 4 KiB, or more than 16 KiB in all. There ``http2_max_field_size`` and
    ``http2_max_header_size`` are set as large as ``client_header_buffer_size`` and
    ``large_client_header_buffers``. HTTP/2 stays off where one of these two is already set smaller,
    and in later versions where ``client_header_buffer_size`` exceeds
    ``large_client_header_buffers``, which HTTP/2 then uses.
    """
    if s.site.tls is None:
        return not_applicable(
            "http2",
            "Browsers speak HTTP/2 over TLS only, and the site has no TLS.",
            flips="[site] tls names a certificate and its key",
        )
    evidence = [version_evidence(s.build)]
    if s.build.version is None or s.build.flags is None:
        return Decision(
            id="http2",
            verdict="not_enough_evidence",
            summary="Left off: the version and build of nginx, which determine the syntax, are not "
            "known.",
            evidence=evidence,
            flips_when=["the facts have the version and the configure arguments of nginx"],
            next_command=FACTS_COMMAND,
        )
    evidence.append(
        Evidence(fact=f"nginx.flags[{HTTP2_MODULE}]", value=not s.build.lacks(HTTP2_MODULE))
    )
    if not s.build.at_least(*_HTTP2_SINCE) or s.build.lacks(HTTP2_MODULE):
        return not_applicable(
            "http2",
            f"This nginx has no HTTP/2 ({HTTP2_MODULE}, since 1.9.5).",
            evidence=evidence,
            flips=f"nginx is built {HTTP2_MODULE}",
        )
    return Decision(
        id="http2",
        verdict="enable",
        summary="On: a browser sends all its requests over one connection, with one handshake.",
        settings=[_line(s), *_header_sizes(s)],
        evidence=evidence,
        confidence="medium",
        flips_when=["the clients are not browsers, or the site has no TLS"],
        risks=["one connection may run http2_max_concurrent_streams (128) requests at once"],
    )


def _line(s: Situation) -> Setting:
    reason = "one connection and one handshake for all requests of a browser"
    if s.build.at_least(*_DIRECTIVE_SINCE):
        return setting("http2", "server", "http2", "on", reason=reason)
    return setting("http2", "server", "listen", "http2", reason=reason)


def _header_sizes(s: Situation) -> list[Setting]:
    """Limits that let HTTP/2 accept the same headers as HTTP/1.1."""
    if s.build.at_least(*ONE_LIMIT_SINCE):
        return []
    reason = "before 1.19.7 HTTP/2 rejects larger request headers that HTTP/1.1 accepts"
    return [
        setting("http2", "http", name, nginx_size(size), reason=reason)
        for name, size in HeaderBuffers().as_http2_sizes.items()
    ]


HTTP3_MODULE: Final = "--with-http_v3_module"
_HTTP3_SINCE = (1, 25, 0)
_GSO_KERNEL = (4, 18)
"""First kernel with UDP_SEGMENT (udp(7))."""
_GSO_BYTES = 16 << 10
"""Smallest body that gains from ``quic_gso``, since nginx combines packets only if more than three
wait (ngx_quic_allow_segmentation)."""
_STREAM_BYTES = 64 << 10
"""``http3_stream_buffer_size``. Source: ngx_http_v3_module.c."""
_MOST_STREAM_BYTES = 1 << 20
_IDLE_SLOTS = 6
"""``worker_connections`` slots of an idle QUIC connection with its control streams. Source:
ngx_quic_create_stream() takes a connection for each stream, also for a unidirectional stream. With
idle clients of the load probe, which opens one unidirectional stream, 59 fit into 256 slots of
nginx 1.30.6 and 119 into 512: 4.3 slots each. Browsers open three such streams (RFC 9114 §6.2, RFC
9204 §4.2), so two more."""
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def decide_http3(s: Situation, _plan: PoolPlan) -> Decision:
    """``http3``: QUIC in addition to TCP, where it is requested.

    It is off unless the site requests it (``[site] http3 = true``, or a ``quic`` listener in a
    configuration) or a log shows clients that speak it. The benefit, one round trip less and
    streams that do not wait for each other's lost packets, depends on the distance of the clients;
    the cost is certain. Large bodies take three to six times the CPU of HTTP/2
    (``benchmarks/scenarios/protocols.toml``), half of that with ``quic_gso on``. An idle client
    takes about six slots of ``worker_connections``, and each request one more. A reload drops
    responses of HTTP/3 clients in every release so far
    (``benchmarks/scenarios/quic-reload.toml``).

    With more than one worker a ``quic`` listener needs ``reuseport``; otherwise any worker might
    get the packets of a connection. A client whose port changes (NAT rebinding) then reaches a
    worker that does not know it. Browsers discover HTTP/3 by Alt-Svc or DNS. nginx has at most
    ``http3_stream_buffer_size`` (64 KiB) of a stream in flight, which limits a download to that
    much per round trip. It is raised where the round trip and the clients' rate are known
    (``round_trip`` and ``concurrency`` of the workload), and never by a guess. ``observe`` measures
    the round trip of current clients from the kernel (``tcpi_rtt``).

    UDP has one buffer for all clients of a worker, 208 KiB by default, and drops packets of a burst
    that arrives while the worker is busy. The host settings raise it to 7.5 MB.
    """
    wish = _wish(s)
    if wish is None:
        return not_applicable(
            "http3",
            "Left off: neither the site nor the workload requests HTTP/3.",
            flips="[site] http3 = true, or a log whose $server_protocol has HTTP/3.0",
        )
    if s.build.version is None or s.build.flags is None:
        return Decision(
            id="http3",
            verdict="not_enough_evidence",
            summary="Left off: not known whether this nginx has HTTP/3.",
            evidence=[wish, version_evidence(s.build)],
            flips_when=["the facts have the version and the configure arguments of nginx"],
            next_command=FACTS_COMMAND,
        )
    evidence = [
        wish,
        version_evidence(s.build),
        Evidence(fact=f"nginx.flags[{HTTP3_MODULE}]", value=not s.build.lacks(HTTP3_MODULE)),
    ]
    if (reason := _hindrance(s)) is not None:
        why, flips = reason
        return not_applicable("http3", why, evidence=evidence, flips=flips)
    lines = [_listen(s), *_gso(s), *_stream_buffer(s), _announcement(s)]
    workers = Quantity("workers", s.workers)
    evidence += known(workers, s.object_bytes, s.round_trip, s.client_rate)
    is_assumed = wish.provenance == "assumed"
    return Decision(
        id="http3",
        verdict="not_enough_evidence" if is_assumed else "enable",
        summary="Left off: it is only assumed that clients speak HTTP/3."
        if is_assumed
        else "On as requested: QUIC on the TLS port, which browsers discover by Alt-Svc.",
        settings=[] if is_assumed else lines,
        proposed=lines if is_assumed else [],
        evidence=evidence,
        confidence="low" if is_assumed else "medium",
        flips_when=_flips(s),
        risks=[
            (
                "a reload drops responses in flight to HTTP/3 clients, but not to HTTP/2 clients: "
                "reload seldom, and set worker_shutdown_timeout"
            ),
            "large bodies cost several times the CPU of HTTP/2",
            (
                f"an idle client takes about {_IDLE_SLOTS} slots of worker_connections, and each "
                "request one more"
            ),
            *_port_change_risks(s),
            _upload_risk(lines),
            "the firewall must admit UDP to the port",
        ],
        host_settings=[] if is_assumed else _udp_buffers(s),
        next_command=LEARN_COMMAND if is_assumed else validate_command(s.facts),
    )


_UDP_BUFFER_BYTES = 7_500_000
"""Buffer of a QUIC socket. Source: quic-go, wiki, UDP Buffer Sizes."""
_UDP_SYSCTLS = (
    ("net.core.rmem_max", "holds the QUIC packets that arrive while a worker is busy"),
    ("net.core.rmem_default", "applies to a quic listener without rcvbuf="),
    ("net.core.wmem_max", "holds what a worker sends in one turn of its event loop"),
)


def _udp_buffers(s: Situation) -> list[HostSetting]:
    """Sysctls for larger UDP buffers; TCP has its own limits (tcp_rmem, tcp_wmem).

    Source: Documentation/admin-guide/sysctl/net.rst; ngx_configure_listening_sockets(), which sets
            SO_RCVBUF only where ``listen`` has ``rcvbuf``.
    """
    found = []
    for name, reason in _UDP_SYSCTLS:
        before = s.facts.kernel.sysctls.get(name, "")
        if before.isdecimal() and int(before) >= _UDP_BUFFER_BYTES:
            continue
        found.append(
            HostSetting(
                kind="sysctl",
                name=name,
                value=str(_UDP_BUFFER_BYTES),
                before=before,
                reason=reason,
                decision="http3",
            )
        )
    return found if s.is_linux else []


def _upload_risk(lines: list[Setting]) -> str:
    """The risk that QUIC's flow-control window slows down uploads, with its limit.

    Source: initial_max_stream_data_bidi_remote in ngx_quic_transport.c, from stream_buffer_size.
    """
    written = [line.args[0] for line in lines if line.directive == "http3_stream_buffer_size"]
    size = written[0] if written else nginx_size(_STREAM_BYTES)
    return f"an upload transfers at most {size} per round trip (http3_stream_buffer_size)"


def _port_change_risks(s: Situation) -> list[str]:
    """The risks for clients whose UDP port changes, as after NAT rebinding."""
    others = s.workers - 1
    by_worker = (
        f"a client whose UDP port changes reaches another worker {others} times in {s.workers} and "
        "loses its connection (reuseport without quic_bpf)"
    )
    return [
        *([by_worker] if others > 0 else []),
        (
            "a client's second port change fails with the default of 2 for "
            "quic_active_connection_id_limit"
        ),
    ]


def offers_http3(s: Situation) -> bool:
    """True if the decision turns HTTP/3 on."""
    wish = _wish(s)
    return (
        wish is not None
        and wish.provenance != "assumed"
        and s.build.version is not None
        and s.build.flags is not None
        and _hindrance(s) is None
    )


def slots_of_a_client(s: Situation) -> int:
    """Slots of an HTTP/3 client besides those of its requests; 0 where HTTP/3 is off."""
    return _IDLE_SLOTS if offers_http3(s) else 0


def _wish(s: Situation) -> Evidence | None:
    """The reason to offer HTTP/3 (the site's request, or clients in a log), or None."""
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
    """The reason why HTTP/3 is impossible and the condition for it; None if it is possible."""
    tls = s.site.tls
    if tls is None:
        return (
            "QUIC is always encrypted, and the site has no certificate.",
            "[site] tls names a certificate and its key",
        )
    if not s.build.at_least(*_HTTP3_SINCE) or s.build.lacks(HTTP3_MODULE):
        return (
            f"This nginx has no HTTP/3 ({HTTP3_MODULE}, since 1.25.0).",
            f"nginx is built {HTTP3_MODULE}",
        )
    if tls.protocols and "TLSv1.3" not in tls.protocols:
        return "QUIC needs TLS 1.3, which the site does not offer.", "[site] tls has TLSv1.3"
    if _port(s) is None:
        return (
            "The site listens for TLS only on unix sockets, and QUIC needs UDP.",
            "the site listens for TLS on an address and port",
        )
    return None


def _listen(s: Situation) -> Setting:
    if s.workers == 1:
        return setting("http3", "server", "listen", "quic", reason="HTTP/3 on the same port as TCP")
    reason = "HTTP/3; without reuseport packets could reach the wrong worker"
    return setting("http3", "server", "listen", "quic", "reuseport", reason=reason)


def _gso(s: Situation) -> list[Setting]:
    """``quic_gso``, if the kernel supports it and bodies are known to be long enough."""
    mean = s.object_bytes
    is_long = (mean.value or 0) >= _GSO_BYTES and mean.provenance != "assumed"
    if not is_long or not _has_gso(s):
        return []
    reason = "up to 64 packets per system call halve the CPU time of large bodies"
    return [setting("http3", "http", "quic_gso", "on", reason=reason)]


def _has_gso(s: Situation) -> bool:
    match = _RELEASE.match(s.facts.kernel.release or "")
    return (
        s.facts.kernel.system == "Linux"
        and match is not None
        and (int(match[1]), int(match[2])) >= _GSO_KERNEL
    )


def _stream_buffer(s: Situation) -> list[Setting]:
    """A buffer for the bytes that a client receives in one round trip, a power of two."""
    trip, rate, mean = s.round_trip, s.client_rate, s.object_bytes
    if any(
        quantity.value is None or quantity.provenance == "assumed"
        for quantity in (trip, rate, mean)
    ):
        return []
    wanted = (trip.value or 0) * (rate.value or 0)
    if wanted <= _STREAM_BYTES or (mean.value or 0) <= _STREAM_BYTES:
        return []
    size = _STREAM_BYTES
    while size < wanted and size < _MOST_STREAM_BYTES:
        size *= 2
    reason = f"in flight per stream; clients take more than 64k per round trip of {trip.text}"
    return [setting("http3", "http", "http3_stream_buffer_size", nginx_size(size), reason=reason)]


def _announcement(s: Situation) -> Setting:
    """The Alt-Svc header, written in locations if these have other headers (caches)."""
    value = f'h3=":{_port(s)}"; ma=86400'
    reason = "tells browsers, which start with TCP, to switch to HTTP/3 (RFC 7838)"
    context: DirectiveContext = "location" if s.kind == "cache" else "http"
    return setting("http3", context, "add_header", "Alt-Svc", value, "always", reason=reason)


def _port(s: Situation) -> str | None:
    """The port of the first TLS address; None where all are unix sockets."""
    for item in tls_listens(s.site.listen):
        name = socket_name(item.split()[0] if item.split() else "")
        if name.first:
            return f"{name.first}"
    return None


def _flips(s: Situation) -> list[str]:
    found = ["HTTP/3 is not requested, or UDP does not reach this host"]
    if s.round_trip.value is None or s.client_rate.value is None:
        found.append(
            "http3_stream_buffer_size (64 KiB per round trip): the workload has "
            "round_trip.p90_seconds (observe measures it from 100 client connections on; learn "
            "reads it from $tcpinfo_rtt) and concurrency.client_bytes_per_second"
        )
    return found
