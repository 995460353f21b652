"""Listen addresses: socket options belong to an address and port, not to one server.

Source: ngx_http_core_listen, ngx_http_add_addresses: whichever ``listen`` of an address names
an option sets it for every server there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, scopes, servers
from nginx_tune.conf.tree import ConfTree

_LONG_PORT = 6
_WILDCARDS = frozenset({"*", "0.0.0.0"})  # noqa: S104  # compared with, not bound to
_PORTS = re.compile(r"\d+(?:-\d+)?", re.ASCII)
_UNSAID_PORTS = ("*:80", "*:8000")
"""Where a server without ``listen`` listens: started by root, and by others."""
_FLAGS = frozenset({"bind", "deferred", "multipath", "reuseport"})
_PARAMETERS = frozenset({
    "accept_filter", "backlog", "fastopen", "ipv6only", "rcvbuf", "setfib", "sndbuf",
    "so_keepalive",
})  # fmt: skip


@dataclass
class ListenAddress:
    """One listening address with the lines and servers that share it."""

    address: str
    """``HOST:PORT`` with ``*`` for every IPv4 address, ``[::]:PORT``, or ``unix:PATH``."""
    is_quic: bool
    lines: list[Directive] = field(default_factory=list)
    servers: list[Directive] = field(default_factory=list)
    has_socket: bool = True
    """False where it is a sibling: what comes to it comes over the socket of a wildcard address,
    whose options hold for it. One option of its own would have it bind too, and then nginx does not
    start (98: Address already in use), which ``nginx -t`` does not see."""

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
    unsaid = any(not (server.block or Block([])).all("listen") for _, server in servers(tree))
    wildcards = {
        kind: _Wildcards(
            [one.address for one in found.values() if one.is_quic == kind]
            + [*(_UNSAID_PORTS if unsaid and not kind else ())]
        )
        for kind in (False, True)
    }
    for one in found.values():
        options = any(is_socket_option(arg) for line in one.lines for arg in line.args[1:])
        one.has_socket = options or not wildcards[one.is_quic].cover(one.address)
    return list(found.values())


def is_socket_option(arg: str) -> bool:
    """Whether a word of ``listen`` is an option of the socket, any of which makes nginx bind it.

    Source: ngx_http_core_listen (``lsopt.set``, ``lsopt.bind``).
    """
    name, equals, _ = arg.partition("=")
    return name in (_PARAMETERS if equals else _FLAGS)


def is_covered(address: str, others: Iterable[str]) -> bool:
    """Whether a wildcard among the others takes what comes to a more specific address.

    Where there is one, nginx binds only it and the addresses with options of their own. A name may
    be of IPv4, of IPv6 or both, and is covered by either.

    Source: ngx_http_init_listening (``bind_wildcard``), ngx_http_add_listen (a port is of one
    family, and since 1.25.0 of one type of socket).
    """
    return _Wildcards(others).cover(address)


class _Wildcards:
    """The wildcards among some addresses, of which there may be thousands."""

    def __init__(self, addresses: Iterable[str]) -> None:
        found = [one for one in map(_parts, addresses) if one is not None and one.is_wildcard]
        self._single = {(one.family, one.first) for one in found if one.first == one.last}
        self._ranges = [one for one in found if one.first != one.last]
        self._all = found

    def cover(self, address: str) -> bool:
        """Whether one of them takes what comes to the address."""
        own = _parts(address)
        if own is None or own.is_wildcard:
            return False
        families = ("inet", "inet6") if own.family == "unknown" else (own.family,)
        is_one = own.first == own.last
        if is_one and any((family, own.first) in self._single for family in families):
            return True
        return any(
            other.family in families and other.first <= own.last and own.first <= other.last
            for other in (self._ranges if is_one else self._all)
        )


class _Parts(NamedTuple):
    """An address, taken apart."""

    family: Literal["inet", "inet6", "unknown"]
    is_wildcard: bool
    first: int
    last: int
    """Ports: a range of them, or one."""


@lru_cache(maxsize=4096)
def _parts(address: str) -> _Parts | None:
    host, _, ports = address.rpartition(":")
    if address.startswith("unix:") or _PORTS.fullmatch(ports) is None:
        return None
    first, _, last = ports.partition("-")
    bounds = int(first[:_LONG_PORT]), int((last or first)[:_LONG_PORT])
    if host in _WILDCARDS:
        return _Parts("inet", True, *bounds)
    try:
        if host.startswith("["):
            return _Parts("inet6", ipaddress.IPv6Address(host[1:-1]).is_unspecified, *bounds)
        ipaddress.IPv4Address(host)
    except ValueError:
        return _Parts("unknown", False, *bounds)
    return _Parts("inet", False, *bounds)


def ports_of(address: str) -> int:
    """How many ports an address has: a range of them is a socket each."""
    parts = _parts(address)
    return 1 if parts is None else max(1, parts.last - parts.first + 1)


def address_of(text: str) -> str:
    """The address of a ``listen`` in the form of ``ListenAddress.address``."""
    if text[:5].lower() == "unix:":
        return f"unix:{text[5:]}"
    text = text.lower()
    if _PORTS.fullmatch(text):
        return f"*:{text}"
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, "80"
    return f"{'*' if host in _WILDCARDS else host}:{port}"


def has_usual_port(text: str, *, is_tls: bool) -> bool:
    """Whether clients of a ``listen`` leave its port out of the URL, and so of their ``Host``.

    Source: RFC 9110, sections 4.2.1, 4.2.2 and 7.2. A unix socket has none.
    """
    address = address_of(text)
    return address.startswith("unix:") or address.endswith(":443" if is_tls else ":80")


def multiplexed_servers(every: Iterable[Scope], found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that speak HTTP/2 or HTTP/3, where one connection carries many requests.

    An ``http2`` of ``listen`` holds for every server of the address, the directive for its own.
    """
    multiplexed = {
        server
        for listener in found
        if listener.is_quic or listener.is_http2
        for server in listener.servers
    }
    return multiplexed | switched_to_http2(every)


def newly_multiplexed(tree: ConfTree) -> list[Scope]:
    """The places of the servers with TLS that would speak HTTP/2 were it turned on, and do not."""
    every, found = scopes(tree), listeners(tree)
    secure = tls_servers(found) | {
        server for one in found if one.is_tls and not one.is_quic for server in one.servers
    }
    wanted = secure - multiplexed_servers(every, found)
    return [one for one in every if one.server in wanted]


def switched_to_http2(every: Iterable[Scope]) -> set[Directive]:
    """The servers with ``http2 on``, whatever their listeners say."""
    return {
        scope.server for scope in every if scope.kind == "server" and scope.value("http2") == "on"
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
