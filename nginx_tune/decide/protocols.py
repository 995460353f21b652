"""Protocols that clients are offered, who encrypts and who compresses.

``http2``, ``http3``, ``ktls``, ``gzip``.
"""

from __future__ import annotations

import re
from typing import Final

from nginx_tune.conf.http2 import (
    ONE_LIMIT_SINCE,
    HeaderBuffers,
)
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
from nginx_tune.decide.defaults import GZIP_SHARE, gzip_cpus
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation, effective_cpus
from nginx_tune.documents.decisions import (
    Decision,
    DirectiveContext,
    Evidence,
    HostSetting,
    Setting,
)
from nginx_tune.documents.site import COMPRESSED_ORIGIN, tls_listens
from nginx_tune.documents.units import nginx_size, number_text, percent_text

HTTP2_MODULE: Final = "--with-http_v2_module"
_HTTP2_SINCE = (1, 9, 5)
_DIRECTIVE_SINCE = (1, 25, 1)


def decide_http2(s: Situation, _plan: PoolPlan) -> Decision:
    """``http2``: one connection for all requests of a browser, where the site has TLS.

    Browsers speak HTTP/2 over TLS alone. Instead of six connections, each with its handshake, they
    open one. Which version is spoken is agreed on in the TLS handshake, so other clients keep
    HTTP/1.1. What a page gains depends on its clients and is not predicted; how files are read does
    not change, since under TLS they go through buffers either way.

    Until 1.25.1 it is a word of ``listen`` and then holds for every server of that address; since,
    it is a directive of the server.

    In a configuration that stands it is left off, with the line that is why, where something there
    was made for HTTP/1.1: a limit of connections by address, Lua, an ``if`` on
    ``$server_protocol``, names that ``stream`` reads from TLS, a header of the connection that
    nginx itself is told to send (``add_header Connection``; clients end such an answer), and bodies
    that are passed on as they come. With ``proxy_request_buffering off`` an upload has no more
    under way than 64 KiB, in each round trip that much: ``client_body_buffer_size 1m`` there, or
    ``http2_body_preread_size``, opens the window.

    Before 1.19.7 HTTP/2 ends connections at request headers that HTTP/1.1 takes: a field of more
    than 4 KiB, or more than 16 KiB in all. So ``http2_max_field_size`` and
    ``http2_max_header_size`` go with it there, as large as ``client_header_buffer_size`` and
    ``large_client_header_buffers`` are. A line of those two that stands and is smaller leaves
    HTTP/2 off, and later a ``client_header_buffer_size`` beyond ``large_client_header_buffers``, by
    which HTTP/2 then goes.
    """
    if s.site.tls is None:
        return not_applicable(
            "http2",
            "Browsers speak HTTP/2 over TLS alone, and the site has none.",
            flips="[site] tls names a certificate and its key",
        )
    evidence = [version_evidence(s.build)]
    if s.build.version is None or s.build.flags is None:
        return Decision(
            id="http2",
            verdict="not_enough_evidence",
            summary="Left off: version and build of nginx, which decide how it is written, are "
            "not known.",
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
            f"This nginx is without HTTP/2 ({HTTP2_MODULE}, since 1.9.5).",
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
        flips_when=["the clients are no browsers, or the site is without TLS"],
        risks=[
            "one connection may have http2_max_concurrent_streams (128) requests at work at once"
        ],
    )


def _line(s: Situation) -> Setting:
    reason = "one connection and one handshake for all requests of a browser"
    if s.build.at_least(*_DIRECTIVE_SINCE):
        return setting("http2", "server", "http2", "on", reason=reason)
    return setting("http2", "server", "listen", "http2", reason=reason)


def _header_sizes(s: Situation) -> list[Setting]:
    """Lines that have HTTP/2 take the headers that HTTP/1.1 takes by nginx's own buffers."""
    if s.build.at_least(*ONE_LIMIT_SINCE):
        return []
    reason = "before 1.19.7 HTTP/2 refuses larger request headers, which HTTP/1.1 takes"
    return [
        setting("http2", "http", name, nginx_size(size), reason=reason)
        for name, size in HeaderBuffers().as_http2_sizes.items()
    ]


