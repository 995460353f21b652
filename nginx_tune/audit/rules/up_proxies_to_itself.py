from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block
from nginx_tune.conf.listeners import ListenAddress, SocketName, socket_name
from nginx_tune.conf.upstreams import Pass, host_of, is_loopback


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations that proxy requests to themselves."""
    for passed in context.passes:
        if passed.module != "proxy" or passed.has_variables or len(passed.addresses) != 1:
            continue
        address = passed.addresses[0]
        if address in context.upstreams or not _keeps_path(passed):
            continue
        listener = _listener_at(context, address, is_tls=passed.is_tls)
        if listener is not None and all(
            server is passed.scope.server for server in listener.servers
        ):
            yield Hit(
                passed.place,
                f"{address} is this server, so each request returns to this location until no "
                "connection is left",
                [written(passed.place), written(listener.lines[0])],
            )


def _keeps_path(passed: Pass) -> bool:
    """True if the path stays the same, so that the same location handles it."""
    rest = passed.place.value.partition("://")[2]
    block = passed.scope.own.block or Block([])
    return (
        passed.scope.kind == "location"
        and "/" not in rest
        and not any(line.name in {"rewrite", "return", "if", "deny", "internal"} for line in block)
        and not passed.scope.own.value.startswith("@")
    )


def _listener_at(context: Context, address: str, *, is_tls: bool) -> ListenAddress | None:
    """The listener of this configuration at a loopback address; None if there is none."""
    host = host_of(address)
    if not is_loopback(host):
        return None
    port = address[len(host) :].removeprefix(":") or ("443" if is_tls else "80")
    target = socket_name(f"{host}:{port}")
    for listener in context.listeners:
        own = listener.socket
        same = own.is_wildcard or own.host == target.host or _is_local(own, host)
        if own.meets(target) and same and not listener.is_quic and listener.is_tls == is_tls:
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
    title="a server proxies to itself",
    why="Each request creates another one, until the worker has no connection left; then all of "
    "them fail with 502. nginx -t accepts it.",
    fix="Use the port that the application listens on.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass",
        "nginx: src/core/ngx_connection.c, ngx_get_connection",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Reported only if no other server listens on that address, so that the same server "
    "answers whatever the Host, and if the path stays the same. Loops through several servers or "
    "hosts are not detected.",
    bad=Example(_CONF % "8080"),
    good=Example(_CONF % "8081"),
    check=check,
)
