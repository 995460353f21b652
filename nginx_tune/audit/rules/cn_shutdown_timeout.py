import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block
from nginx_tune.conf.locations import is_for_websockets, is_front
from nginx_tune.conf.upstreams import Pass, sent_header
from nginx_tune.conf.values import parse_seconds


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Proxied WebSockets without a time limit for the workers that hold them after a reload."""
    if context.tree.main.first("worker_shutdown_timeout") is not None:
        return
    for passed in context.passes:
        line = sent_header(passed.scope, passed.module, "upgrade")
        if line is None or not line.args[1] or not _can_upgrade(passed):
            continue
        if context.profile == "strict" or _is_for_websockets(passed):
            yield Hit(
                line,
                "after a reload an old worker stays as long as any of its WebSockets is open",
                [written(line), default("worker_shutdown_timeout", "none")],
            )
            return


def _can_upgrade(passed: Pass) -> bool:
    """True if Connection is passed on; nginx's own ``Connection: close`` prevents an upgrade."""
    line = sent_header(passed.scope, passed.module, "connection")
    return line is not None and line.args[1].lower() not in {"", "close"}


def _is_for_websockets(passed: Pass) -> bool:
    """True if more than boilerplate suggests a WebSocket.

    A literal ``Connection upgrade`` in ``/``, around several locations, or beside a cache that
    every upgrade bypasses (lines copied together), also applies to ordinary pages.
    """
    line = sent_header(passed.scope, passed.module, "connection")
    is_copied = line is None or line.args[1].lower() == "upgrade"
    own = passed.scope.own.block or Block([])
    is_for_all = is_copied and (
        is_front(passed.scope)
        or line not in own.all(f"{passed.module}_set_header")
        or passed.value("cache_bypass") == "$http_upgrade"
    )
    return (
        not is_for_all
        or _stays_open(passed)
        or _has_websocket_name(passed)
        or is_for_websockets(passed.scope)
    )


def _stays_open(passed: Pass) -> bool:
    """True if a connection may be idle longer than a page takes."""
    seconds = parse_seconds(passed.value("read_timeout", "60s"))
    return seconds is not None and seconds >= _LONG_IDLE_SECONDS


def _has_websocket_name(passed: Pass) -> bool:
    return any(_WEBSOCKET_NAME.search(address) for address in passed.addresses)


_LONG_IDLE_SECONDS = 300.0
_WEBSOCKET_NAME = re.compile(r"\b(ws|wss|websockets?|sockets?|realtime|signalr)\b|websocket")

_CONF = """
%s
events {}
http { server { location /ws/ {
    proxy_pass http://10.0.0.1;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection upgrade;
} } }
"""

RULE = Rule(
    id="cn-shutdown-timeout",
    severity="warning",
    title="old workers stay as long as WebSockets are open",
    why="A reload starts new workers, and the old ones finish their connections. A WebSocket can "
    "last for days: each reload (a new certificate, a deployment) leaves another set of workers "
    "with its memory, threads and connections.",
    fix="Set worker_shutdown_timeout 10m; in the main context (5m to 1h). Connections that are "
    "still open then are closed, and WebSocket clients reconnect.",
    sources=("https://nginx.org/en/docs/ngx_core_module.html#worker_shutdown_timeout",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.11.11",
    whole_tree=True,
    about="No command measures how often nginx is reloaded. Long downloads have the same effect "
    "but cannot be seen in the configuration. A literal Connection upgrade in location /, or "
    "around several locations or with proxy_cache_bypass $http_upgrade, is often copied for all "
    "requests: there, except in the profile strict, a long proxy_read_timeout or a name must also "
    "point to WebSockets.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "worker_shutdown_timeout 10m;"),
    check=check,
)