HTTP3_MODULE: Final = "--with-http_v3_module"
_HTTP3_SINCE = (1, 25, 0)
_GSO_KERNEL = (4, 18)
"""UDP_SEGMENT (udp(7)); nginx tries it when it is built, and is built there."""
_GSO_BYTES = 16 << 10
"""Least body that ``quic_gso`` is for: nginx gathers packets where more than three wait
(ngx_quic_allow_segmentation)."""
_STREAM_BYTES = 64 << 10
"""``http3_stream_buffer_size``. Source: ngx_http_v3_module.c."""
_MOST_STREAM_BYTES = 1 << 20
_IDLE_SLOTS = 6
"""Slots of ``worker_connections`` for a connection of QUIC and its streams of control.

Source: ngx_quic_create_stream() takes a connection for each stream, of one direction too. Held
idle by the load probe, which opens one such stream, 59 clients fit into 256 slots of nginx 1.30.6
and 119 into 512: 4.3 each. Browsers open three (RFC 9114 §6.2, RFC 9204 §4.2), so two more.
"""
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def decide_http3(s: Situation, _plan: PoolPlan) -> Decision:
    """``http3``: QUIC beside TCP, where somebody wants it.

    It is off unless the site asks for it (``[site] http3 = true``, or a configuration has a
    ``quic`` listener) or a log shows clients who speak it: what HTTP/3 gives, a round trip less and
    streams that do not wait for each other's lost packets, depends on how far away the clients are,
    and what it takes is certain. Large bodies cost three to six times the CPU of HTTP/2
    (``benchmarks/scenarios/protocols.toml``), ``quic_gso on`` half of that; each stream takes a
    slot of ``worker_connections``, some six for a client that is idle and one more for each
    request; a reload takes answers from clients of HTTP/3 in every release so far
    (``benchmarks/scenarios/quic-reload.toml``).

    With more than one worker a ``quic`` listener needs ``reuseport``: packets of one connection
    would else come to any of them. A client whose port changes (a NAT that forgot it) then comes to
    another worker, which does not know it. Browsers learn of HTTP/3 by Alt-Svc, or by DNS. Of a
    stream no more than ``http3_stream_buffer_size`` (64 KiB) is under way, so that a download has
    at most that in a round trip: it is raised where the round trip and what clients take are known
    (``round_trip`` and ``concurrency`` of the workload), never by a guess. ``observe`` measures the
    round trip at the clients that nginx has: the kernel keeps it for each of their connections
    (``tcpi_rtt``).

    UDP has one buffer for all clients of a worker, 208 KiB by default: of a burst that is longer
    than a worker's turn the rest is lost. The kernel settings beside it give it 7.5 MB.
    """
    wish = _wish(s)
    if wish is None:
        return not_applicable(
            "http3",
            "Left off: neither the site nor the workload asks for HTTP/3.",
            flips="[site] http3 = true, or a log whose $server_protocol has HTTP/3.0",
        )
    if s.build.version is None or s.build.flags is None:
        return Decision(
            id="http3",
            verdict="not_enough_evidence",
            summary="Left off: version and build of nginx, which must have it, are not known.",
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
        host_settings=[] if is_assumed else _udp_buffers(s),
        next_command=LEARN_COMMAND if is_assumed else validate_command(s.facts),
    )


_UDP_BUFFER_BYTES = 7_500_000
"""Bytes that a socket of QUIC should hold. Source: quic-go, wiki, UDP Buffer Sizes."""
_UDP_SYSCTLS = (
    ("net.core.rmem_max", "packets of QUIC that come while a worker is busy are else dropped"),
    ("net.core.rmem_default", "a quic listener without rcvbuf= has the default"),
    ("net.core.wmem_max", "what the workers send in one turn goes into the socket"),
)


