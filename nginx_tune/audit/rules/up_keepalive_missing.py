from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default
from nginx_tune.audit.processes import lacking_ports
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.up_keepalive_http10 import (
    NEXT_TO_OTHERS,
    fix_of_headers,
    passes_upgrade,
)
from nginx_tune.conf.answer_bodies import is_better_left
from nginx_tune.conf.locations import is_for_websockets
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
    without_pool = [
        (upstream, users)
        for name, upstream in context.upstreams.items()
        if _has_no_pool(upstream)
        and not (_is_cheap(context, upstream) and context.profile != "strict")
        and (users := _reusable(context.passes_by_upstream[name]))
        and identity_that_differs(users, context.variables, name) is None
        and not all(map(is_better_left, users))
    ]
    if without_pool and context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
        return
    for upstream, users in without_pool:
        port_evidence = lacking_ports(context, _servers(upstream)) if upstream.is_loopback else []
        yield Hit(
            upstream.directive,
            f'every request to upstream "{upstream.name}" opens a new connection',
            [
                default("keepalive", "none"),
                counted("locations that could reuse one", len(users)),
                *port_evidence,
            ],
            fix=f"{_POOL} {headers}" if (headers := fix_of_headers(context, users)) else "",
            severity="advice" if upstream.is_loopback and not port_evidence else None,
        )


def _is_cheap(context: Context, upstream: UpstreamBlock) -> bool:
    """True if the upstream is on this host and local ports suffice for a connection per request."""
    return upstream.is_loopback and not lacking_ports(context, _servers(upstream))


def _servers(upstream: UpstreamBlock) -> list[str]:
    return [server.value for server in upstream.servers if not is_unix(server.value)]


def _has_no_pool(upstream: UpstreamBlock) -> bool:
    return not (upstream.keepalive or upstream.is_scripted or upstream.is_unix)


def _reusable(users: list[Pass]) -> list[Pass]:
    """The locations that could reuse a connection, without those for WebSockets only."""
    return [user for user in users if user.module in {"proxy", "grpc"} and not _only_upgrades(user)]


def _only_upgrades(passed: Pass) -> bool:
    line = sent_header(passed.scope, passed.module, "connection")
    is_always = line is not None and line.args[1].lower() == "upgrade"
    return is_always or (passes_upgrade(passed) and is_for_websockets(passed.scope))


_POOL = (
    "In the upstream, after any balancing method: keepalive N; with N the idle connections that a "
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
    title="an upstream without keepalive connections",
    why="Before nginx 1.29.7 each request opens a TCP connection (and a TLS session) to the "
    "upstream: another round trip per request, and a local port that stays in use for a minute "
    "afterwards.",
    fix=f"{_POOL} Where requests are passed on: proxy_http_version 1.1; and proxy_set_header "
    f'Connection ""; {NEXT_TO_OTHERS}',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx change log, 1.29.7",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26"),
    until="1.29.7",
    about="The audit does not know the request rate. On the loopback a connection costs little as "
    "long as there are local ports for a minute's worth of them: there the finding is advice in "
    "the profile strict, unless connections in TIME_WAIT come close to the size of "
    "net.ipv4.ip_local_port_range, or the error log shows that ports ran out. Not reported: "
    "upstreams of unix sockets, locations that only open WebSockets, and upstreams that are used "
    "with several client identities (a source address, client certificate or TLS name by "
    "variable), with and without certificate verification, or with different protocols.",
    by_absence=True,
    within=frozenset({"upstream"}),
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "keepalive 32; ", linux()),
    check=check,
)
