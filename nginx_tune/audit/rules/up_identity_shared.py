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

_CREDENTIALS = ("_bind", "_ssl_certificate", "_ssl_certificate_key")
"""Endings of the directives that determine how the upstream identifies a client."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Connections and TLS sessions that are opened as one client and reused for another."""
    reported: set[Directive] = set()
    for name, upstream in context.upstreams.items():
        users = context.passes_by_upstream[name]
        pool = _pool(context, upstream)
        line = _shared_line(context, upstream, users) if pool is not None else None
        if pool is not None and line is not None and line not in reported:
            reported.add(line)
            yield Hit(
                line,
                f'connections to upstream "{name}" are kept and reused for other clients',
                [written(line), pool],
                severity=None if line.name.endswith(_CREDENTIALS) else "warning",
            )
    for passed in context.passes:
        line = _resumed_certificate(context, passed)
        if line is not None and line not in reported:
            reported.add(line)
            reuse = passed.effective("ssl_session_reuse")
            yield Hit(
                line,
                "the TLS session of one client certificate is resumed for another, and the "
                "upstream "
                "still sees the first",
                [
                    written(line),
                    written(reuse)
                    if reuse
                    else default(f"{passed.module}_ssl_session_reuse", "on"),
                ],
                fix=f"Add {passed.module}_ssl_session_reuse off; in the same block.",
            )


def _pool(context: Context, upstream: UpstreamBlock) -> Evidence | None:
    """Evidence that connections to the upstream are kept; None if they are not."""
    line = upstream.keepalive
    if line is not None:
        return None if line.value == "0" else written(line)
    keeps = context.version is not None and context.version >= REUSES_SINCE
    return default("keepalive", "32 local") if keeps else None


def _shared_line(context: Context, upstream: UpstreamBlock, users: list[Pass]) -> Directive | None:
    """The line that makes reused connections differ.

    An implicit pool belongs to one location, so only its own lines count.
    """
    reused = [user for user in users if _reuses(context, user)]
    differing = identity_of_clients if upstream.keepalive is None else identity_that_differs
    line = differing(reused, context.variables, upstream.name)
    return None if line is not None and is_spread(line, context.tree) else line


def _reuses(context: Context, passed: Pass) -> bool:
    if passed.module == "proxy":
        return fault_of_reuse(context, passed) is None
    return passed.module != "fastcgi" or passed.value("keep_conn", "off") == "on"


def _resumed_certificate(context: Context, passed: Pass) -> Directive | None:
    """The line of a varying client certificate whose TLS sessions are resumed.

    ``ssl_name`` does not count: a resumed session sends the name again.
    """
    if (
        not passed.is_tls
        or passed.value("ssl_session_reuse", "on") == "off"
        or passed.has_variables
    ):
        return None
    line = identity_of_tls([passed], context.variables)
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
    title="requests use another client's connection to the upstream",
    why="nginx selects a kept connection by the server's address alone, and a TLS session by the "
    "server. If a source address, client certificate or TLS name comes from a variable, a kept "
    "connection has the value of the client that opened it, and the upstream mistakes the next "
    "client for that one.",
    fix="Keep no connections there: remove keepalive from the upstream (from nginx 1.29.7: "
    "keepalive 0;), or give each identity its own upstream. Client certificates by variable also "
    "need proxy_ssl_session_reuse off;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c, get_keepalive_peer",
        "nginx: src/http/ngx_http_upstream_round_robin.c, set_round_robin_peer_session",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Locations of one upstream with different values for these share connections too. A TLS "
    "name is a warning, because the server still reads the Host of each request. So is an upstream "
    "where some locations verify the certificate and others do not, or where http and https, or "
    "grpc_pass and proxy_pass, are mixed: each gets connections of the other. A source address "
    "from split_clients only provides more local ports and is not reported.",
    bad=Example(_CONF % "keepalive 8; "),
    good=Example(_CONF % ""),
    check=check,
)
