from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import UpstreamBlock, host_of, is_loopback
from nginx_tune.conf.values import parse_seconds
from nginx_tune.documents.decisions import Evidence

IDLE_SECONDS = 60.0
"""nginx's default for upstream connections."""

CLIENT_SECONDS = 75.0
"""nginx's default for client connections; few servers wait longer."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Pools that keep connections longer than the upstream server does."""
    own_servers: dict[str, Scope] | None = None
    for upstream in context.upstreams.values():
        if upstream.keepalive is None or upstream.keepalive.value == "0" or upstream.is_scripted:
            continue
        line = upstream.block.first("keepalive_timeout")
        idle = IDLE_SECONDS if line is None else parse_seconds(line.value)
        if idle is None:
            continue
        own_servers = _own_servers(context) if own_servers is None else own_servers
        pool_evidence = written(line) if line else default("keepalive_timeout in upstream", "60s")
        shorter = _shorter_timeout(upstream, idle, own_servers)
        if shorter is not None:
            yield Hit(
                line or upstream.directive,
                f'upstream "{upstream.name}" keeps connections for {idle:g} s, but its server '
                "closes "
                "them sooner",
                [pool_evidence, shorter],
            )
        elif line is not None and idle > CLIENT_SECONDS:
            yield Hit(
                line,
                f'upstream "{upstream.name}" keeps connections for {idle:g} s, longer than most '
                "servers do",
                [pool_evidence],
                severity="advice",
            )


def _own_servers(context: Context) -> dict[str, Scope]:
    """Servers of this configuration by a port that the loopback reaches."""
    by_block = {id(scope.own.block): scope for scope in context.scopes if scope.kind == "server"}
    found: dict[str, Scope] = {}
    for listener in context.listeners:
        name = listener.socket
        if name.is_wildcard or is_loopback(name.host):
            for port in {name.first, name.last} - {0}:
                found.setdefault(f"{port}", by_block[id(listener.default_server.block)])
    return found


def _shorter_timeout(
    upstream: UpstreamBlock, idle: float, own_servers: dict[str, Scope]
) -> Evidence | None:
    for server in upstream.peers:
        if not is_loopback(host_of(server.value)):
            continue
        scope = own_servers.get(server.value.rpartition(":")[2] if ":" in server.value else "80")
        line = scope.effective("keepalive_timeout") if scope is not None else None
        seconds = parse_seconds(line.value) if line is not None else None
        if line is not None and seconds is not None and 0 < seconds < idle:
            return written(line)
    return None


_CONF = """
events {}
http {
    upstream app { server 127.0.0.1:8081; keepalive 32; %s}
    server { listen 80; location / {
        proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";
    } }
    server { listen 127.0.0.1:8081; keepalive_timeout 20s; root /srv/www; }
}
"""

RULE = Rule(
    id="up-keepalive-idle-mismatch",
    severity="warning",
    title="idle connections are kept longer than the server keeps them",
    why="A request that is sent on a connection that the server is just closing fails. nginx "
    "retries a GET on another connection; it does not retry a POST, and the client gets 502.",
    fix="Set keepalive_timeout in the upstream below the idle timeout of its servers (defaults: "
    "Node.js 5 s, gunicorn 2 s, Apache 5 s, Tomcat 20 s or 60 s, nginx 75 s).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive_timeout",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_next",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.15.3",
    about="No command measures how long a server keeps an idle connection. The finding is certain "
    "if the server is in the same configuration; otherwise only a keepalive_timeout above 75 s is "
    "reported, as advice.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "keepalive_timeout 15s; "),
    check=check,
)