def _udp_buffers(s: Situation) -> list[HostSetting]:
    """Room in the sockets of UDP; TCP has bounds of its own (tcp_rmem, tcp_wmem).

    Source: Documentation/admin-guide/sysctl/net.rst; ngx_configure_listening_sockets(), which sets
    SO_RCVBUF where ``listen`` says ``rcvbuf`` alone.
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


def _of_uploads(lines: list[Setting]) -> str:
    """The bound of an upload before nginx has read: QUIC's window is bound to the buffer.

    Source: initial_max_stream_data_bidi_remote in ngx_quic_transport.c, from stream_buffer_size.
    """
    written = [one.args[0] for one in lines if one.directive == "http3_stream_buffer_size"]
    size = written[0] if written else nginx_size(_STREAM_BYTES)
    return f"of an upload no more than {size} comes in a round trip (http3_stream_buffer_size)"


def _of_moving_clients(s: Situation) -> list[str]:
    """The fate of clients whose port changes, behind a NAT that forgets them."""
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
    """True if the decision turns it on."""
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
    """The answer where HTTP/3 cannot be had, and what would change that."""
    tls = s.site.tls
    if tls is None:
        return (
            "QUIC is always encrypted, and the site has no certificate.",
            "[site] tls names a certificate and its key",
        )
    if not s.build.at_least(*_HTTP3_SINCE) or s.build.lacks(HTTP3_MODULE):
        return (
            f"This nginx is without HTTP/3 ({HTTP3_MODULE}, since 1.25.0).",
            f"nginx is built {HTTP3_MODULE}",
        )
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
        return setting("http3", "server", "listen", "quic", reason="HTTP/3 beside TCP, on its port")
    reason = "HTTP/3 beside TCP; without reuseport any worker would read any packet"
    return setting("http3", "server", "listen", "quic", "reuseport", reason=reason)


def _gso(s: Situation) -> list[Setting]:
    """``quic_gso``, if the kernel has it and bodies are known to be longer than a few packets."""
    mean = s.object_bytes
    is_long = (mean.value or 0) >= _GSO_BYTES and mean.provenance != "assumed"
    if not is_long or not _has_gso(s):
        return []
    reason = "up to 64 packets in a system call: half of the CPU of large bodies"
    return [setting("http3", "http", "quic_gso", "on", reason=reason)]


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
    return [setting("http3", "http", "http3_stream_buffer_size", nginx_size(size), reason=reason)]


def _announcement(s: Situation) -> Setting:
    """Alt-Svc; where locations have a header of their own (caches), in these."""
    value = f'h3=":{_port(s)}"; ma=86400'
    reason = "browsers begin with TCP and go over when they are told (RFC 7838)"
    context: DirectiveContext = "location" if s.kind == "cache" else "http"
    return setting("http3", context, "add_header", "Alt-Svc", value, "always", reason=reason)


def _port(s: Situation) -> str | None:
    """The port of the first address of TLS; none where all are sockets of files."""
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


_OPENSSL_MAJOR = re.compile(r"OpenSSL (\d+)\.")
_SENDFILE_OPENSSL = 3


def decide_ktls(s: Situation, plan: PoolPlan) -> Decision:
    """``ktls``: whether the kernel encrypts, so that TLS can use sendfile.

    With kernel TLS nginx (1.21.4 with OpenSSL 3) sends files by ``SSL_sendfile()``: no copy through
    its buffers. But it calls that in the loop, whatever ``aio`` says, so where thread pools are
    wanted kernel TLS takes away what they give: a page-cache miss blocks the worker again. Where
    all data is in memory nothing blocks and the saved copies remain; how much that is depends on
    cipher and link, and is not predicted here but left to a comparison.

    It is off unless ``ssl_conf_command Options KTLS`` or OpenSSL's own configuration asks for it.
    HTTP/3 and bodies that are compressed on the way cannot use it.
    """
    lacking = _lacking(s)
    if lacking is not None:
        return lacking
    running = s.facts.nginx.running
    in_use = Quantity(
        "nginx.running.ktls_connections", running.ktls_connections if running else None
    )
    evidence = [
        version_evidence(s.build),
        Evidence(fact="kernel.features[tls]", value=s.facts.kernel.features.get("tls")),
        *known(in_use, s.dataset_bytes, s.page_cache),
    ]
    if plan.on:
        return _off(s, in_use, evidence)
    if plan.judgement.verdict == "disable":
        summary = (
            "Left as it is: no pool stands against it, and it saves a copy of every body; how "
            "much that is here only a comparison tells (ssl_conf_command Options KTLS)."
        )
    else:
        summary = "Left as it is: whether reads block the loop decides, and that is not known."
    return Decision(
        id="ktls",
        verdict="not_enough_evidence",
        summary=summary,
        evidence=evidence,
        confidence="low",
        flips_when=["thread-pools is enabled: then kernel TLS is to be off"],
        risks=["a page-cache miss then blocks the loop, also with aio threads"],
        next_command=validate_command(s.facts),
    )


def _off(s: Situation, in_use: Quantity, evidence: list[Evidence]) -> Decision:
    reason = "SSL_sendfile() runs on the loop and would go round the pool"
    settings = []
    if in_use.value:
        settings = [setting("ktls", "http", "ssl_conf_command", "Options", "-KTLS", reason=reason)]
    return Decision(
        id="ktls",
        verdict="disable",
        summary=f"{'Off' if in_use.value else 'Leave it off'}: {reason}, so cold files would "
        "block the workers again.",
        settings=settings,
        evidence=evidence,
        confidence="high" if in_use.value is not None else "medium",
        flips_when=["thread-pools is disabled"],
        next_command=validate_command(s.facts),
    )


def _lacking(s: Situation) -> Decision | None:
    if s.kind == "proxy":
        return not_applicable("ktls", "A proxy without a cache sends no files.")
    if not s.tls:
        return not_applicable("ktls", "The site speaks no TLS.", flips="the site speaks TLS")
    if s.workload.http_version.value == "3" or s.workload.gzip.value:
        return not_applicable("ktls", "HTTP/3 and compressed bodies need the bytes in memory.")
    if not s.build.at_least(1, 21, 4):
        return not_applicable(
            "ktls",
            f"nginx {s.build.text} cannot use it for files.",
            flips="nginx is 1.21.4 or newer",
        )
    if not s.is_linux or s.facts.kernel.features.get("tls") is False:
        return not_applicable(
            "ktls", "This kernel has no TLS.", flips="the kernel has the tls module loaded"
        )
    library = s.facts.nginx.openssl or s.facts.nginx.openssl_built or ""
    major = _OPENSSL_MAJOR.match(library)
    if library and (major is None or int(major[1]) < _SENDFILE_OPENSSL):
        return not_applicable(
            "ktls",
            "This TLS library cannot send files.",
            flips="nginx runs with OpenSSL 3 or newer",
        )
    return None


_WHY_GZIP = {
    "gzip_vary": "caches on the way tell clients apart",
    "gzip_proxied": "for clients behind a proxy too",
    "gzip_min_length": "less fits into one packet either way",
    "gzip_types": "text; images, fonts and archives are compressed already",
    "gzip_static": "FILE.gz beside FILE is sent as it is",
}


def decide_gzip(s: Situation, _plan: PoolPlan) -> Decision:
    """``gzip``: text compressed as it is sent, where a tenth of the CPUs is enough for it.

    Text goes out at about a third of its size (lzbench: 36 % of Silesia's files at level 1), which
    clients on slow links gain by, and each answer is compressed anew: one CPU does some 60 MB a
    second at level 1 (half of what lzbench shows, whose CPU runs at 4.7 GHz), so that 400,000
    answers of 4 KiB a second take 27 CPUs. Of a proxy or a cache all bytes count, since nobody
    knows which are text; of files a twentieth, which is more than the HTML of most sites. Where
    more than a tenth of the CPUs would go into it at the peak it is left off, and what servers
    compress by themselves is passed on (``Accept-Encoding`` goes through). Files do not change
    between requests: ``gzip -k`` beside them and ``gzip_static`` (``generate --with gzip-static``)
    cost nothing.

    A configuration that stands keeps what it says.
    """
    lines = s.site.gzip or []
    is_on = "gzip on" in lines
    asked = gzip_cpus(s.facts, s.workload, s.kind, lines if is_on else None)
    cpus = effective_cpus(s.facts)
    takes = Quantity("CPUs that gzip takes at the peak (model)", asked, "CPUs", s.rate.provenance)
    share = None if asked is None or not cpus.value else asked / cpus.value
    evidence = known(s.rate, s.object_bytes, takes, cpus)
    budget = (
        f"at the peak it would take {number_text(asked)} of {cpus.text}, and a tenth is its budget"
    )
    is_dear = share is not None and share > GZIP_SHARE
    risks = [f"{takes.text} at the peak is more than a tenth of them"] * (is_on and is_dear)
    if is_on or lines:
        why = "text goes out smaller"
        if is_on and share:
            why += f", for {percent_text(share, 2)} of the CPUs at the peak"
        reasons = {"gzip": why, **_WHY_GZIP}
        return Decision(
            id="gzip",
            verdict="set",
            summary=f"{why[0].upper()}{why[1:]}." if is_on else "Only files that are compressed.",
            settings=[
                setting("gzip", "http", name, *args, reason=reasons.get(name, ""))
                for name, *args in map(str.split, lines)
            ],
            evidence=evidence,
            confidence="medium" if share is not None else "low",
            flips_when=["the peak rate times the size of an answer takes a tenth of the CPUs"],
            risks=risks,
            next_command="" if share is not None else LEARN_COMMAND,
        )
    if COMPRESSED_ORIGIN in s.site.features:
        why = "Left off: the servers compress, and what they send is passed on."
    elif is_dear:
        why = f"Left off: {budget}."
    elif s.kind == "media":
        why = "Left off: videos and archives are compressed already."
    else:
        why = "Left off, as the site or the installed configuration has it."
    return Decision(
        id="gzip",
        verdict="disable" if is_dear else "keep",
        summary=why,
        evidence=evidence,
        confidence="medium",
        flips_when=["the peak rate falls, or there are more CPUs"] if is_dear else [],
    )
