"""TLS listeners, and the server whose session settings they use.

Source: ngx_http_init_connection: a connection starts with the address's default server, and
OpenSSL looks sessions up in the context that it started with, before the client has named a
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.conf.listeners import ListenAddress
from nginx_tune.conf.scopes import Scope


class TlsListener(NamedTuple):
    """An address that speaks TLS, over TCP or QUIC."""

    listener: ListenAddress
    default: Scope
    """Its default server."""
    servers: list[Scope]


def tls_listeners(listeners: list[ListenAddress], scopes: list[Scope]) -> Iterator[TlsListener]:
    """The TLS listeners among ``listeners``; the servers' scopes are found in ``scopes``."""
    by_block = {id(scope.own.block): scope for scope in scopes if scope.kind == "server"}
    for listener in listeners:
        default = by_block[id(listener.default_server.block)]
        if listener.is_quic or _speaks_tls(listener, default):
            servers = [by_block[id(server.block)] for server in listener.servers]
            yield TlsListener(listener, default, servers)


def _speaks_tls(listener: ListenAddress, default: Scope) -> bool:
    # "ssl on;" is the older form, gone in 1.25.1.
    return any("ssl" in line.args[1:] for line in listener.lines) or default.value("ssl") == "on"
