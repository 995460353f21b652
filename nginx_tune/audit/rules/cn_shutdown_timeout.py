"""``cn-shutdown-timeout``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block
from nginx_tune.conf.locations import is_front
from nginx_tune.conf.upstreams import Pass, sent_header
from nginx_tune.conf.values import parse_seconds


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """WebSockets are passed on, and nothing ends the workers that hold them after a reload."""
    if context.tree.main.first("worker_shutdown_timeout") is not None:
        return
    for one in context.passes:
        line = sent_header(one.scope, one.module, "upgrade")
        if line is None or not line.args[1] or not _can_upgrade(one):
            continue
        if context.profile == "strict" or _is_meant(one):
            yield Hit(
                line,
                "after a reload the old workers stay for as long as one WebSocket is open",
                [written(line), default("worker_shutdown_timeout", "none")],
            )
            return


def _can_upgrade(one: Pass) -> bool:
    """True if the server is told to: by itself nginx sends ``Connection: close``, which ends it."""
    line = sent_header(one.scope, one.module, "connection")
    return line is not None and line.args[1].lower() not in {"", "close"}


def _is_meant(one: Pass) -> bool:
    """True if more than lines copied for all requests speaks of a WebSocket.

    ``Connection upgrade`` word for word in ``/``, or around several locations, asks each server of
    ordinary pages for it too.
    """
    line = sent_header(one.scope, one.module, "connection")
    is_copied = line is None or line.args[1].lower() == "upgrade"
    own = one.scope.own.block or Block([])
    is_for_all = is_copied and (
        is_front(one.scope) or line not in own.all(f"{one.module}_set_header")
    )
    return not is_for_all or _stays_open(one) or _names_it(one)


def _stays_open(one: Pass) -> bool:
    """True if a connection may be silent for longer than any page takes."""
    seconds = parse_seconds(one.value("read_timeout", "60s"))
    return seconds is not None and seconds >= _SILENT_SECONDS


def _names_it(one: Pass) -> bool:
    return any(_NAME.search(address) for address in one.addresses)


_SILENT_SECONDS = 300.0
_NAME = re.compile(r"\b(ws|wss|websockets?|sockets?|realtime|signalr)\b|websocket")

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
    title="old workers never end while WebSockets are open",
    why="A reload starts new workers and leaves the old ones to finish what they have. A WebSocket "
    "may last for days: with each reload (a new certificate, a deployment) another set of workers "
    "stays, with its memory, threads and connections.",
    fix="worker_shutdown_timeout 10m; in the main context (5m to 1h): what is still open then is "
    "closed, and clients of WebSockets connect again.",
    sources=("https://nginx.org/en/docs/ngx_core_module.html#worker_shutdown_timeout",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.11.11",
    whole_tree=True,
    about="How often nginx is reloaded is a fact that no command here gathers. Long downloads do "
    "the same, but cannot be told from the configuration. Connection upgrade word for word in "
    "location /, or around several, is copied for all requests: there a long proxy_read_timeout or "
    "a name has to speak of WebSockets, but in the profile strict.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "worker_shutdown_timeout 10m;"),
    check=check,
)
