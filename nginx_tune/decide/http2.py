"""``http2``: one connection for all requests of a browser, where the site has TLS.

Browsers speak HTTP/2 over TLS alone. Instead of six connections, each with its handshake, they
open one. Which version is spoken is agreed on in the TLS handshake, so other clients keep
HTTP/1.1. What a page gains depends on its clients and is not predicted; how files are read does
not change, since under TLS they go through buffers either way.

Until 1.25.1 it is a word of ``listen`` and then holds for every server of that address; since,
it is a directive of the server.

In a configuration that stands it is left off, with the line that is why, where something there was
made for HTTP/1.1: a limit of connections by address, Lua, an ``if`` on ``$server_protocol``, names
that ``stream`` reads from TLS, a header of the connection that nginx itself is told to send
(``add_header Connection``; clients end such an answer), and bodies that are passed on as they come.
With ``proxy_request_buffering off`` an upload has no more under way than 64 KiB, in each round trip
that much: ``client_body_buffer_size 1m`` there, or ``http2_body_preread_size``, opens the window.

Before 1.19.7 HTTP/2 ends connections at request headers that HTTP/1.1 takes: a field of more than
4 KiB, or more than 16 KiB in all. So ``http2_max_field_size`` and ``http2_max_header_size`` go with
it there, as large as ``client_header_buffer_size`` and ``large_client_header_buffers`` are. A line
of those two that stands and is smaller leaves HTTP/2 off, and later a ``client_header_buffer_size``
beyond ``large_client_header_buffers``, by which HTTP/2 then goes.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.conf.header_sizes import (
    ONE_LIMIT_SINCE,
    HeaderBuffers,
)
from nginx_tune.decide.answer import FACTS_COMMAND, not_applicable, setting
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Setting
from nginx_tune.documents.units import nginx_size

ID: Final = "http2"
MODULE: Final = "--with-http_v2_module"
_SINCE = (1, 9, 5)
_DIRECTIVE_SINCE = (1, 25, 1)


def decide_http2(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.site.tls is None:
        return not_applicable(
            ID,
            "Browsers speak HTTP/2 over TLS alone, and the site has none.",
            flips="[site] tls names a certificate and its key",
        )
    evidence = [version_evidence(s.build)]
    if s.build.version is None or s.build.flags is None:
        return Decision(
            id=ID,
            verdict="not_enough_evidence",
            summary="Left off: version and build of nginx, which decide how it is written, are "
            "not known.",
            evidence=evidence,
            flips_when=["the facts have the version and the configure arguments of nginx"],
            next_command=FACTS_COMMAND,
        )
    evidence.append(Evidence(fact=f"nginx.flags[{MODULE}]", value=not s.build.lacks(MODULE)))
    if not s.build.at_least(*_SINCE) or s.build.lacks(MODULE):
        return not_applicable(
            ID,
            f"This nginx is without HTTP/2 ({MODULE}, since 1.9.5).",
            evidence=evidence,
            flips=f"nginx is built {MODULE}",
        )
    return Decision(
        id=ID,
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
        return setting(ID, "server", "http2", "on", reason=reason)
    return setting(ID, "server", "listen", "http2", reason=reason)


def _header_sizes(s: Situation) -> list[Setting]:
    """What has HTTP/2 take the headers that HTTP/1.1 takes by nginx's own buffers."""
    if s.build.at_least(*ONE_LIMIT_SINCE):
        return []
    reason = "before 1.19.7 HTTP/2 refuses larger request headers, which HTTP/1.1 takes"
    return [
        setting(ID, "http", name, nginx_size(size), reason=reason)
        for name, size in HeaderBuffers().as_http2_sizes.items()
    ]
