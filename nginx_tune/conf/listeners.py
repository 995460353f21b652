"""Listen addresses: socket options belong to an address and port, not to one server.

Source: ngx_http_core_listen, ngx_http_add_addresses: whichever ``listen`` of an address names
an option sets it for every server there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, servers
from nginx_tune.conf.tree import ConfTree

_LONG_PORT = 6
_WILDCARDS = frozenset({"*", "0.0.0.0"})  # noqa: S104  # compared with, not bound to


@dataclass
class ListenAddress:
    """One listening address with the lines and servers that share it."""

    address: str
    """``HOST:PORT`` with ``*`` for every IPv4 address, ``[::]:PORT``, or ``unix:PATH``."""
    is_quic: bool
    lines: list[Directive] = field(default_factory=list)
    servers: list[Directive] = field(default_factory=list)

    @property
    def reuseport(self) -> Directive | None:
        """The line that asks for ``reuseport``."""
        return next((line for line in self.lines if "reuseport" in line.args[1:]), None)

    @property
    def is_tls(self) -> bool:
        """Whether connections to it are encrypted."""
        return self.is_quic or any("ssl" in line.args[1:] for line in self.lines)

    @property
    def is_http2(self) -> bool:
        """Whether one of its lines says ``http2``, which holds for all its servers."""
        return any("http2" in line.args[1:] for line in self.lines)

    @property
    def is_unix(self) -> bool:
        """Whether it is no network address."""
        return self.address.startswith("unix:")


def listeners(tree: ConfTree) -> list[ListenAddress]:
    """The http listeners of a tree in the order met.

    A server without ``listen`` gets ``*:80`` and is left out: there is no line to speak of.
    """
    found: dict[tuple[str, bool], ListenAddress] = {}
    for _, server in servers(tree):
        for line in (server.block or Block([])).all("listen"):
            if line.args:
                key = (address_of(line.value), "quic" in line.args[1:])
                listener = found.setdefault(key, ListenAddress(*key))
                listener.lines.append(line)
                listener.servers.append(server)
    return list(found.values())


def address_of(text: str) -> str:
    """The address of a ``listen`` in the form of ``ListenAddress.address``."""
    if text[:5].lower() == "unix:":
        return f"unix:{text[5:]}"
    text = text.lower()
    if text.isdigit():
        return f"*:{text}"
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, "80"
    return f"{'*' if host in _WILDCARDS else host}:{port}"


def multiplexed_servers(scopes: Iterable[Scope], found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that speak HTTP/2 or HTTP/3, where one connection carries many requests.

    An ``http2`` of ``listen`` holds for every server of the address, the directive for its own.
    """
    multiplexed = {
        server
        for listener in found
        if listener.is_quic or listener.is_http2
        for server in listener.servers
    }
    return multiplexed | switched_to_http2(scopes)


def switched_to_http2(scopes: Iterable[Scope]) -> set[Directive]:
    """The servers with ``http2 on``, whatever their listeners say."""
    return {
        scope.server for scope in scopes if scope.kind == "server" and scope.value("http2") == "on"
    }


def port_of(address: str) -> int | None:
    """The port of an address; null for a range of them and for none."""
    port = address.rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() and len(port) < _LONG_PORT else None


def tls_servers(found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that answer over TLS only."""
    secure: set[Directive] = set()
    plain: set[Directive] = set()
    for listener in found:
        (secure if listener.is_tls else plain).update(listener.servers)
    return secure - plain
