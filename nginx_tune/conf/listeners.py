"""Addresses that servers listen on: the socket of each ``listen``, and the servers on it.

An address has many spellings, and nginx compares addresses, so every comparison of ``listen`` lines
uses this module. Host names are not resolved: nginx does so when it starts, and a name may have
several addresses. Source: ngx_parse_url, ngx_inet_addr, ngx_inet6_addr, ngx_inet_resolve_host,
ngx_cmp_sockaddr (src/core/ngx_inet.c); inet_aton(3) for numbers that nginx leaves to
getaddrinfo(3).

Options belong to an address and port. Any ``listen`` line of an address sets them for every server
there, and nginx rejects a second line with options ("duplicate listen options").
Source: ngx_http_core_listen, ngx_http_add_addresses.

A TLS connection starts with the SSL context of the address's default server, and OpenSSL looks up
sessions there, before the client has named a server. Source: ngx_http_init_connection.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, scopes, servers
from nginx_tune.conf.tree import ConfTree

USUAL_PORT = 80
_MOST_PORT = 65535
_PORT_DIGITS = 5
_OCTETS = 4
_PART = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*", re.ASCII)
_DIGITS = re.compile(r"\d*", re.ASCII)
_PORT_ONLY = re.compile(r"\d+(?:-\d+)?", re.ASCII)
_ALL_ONES = 0xFFFFFFFF
"""255.255.255.255, which ngx_inet_addr returns for text that is not an address."""

_MOST_PIECES = 200_000
"""Maximum number of pieces of overlapping port ranges; if there are more, none is cut."""

AddressFamily = Literal["inet", "inet6", "unix", "name", "unread"]


class SocketName(NamedTuple):
    """The socket of a ``listen``, in one canonical form."""

    family: AddressFamily
    """``name`` for a host whose addresses are not known; ``unread`` for text that nginx would
    reject, or a template placeholder."""
    host: str
    """``*`` for every IPv4 address, else an address, IPv6 in brackets; the path of a unix socket; a
    name in lowercase."""
    first: int = 0
    last: int = 0
    """First and last port, equal for a single port; 0 for a unix socket."""

    @property
    def is_wildcard(self) -> bool:
        """True if the socket is for every address of its family."""
        return self.host in ("*", "[::]") and self.family in ("inet", "inet6")

    @property
    def ports(self) -> range:
        """The ports; empty for a unix socket."""
        return range(self.first, self.last + 1) if self.first else range(0)

    def at(self, first: int, last: int) -> SocketName:
        """The same host with other ports."""
        return self._replace(first=first, last=last)

    def meets(self, other: SocketName) -> bool:
        """True if the port ranges overlap; hosts are not compared."""
        return bool(self.first) and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        if self.family == "unix":
            return f"unix:{self.host}"
        if self.family == "unread":
            return self.host
        ports = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.host}:{ports}"


@lru_cache(maxsize=4096)
def socket_name(text: str) -> SocketName:
    """The socket, or with a port range the sockets, of a ``listen`` argument."""
    if text[:5].lower() == "unix:":
        return SocketName("unix", text[5:])
    if text.startswith("["):
        return _of_inet6(text) or SocketName("unread", text.lower())
    return _of_inet(text) or SocketName("unread", text.lower())


def _of_inet6(text: str) -> SocketName | None:
    host, bracket, rest = text[1:].partition("]")
    address = _inet6(host)
    if not bracket or address is None or rest[:1] not in ("", ":"):
        return None
    ports = _ports(rest[1:]) if rest else (USUAL_PORT, USUAL_PORT)
    return None if ports is None else SocketName("inet6", f"[{address}]", *ports)


def _of_inet(text: str) -> SocketName | None:
    host, colon, port = text.partition(":")
    if "/" in text:
        return None
    if colon:
        ports = _ports(port)
    elif _PORT_ONLY.fullmatch(text):
        host, ports = "*", _ports(text)
    else:
        ports = USUAL_PORT, USUAL_PORT
    if not host or ports is None:
        return None
    if host == "*":
        return SocketName("inet", host, *ports)
    number = _inet(host)
    if number == _ALL_ONES or number is None:
        number = _by_resolver(host)
    if number is None:
        return SocketName("name", host.lower(), *ports)
    return SocketName("inet", str(ipaddress.IPv4Address(number)) if number else "*", *ports)


def _ports(text: str) -> tuple[int, int] | None:
    """A port or a range of ports; leading zeros are allowed (ngx_atoi)."""
    first, dash, last = text.partition("-")
    numbers = _port(first), _port(last if dash else first)
    low, high = numbers
    return None if low is None or high is None or low > high else (low, high)


def _port(text: str) -> int | None:
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit()) or not 0 < len(digits) <= _PORT_DIGITS:
        return None
    return int(digits) if int(digits) <= _MOST_PORT else None


def _inet(text: str) -> int | None:
    """An IPv4 address as nginx reads it: leading zeros are allowed, an empty number is 0."""
    parts = text.split(".")
    if len(parts) != _OCTETS or not all(map(_DIGITS.fullmatch, parts)):
        return None
    octets = [part.lstrip("0") or "0" for part in parts]
    if any(len(octet) > 3 or int(octet) > 255 for octet in octets):  # noqa: PLR2004  # of an octet
        return None
    return int.from_bytes(bytes(map(int, octets)), "big")


def _by_resolver(text: str) -> int | None:
    """An IPv4 address as getaddrinfo(3) reads it: also octal, hexadecimal, or fewer numbers."""
    parts = text.split(".")
    if len(parts) > _OCTETS or not all(map(_PART.fullmatch, parts)) or len(text) > 64:  # noqa: PLR2004  # of four numbers
        return None
    numbers = [_c_number(part) for part in parts]
    most = 1 << 8 * (_OCTETS + 1 - len(parts))
    if any(number > 255 for number in numbers[:-1]) or numbers[-1] >= most:  # noqa: PLR2004  # of an octet
        return None
    high = int.from_bytes(bytes([*numbers[:-1], *[0] * (_OCTETS + 1 - len(parts))]), "big")
    return high + numbers[-1]


def _c_number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def _inet6(text: str) -> str | None:
    """An IPv6 address in its short form; a trailing IPv4 address is read as nginx does."""
    head, colon, tail = text.rpartition(":")
    if "." in tail:
        number = _inet(tail)
        if number is None or number == _ALL_ONES:
            return None
        text = f"{head}{colon}{number >> 16:x}:{number & 0xFFFF:x}"
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if address.scope_id is not None:
        return None
    mapped = address.ipv4_mapped  # Python versions format it differently
    return address.compressed if mapped is None else f"::ffff:{mapped}"


class Wildcards:
    """The wildcards among some sockets, for a quick look-up among thousands."""

    def __init__(self, names: Iterable[SocketName]) -> None:
        found = [name for name in names if name.is_wildcard]
        self._single = {(name.family, name.first) for name in found if name.first == name.last}
        self._ranges = [name for name in found if name.first != name.last]
        self._all = found

    def cover(self, name: SocketName) -> bool:
        """True if one of the wildcards accepts connections for the socket.

        A host name may have IPv4, IPv6 or both addresses, so a wildcard of either covers it.
        """
        if name.is_wildcard or not name.first:
            return False
        families = ("inet", "inet6") if name.family == "name" else (name.family,)
        is_one = name.first == name.last
        if is_one and any((family, name.first) in self._single for family in families):
            return True
        others = self._ranges if is_one else self._all
        return any(other.family in families and other.meets(name) for other in others)


class PortCuts:
    """Places to cut port ranges, so that any two pieces are equal or disjoint."""

    def __init__(self, names: Sequence[SocketName]) -> None:
        ranges = [name for name in names if name.first != name.last]
        ends = {end for name in names for end in (name.first, name.last + 1)} if ranges else set()
        self._ends = sorted(ends)
        self.are_too_many = sum(len(self._inside(name)) for name in ranges) > _MOST_PIECES
        """True if there would be too many pieces; then no range is cut."""

    def _inside(self, name: SocketName) -> range:
        """Indices of the cuts inside a range, and at its end."""
        return range(
            bisect_right(self._ends, name.first), bisect_left(self._ends, name.last + 1) + 1
        )

    def pieces(self, name: SocketName) -> Iterator[SocketName]:
        """The pieces of a port range; a socket without a range is its only piece."""
        if self.are_too_many or name.first == name.last:
            yield name
            return
        first = name.first
        for index in self._inside(name):
            yield name.at(first, self._ends[index] - 1)
            first = self._ends[index]


_UNSAID_PORTS = (80, 8000)
"""Ports of a server without ``listen``: started by root, and by another user."""
_DEFAULT_WORDS = frozenset({"default_server", "default"})
_FLAGS = frozenset({"bind", "deferred", "multipath", "reuseport"})
_PARAMETERS = frozenset({
    "accept_filter", "backlog", "fastopen", "ipv6only", "rcvbuf", "setfib", "sndbuf",
    "so_keepalive",
})  # fmt: skip


@dataclass
class ListenAddress:
    """One listening address with its lines and servers."""

    socket: SocketName
    is_quic: bool
    lines: list[Directive] = field(default_factory=list)
    """The ``listen`` lines for the address; a line with a port range may have several addresses."""
    servers: list[Directive] = field(default_factory=list)
    has_socket: bool = True
    """False if its connections arrive over the socket of a wildcard address, whose options apply.
    If the line gets socket options, nginx binds the address too and does not start (98: Address
    already in use). ``nginx -t`` does not detect this."""
    maybe: Directive | None = None
    """The line of another address that may be the same, once nginx resolves host names."""

    @property
    def address(self) -> str:
        """``HOST:PORT``, with ``*`` for every IPv4 address, ``[::]:PORT`` or ``unix:PATH``."""
        return str(self.socket)

    @property
    def default_server(self) -> Directive:
        """The server for a host that no server of this address names."""
        for line, server in zip(self.lines, self.servers, strict=True):
            if names_default(line):
                return server
        return self.servers[0]

    @property
    def reuseport(self) -> Directive | None:
        """The line with ``reuseport``; None if there is none."""
        return next((line for line in self.lines if "reuseport" in line.args[1:]), None)

    @property
    def with_options(self) -> list[Directive]:
        """The lines with socket options; nginx allows only one such line."""
        return [line for line in self.lines if gives_options(line)]

    @property
    def is_tls(self) -> bool:
        """True if its connections are encrypted."""
        return self.is_quic or any("ssl" in line.args[1:] for line in self.lines)

    @property
    def is_http2(self) -> bool:
        """True if one of its lines has ``http2``, which applies to all its servers."""
        return any("http2" in line.args[1:] for line in self.lines)

    @property
    def is_unix(self) -> bool:
        """True for a unix socket."""
        return self.socket.family == "unix"


def listeners(tree: ConfTree) -> list[ListenAddress]:
    """The http listeners of a tree, in order; port ranges are cut where they overlap.

    A server without ``listen`` uses ``*:80``. It is left out, because it has no line to report.
    """
    every = servers(tree)
    lines = [
        (line, server)
        for _, server in every
        for line in (server.block or Block([])).all("listen")
        if line.args
    ]
    unsaid = any(not (server.block or Block([])).all("listen") for _, server in every)
    return listeners_of(lines, [socket_name(f"{one}") for one in _UNSAID_PORTS if unsaid])


def listeners_of(
    lines: Iterable[tuple[Directive, Directive]], unsaid: Sequence[SocketName] = ()
) -> list[ListenAddress]:
    """The addresses of pairs (``listen`` line, server).

    ``unsaid`` are the TCP sockets of servers without ``listen``.
    """
    named = [(socket_name(line.value), "quic" in line.args[1:], line, own) for line, own in lines]
    cuts = {kind: PortCuts([one[0] for one in named if one[1] == kind]) for kind in (False, True)}
    found: dict[tuple[SocketName, bool], ListenAddress] = {}
    for name, kind, line, server in named:
        for piece in (name,) if name.first == name.last else cuts[kind].pieces(name):
            listener = found.setdefault((piece, kind), ListenAddress(piece, kind))
            listener.lines.append(line)
            listener.servers.append(server)
    for kind in (False, True):
        alike = [address for address in found.values() if address.is_quic == kind]
        _tell_sockets(alike, () if kind else unsaid)
        if cuts[kind].are_too_many:
            for address in alike:
                address.maybe = address.maybe or address.lines[0]
    return list(found.values())


def _tell_sockets(found: Sequence[ListenAddress], unsaid: Sequence[SocketName]) -> None:
    """Set ``has_socket`` and ``maybe`` of addresses that are all TCP or all QUIC."""
    wildcards = Wildcards([*(address.socket for address in found), *unsaid])
    by_ports: dict[tuple[int, int], list[ListenAddress]] = {}
    for address in found:
        address.has_socket = bool(address.with_options) or not wildcards.cover(address.socket)
        by_ports.setdefault((address.socket.first, address.socket.last), []).append(address)
    for beside in by_ports.values():
        names = [address for address in beside if address.socket.family == "name"]
        if not names or len(beside) == 1:
            continue
        bound = next((address for address in names if address.with_options), None)
        for address in beside:
            # A name without options beside a wildcard is the same address, or uses its socket, or
            # has a socket without options: in each case the wildcard may have options.
            other = bound if address.socket.is_wildcard else names[0]
            if other is address:
                other = next(each for each in beside if each is not address)
            address.maybe = None if other is None else other.lines[0]


def names_default(listen: Directive) -> bool:
    """True if a ``listen`` makes its server the default of the address."""
    return not _DEFAULT_WORDS.isdisjoint(listen.args[1:])


def is_named_default(server: Directive) -> bool:
    """True if a ``listen`` of the server makes it the default of an address."""
    return any(map(names_default, (server.block or Block([])).all("listen")))


def gives_options(listen: Directive) -> bool:
    """True if a ``listen`` sets socket options."""
    return any(is_socket_option(arg) for arg in listen.args[1:])


def is_socket_option(arg: str) -> bool:
    """True for a ``listen`` argument that is a socket option, which makes nginx bind it.

    Source: ngx_http_core_listen (``lsopt.set``, ``lsopt.bind``).
    """
    name, equals, _ = arg.partition("=")
    return name in (_PARAMETERS if equals else _FLAGS)


def has_usual_port(text: str, *, is_tls: bool) -> bool:
    """True if clients of a ``listen`` omit its port from the URL, and so from ``Host``.

    Source: RFC 9110, sections 4.2.1, 4.2.2 and 7.2. A unix socket has no port.
    """
    name = socket_name(text)
    port = 443 if is_tls else 80
    return name.family == "unix" or (name.first, name.last) == (port, port)


def multiplexed_servers(every: Iterable[Scope], found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers with HTTP/2 or HTTP/3, where one connection carries many requests.

    ``http2`` in ``listen`` applies to every server of the address, the directive ``http2`` only to
    its own server.
    """
    listed = list(found)
    quic = {server for listener in listed if listener.is_quic for server in listener.servers}
    return quic | http2_servers(every, listed)


