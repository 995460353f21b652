from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import multiplexed_servers
from nginx_tune.conf.locations import names_monitors
from nginx_tune.conf.values import parse_count, parse_seconds

FEWEST = 200
"""nginx's default was 100 before 1.19.10 and is 1000 since; values in between cost little."""

MOST = 1_000_000
_STATUS = frozenset({"stub_status", "vhost_traffic_status_display", "status", "api"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Connections of clients (not to upstreams) that are closed too early or never."""
    timeouts = context.client_lines("keepalive_timeout")
    closed = {line.parent for line in timeouts if parse_seconds(line.value) == 0}
    for line in context.client_lines("keepalive_requests"):
        count = parse_count(line.value)
        if count is not None and count < FEWEST and line.parent in closed:
            continue  # the finding about keepalive_timeout 0 covers it
        if count is not None and count < FEWEST:
            yield Hit(line, f"clients have to reconnect after {count} requests", [written(line)])
        elif count is not None and count > MOST and _is_multiplexed(context):
            yield Hit(
                line,
                f"a connection may hold its memory for up to {count} requests",
                [written(line)],
                fix="Set keepalive_requests between 1000 (the default) and 100000, and "
                "keepalive_time 1h;",
            )
    for line in timeouts:
        if parse_seconds(line.value) == 0 and not _is_for_monitors(line):
            yield Hit(
                line,
                "clients have to reconnect for each request",
                [written(line)],
                fix="Set keepalive_timeout 10s; or more (the default is 75s).",
            )


def _is_multiplexed(context: Context) -> bool:
    """True if clients may send many concurrent requests on one connection: HTTP/2 or HTTP/3."""
    return bool(multiplexed_servers(context.scopes, context.listeners))


def _is_for_monitors(line: Directive) -> bool:
    """True if the block is for a status page or health checks: occasional single requests."""
    around = line.parent
    while around is not None and around.name == "include":
        around = around.parent
    if around is None or around.block is None:
        return False
    locations = list(around.block.all("location")) if around.name == "server" else []
    return all(
        names_monitors(one) or any(line.name in _STATUS for line in one.block or ())
        for one in locations or [around]
    )


_CONF = """
events {}
http {
    upstream app { server 10.0.0.1; keepalive 16; keepalive_requests 100; }
    server { %s location / { root /srv/www; } }
}
"""

RULE = Rule(
    id="cn-keepalive-extreme",
    severity="advice",
    title="client connections are closed after few requests, or never",
    why="Each new connection costs a round trip, and with TLS a handshake. With HTTP/2 every "
    "stream counts, so one page can use up a hundred requests. Memory that is allocated for a "
    "connection is freed only when the connection closes.",
    fix="Remove keepalive_requests: the default is 1000 (before nginx 1.19.10 it was 100; set 1000 "
    "there). Behind a CDN or a load balancer use 10000 or more.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#keepalive_requests",
        "nginx change log, 1.19.10",
    ),
    proof="source-only",
    about="No command measures how many requests a client sends. An unset value is not reported, "
    "even where the version's default is 100.",
    conflict="The CIS benchmark asks for a keepalive_timeout of at most 10 s, against connections "
    "that are held open. Anything up to 10 s except 0 passes here.",
    bad=Example(_CONF % "keepalive_requests 100;"),
    good=Example(_CONF % "keepalive_requests 10000; keepalive_timeout 10s;"),
    check=check,
)
