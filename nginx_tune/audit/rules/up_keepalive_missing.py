"""``up-keepalive-missing``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default
from nginx_tune.audit.processes import lacking_ports
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.up_keepalive_http10 import FIX_WITH_UPGRADE, passes_upgrade
from nginx_tune.conf.answer_bodies import is_better_left
from nginx_tune.conf.upstreams import (
    Pass,
    UpstreamBlock,
    identity_that_differs,
    is_unix,
    sent_header,
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstreams over the network without a pool of idle connections."""
    if context.is_until_certified:
        return
    bare = [
        (upstream, users)
        for name, upstream in context.upstreams.items()
        if _has_no_pool(upstream)
        and not (_is_cheap(context, upstream) and context.profile != "strict")
        and (users := _reusing(context.passes_by_upstream[name]))
        and identity_that_differs(users, context.variables, name) is None
        and not all(map(is_better_left, users))
    ]
    if bare and context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
        return
    for upstream, users in bare:
        lacking = lacking_ports(context, _servers(upstream)) if upstream.is_loopback else []
        yield Hit(
            upstream.directive,
            f'every request to upstream "{upstream.name}" opens a connection of its own',
            [
                default("keepalive", "none"),
                counted("places that pass requests to it", len(users)),
                *lacking,
            ],
            fix=f"{_POOL} {FIX_WITH_UPGRADE}" if any(map(passes_upgrade, users)) else "",
            severity="advice" if upstream.is_loopback and not lacking else None,
        )


def _is_cheap(context: Context, upstream: UpstreamBlock) -> bool:
    """True if it is on this host, which has ports enough for a connection for each request."""
    return upstream.is_loopback and not lacking_ports(context, _servers(upstream))


def _servers(upstream: UpstreamBlock) -> list[str]:
    return [server.value for server in upstream.servers if not is_unix(server.value)]


def _has_no_pool(upstream: UpstreamBlock) -> bool:
    return not (upstream.keepalive or upstream.is_scripted or upstream.is_unix)


def _reusing(users: list[Pass]) -> list[Pass]:
    """Those that could reuse a connection: a WebSocket is one request for its whole life."""
    return [one for one in users if one.module in {"proxy", "grpc"} and not _only_upgrades(one)]


def _only_upgrades(one: Pass) -> bool:
    line = sent_header(one.scope, one.module, "connection")
    return line is not None and line.args[1].lower() == "upgrade"


_POOL = (
    "In the upstream, after any balancing method: keepalive N; with N the idle connections a "
    "worker may keep (16 to 64 suits most)."
)
_CONF = """
events {}
http {
    upstream app { server 10.0.0.1:8080; server 10.0.0.2:8080; %s}
    server { location / {
        proxy_pass http://app;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
    } }
}
"""

RULE = Rule(
    id="up-keepalive-missing",
    severity="warning",
    title="an upstream keeps no idle connections",
    why="Before nginx 1.29.7 each request opens a TCP connection (and a TLS session) to the "
    "upstream: a round trip more for every request, and a local port that stays taken for a "
    "minute after it.",
    fix=f'{_POOL} In its locations: proxy_http_version 1.1; and proxy_set_header Connection "";',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx change log, 1.29.7",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26"),
    until="1.29.7",
    about="How many requests are passed on is not known to the audit. On the loopback a "
    "connection costs little while there are local ports for a minute of them: there the finding "
    "is an advice of the strict profile, unless connections in TIME_WAIT come near the ports of "
    "net.ipv4.ip_local_port_range, or the error log says that they ran out. Upstreams of "
    "unix sockets, locations that only open WebSockets, and upstreams that are asked as one client "
    "or another (a source address, client certificate or TLS name by a variable), with and "
    "without a verified certificate, or by different protocols are passed over.",
    by_absence=True,
    within=frozenset({"upstream"}),
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "keepalive 32; ", linux()),
    check=check,
)
