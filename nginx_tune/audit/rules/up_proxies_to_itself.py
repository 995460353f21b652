"""``up-proxies-to-itself``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block
from nginx_tune.conf.listeners import ListenAddress, SocketName, socket_name
from nginx_tune.conf.upstreams import Pass, host_of, is_loopback


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations whose requests come back to them."""
    for one in context.passes:
        if one.module != "proxy" or one.has_variables or len(one.addresses) != 1:
            continue
        address = one.addresses[0]
        if address in context.upstreams or not _same_path(one):
            continue
        listener = _reached(context, address, is_tls=one.is_tls)
        if listener is not None and all(server is one.scope.server for server in listener.servers):
            yield Hit(
                one.place,
                f"{address} is this server: each request comes back to this location, until no "
                "connection is left",
                [written(one.place), written(listener.lines[0])],
            )


def _same_path(one: Pass) -> bool:
    """True if the same path is asked for again, so that the same location answers it."""
    rest = one.place.value.partition("://")[2]
    block = one.scope.own.block or Block([])
    return (
        one.scope.kind == "location"
        and "/" not in rest
        and not any(line.name in {"rewrite", "return", "if", "deny", "internal"} for line in block)
        and not one.scope.own.value.startswith("@")
    )


def _reached(context: Context, address: str, *, is_tls: bool) -> ListenAddress | None:
    """The listener of this configuration that a loopback address leads to."""
    host = host_of(address)
    if not is_loopback(host):
        return None
    port = address[len(host) :].removeprefix(":") or ("443" if is_tls else "80")
    asked = socket_name(f"{host}:{port}")
    for listener in context.listeners:
        own = listener.socket
        same = own.is_wildcard or own.host == asked.host or _is_local(own, host)
        if own.meets(asked) and same and not listener.is_quic and listener.is_tls == is_tls:
            return listener
    return None


def _is_local(own: SocketName, host: str) -> bool:
    return own.host.startswith("127.") and host == "localhost"


_CONF = """
events {}
http { server { listen 8080; location / { proxy_pass http://127.0.0.1:%s; } } }
"""

RULE = Rule(
    id="up-proxies-to-itself",
    severity="error",
    title="a server passes requests on to itself",
    why="Each request makes another one, until the worker has no connection left; then all of "
    "them fail with 502. nginx -t accepts it.",
    fix="Name the port at which the application listens.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass",
        "nginx: src/core/ngx_connection.c, ngx_get_connection",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Told only where no other server listens at that address, so that whatever Host is sent "
    "the same server answers, and where the path stays as it is. Loops over several servers or "
    "hosts are not seen.",
    bad=Example(_CONF % "8080"),
    good=Example(_CONF % "8081"),
    check=check,
)