def http2_servers(every: Iterable[Scope], found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers with HTTP/2."""
    listed = {server for listener in found if listener.is_http2 for server in listener.servers}
    return listed | switched_to_http2(every)


def has_own_queues(found: Iterable[ListenAddress]) -> bool:
    """True if each worker has its own queue at every address."""
    network = [address for address in found if not address.is_unix]
    return bool(network) and all(address.reuseport is not None for address in network)


def newly_multiplexed(tree: ConfTree) -> list[Scope]:
    """The scopes of TLS servers that have neither HTTP/2 nor HTTP/3."""
    every, found = scopes(tree), listeners(tree)
    secure = tls_servers(found) | {
        server
        for address in found
        if address.is_tls and not address.is_quic
        for server in address.servers
    }
    wanted = secure - multiplexed_servers(every, found)
    return [scope for scope in every if scope.server in wanted]


def cleartext_http2_servers(
    every: Iterable[Scope], found: Iterable[ListenAddress]
) -> set[Directive]:
    """The servers with HTTP/2 for clients without TLS.

    Browsers never use it, so ``http2 on`` counts only for a server without any TLS.
    """
    listed = [address for address in found if not address.is_quic]
    plain = {server for address in listed if not address.is_tls for server in address.servers}
    secure = {server for address in listed if address.is_tls for server in address.servers}
    named = {
        s for address in listed if address.is_http2 and not address.is_tls for s in address.servers
    }
    return named | (switched_to_http2(every) & plain - secure)


def switched_to_http2(every: Iterable[Scope]) -> set[Directive]:
    """The servers with the directive ``http2 on``, regardless of their ``listen`` lines."""
    return {
        scope.server for scope in every if scope.kind == "server" and scope.value("http2") == "on"
    }


def tls_servers(found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that respond only over TLS."""
    secure: set[Directive] = set()
    plain: set[Directive] = set()
    for listener in found:
        (secure if listener.is_tls else plain).update(listener.servers)
    return secure - plain


class TlsListener(NamedTuple):
    """An address with TLS, over TCP or QUIC."""

    listener: ListenAddress
    default: Scope
    """Its default server."""
    servers: list[Scope]


def tls_listeners(listeners: list[ListenAddress], scopes: list[Scope]) -> Iterator[TlsListener]:
    """The TLS listeners among ``listeners``, with their servers' scopes."""
    by_block = {id(scope.own.block): scope for scope in scopes if scope.kind == "server"}
    for listener in listeners:
        default = by_block[id(listener.default_server.block)]
        if listener.is_quic or _speaks_tls(listener, default):
            servers = [by_block[id(server.block)] for server in listener.servers]
            yield TlsListener(listener, default, servers)


def _speaks_tls(listener: ListenAddress, default: Scope) -> bool:
    # "ssl on;" is the older form, removed in 1.25.1.
    return any("ssl" in line.args[1:] for line in listener.lines) or default.value("ssl") == "on"
