"""Locations that monitors ask: stub_status and where it is listened for, and health checks."""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.sockets import socket_name
from nginx_tune.conf.tree import ConfTree

_EVERY = {"*": "127.0.0.1", "[::]": "::1"}


class StatusLocation(NamedTuple):
    """One way to ask for the page."""

    address: str
    port: int
    path: str
    host: str
    tls: bool


def status_locations(tree: ConfTree) -> list[StatusLocation]:
    """Every location with stub_status that can be asked over TCP, cleartext ones first."""
    found = []
    for scope in scopes(tree):
        if scope.kind != "location" or scope.sets("stub_status") is None:
            continue
        path = _path(scope.own)
        server = scope.server.block or Block([])
        if path is None:
            continue
        names = [name for line in server.all("server_name") for name in line.args]
        host = next((n for n in names if n and not set(n) & set("*~^$")), "localhost")
        lines = server.all("listen")
        places = [_listen(line) for line in lines] if lines else [("127.0.0.1", 80, False)]
        found += [
            StatusLocation(place[0], place[1], path, host, place[2])
            for place in places
            if place is not None
        ]
    return sorted(found, key=lambda one: one.tls)


def is_for_monitors(scope: Scope) -> bool:
    """Whether a location's last word says that monitors ask there, a few times a minute."""
    return names_monitors(scope.own)


def names_monitors(block: Directive) -> bool:
    """The same of the block that makes a scope."""
    path = block.args[-1] if block.name == "location" and block.args else ""
    words = re.sub(r"[\\^$]", "", path).strip("/").lower().rpartition("/")[2]
    return re.sub(r"[-_.]", "", words) in _MONITORED


_MONITORED = frozenset(
    {
        "health", "healthz", "healthcheck", "healthy", "ping", "ready", "readyz", "readiness",
        "live", "livez", "liveness", "metrics", "status", "nginxstatus", "heartbeat",
    }
)  # fmt: skip


def _path(location: Directive) -> str | None:
    match location.args:
        case ("=" | "^~", uri) | (uri,) if uri.startswith("/"):
            return uri
    return None


def _listen(line: Directive) -> tuple[str, int, bool] | None:
    """Address, port and whether TLS is spoken; null for what is no TCP address."""
    name = socket_name(line.value)
    if not name.first or {"quic", "proxy_protocol"} & {*line.args[1:]}:
        return None
    host = _EVERY.get(name.host, name.host.strip("[]"))
    return host, name.first, "ssl" in line.args[1:]
