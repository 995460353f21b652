"""``up-identity-shared``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.rules.up_keepalive_http10 import REUSES_SINCE, fault_of_reuse
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import (
    Pass,
    UpstreamBlock,
    identity_of_clients,
    identity_of_tls,
    identity_that_differs,
    is_spread,
)
from nginx_tune.documents.decisions import Evidence

_AS_WHOM = ("_bind", "_ssl_certificate", "_ssl_certificate_key")
"""Endings of the directives by which the server knows a client."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Connections and TLS sessions that are made as one client and used for another."""
    told: set[Directive] = set()
    for name, upstream in context.upstreams.items():
        users = context.passes_by_upstream[name]
        pool = _pool(context, upstream)
        line = _of_kept(context, upstream, users) if pool is not None else None
        if pool is not None and line is not None and line not in told:
            told.add(line)
            yield Hit(
                line,
                f'connections to upstream "{name}" are kept, and given to whoever asks next',
                [written(line), pool],
                severity=None if line.name.endswith(_AS_WHOM) else "warning",
            )
    for one in context.passes:
        line = _of_sessions(context, one)
        if line is not None and line not in told:
            told.add(line)
            reuse = one.effective("ssl_session_reuse")
            yield Hit(
                line,
                "the TLS session of one certificate is resumed for the next, and the server goes "
                "on seeing the first one",
                [
                    written(line),
                    written(reuse) if reuse else default(f"{one.module}_ssl_session_reuse", "on"),
                ],
                fix=f"{one.module}_ssl_session_reuse off; beside it.",
            )


def _pool(context: Context, upstream: UpstreamBlock) -> Evidence | None:
    """Evidence that an upstream's connections are kept."""
    line = upstream.keepalive
    if line is not None:
        return None if line.value == "0" else written(line)
    keeps = context.version is not None and context.version >= REUSES_SINCE
    return default("keepalive", "32 local") if keeps else None


def _of_kept(context: Context, upstream: UpstreamBlock, users: list[Pass]) -> Directive | None:
    """The line by which reused connections are not all alike; implicit pools are a place's own."""
    reused = [one for one in users if _reuses(context, one)]
    differing = identity_of_clients if upstream.keepalive is None else identity_that_differs
    line = differing(reused, context.variables, upstream.name)
    return None if line is not None and is_spread(line, context.tree) else line


def _reuses(context: Context, one: Pass) -> bool:
    if one.module == "proxy":
        return fault_of_reuse(context, one) is None
    return one.module != "fastcgi" or one.value("keep_conn", "off") == "on"


def _of_sessions(context: Context, one: Pass) -> Directive | None:
    """The certificate by a variable whose sessions are resumed; a name is sent again."""
    if not one.is_tls or one.value("ssl_session_reuse", "on") == "off" or one.has_variables:
        return None
    line = identity_of_tls([one], context.variables)
    return None if line is None or line.name.endswith("_ssl_name") else line


_CONF = """
events {}
http {
    upstream app { server 10.0.0.1:8080; %s}
    server { listen 80; location / {
        proxy_bind $remote_addr transparent;
        proxy_pass http://app;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
    } }
}
"""

RULE = Rule(
    id="up-identity-shared",
    severity="error",
    title="requests are made with another client's connection to the upstream",
    why="A kept connection is chosen by the server's address alone, and a TLS session by the "
    "server: a source address, a client certificate or a TLS name that comes from a variable is "
    "what it was for the client that the connection was opened for. The server takes the next "
    "client for that one.",
    fix="Keep no connections there: take keepalive out of the upstream (from nginx 1.29.7: "
    "keepalive 0;), or give each identity an upstream of its own. Client certificates by a "
    "variable need proxy_ssl_session_reuse off; as well.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c, get_keepalive_peer",
        "nginx: src/http/ngx_http_upstream_round_robin.c, set_round_robin_peer_session",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Places of one upstream that say these things differently share connections as well. A "
    "name of TLS is a warning: the server still reads the Host of each request. So are places that "
    "verify the server's certificate beside others that do not, and of one upstream http beside "
    "https or grpc_pass beside proxy_pass: each gets connections of the other. An address that "
    "split_clients chooses is for more local ports, and passed over.",
    bad=Example(_CONF % "keepalive 8; "),
    good=Example(_CONF % ""),
    check=check,
)
