"""Addresses that servers listen on: the socket of each ``listen``, and who answers there.

nginx compares addresses, and one has many spellings: all who ask whether two lines are for one
socket ask here. What a name stands for is not known: the resolver of the host says so when nginx
starts, and one name may be several addresses. Source: ngx_parse_url, ngx_inet_addr,
ngx_inet6_addr, ngx_inet_resolve_host, ngx_cmp_sockaddr (src/core/ngx_inet.c); inet_aton(3) for
numbers that nginx leaves to getaddrinfo(3).

Options belong to an address and port, not to one server: whichever ``listen`` of an address names
an option sets it for every server there, and a second that names any is refused ("duplicate listen
options"). Source: ngx_http_core_listen, ngx_http_add_addresses.

A connection of TLS starts with the address's default server, and OpenSSL looks sessions up in the
context that it started with, before the client has named a server. Source:
ngx_http_init_connection.
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
"""255.255.255.255 is how ngx_inet_addr says that it read no address."""

_MOST_PIECES = 200_000
"""Ranges of ports that overlap are cut where they do; beyond this they are left whole."""

AddressFamily = Literal["inet", "inet6", "unix", "name", "unread"]


class SocketName(NamedTuple):
    """The name in a ``listen``, in the one form that all its spellings have."""

    family: AddressFamily
    """``name``: a host whose addresses are not known; ``unread``: what nginx would refuse, or a
    mark of a template."""
    host: str
    """``*`` for every IPv4 address, else an address, IPv6 in brackets; the path of a unix socket,
    of which nginx compares the letters; a name in small letters."""
    first: int = 0
    last: int = 0
    """Ports: a range of them, or one. No port of its own has a unix socket."""

    @property
    def is_wildcard(self) -> bool:
        """True when it is every address of its family."""
        return self.host in ("*", "[::]") and self.family in ("inet", "inet6")

    @property
    def ports(self) -> range:
        """The ports; empty for what has none."""
        return range(self.first, self.last + 1) if self.first else range(0)

    def at(self, first: int, last: int) -> SocketName:
        """The same with other ports."""
        return self._replace(first=first, last=last)

    def meets(self, other: SocketName) -> bool:
        """Tell whether they have a port in common."""
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
    """The socket, or with a range of ports the sockets, that the word of a ``listen`` names."""
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
    """A port or a range of them; zeros may stand before (ngx_atoi)."""
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
    """Four decimal numbers as nginx reads them: with zeros before, and none for 0."""
    parts = text.split(".")
    if len(parts) != _OCTETS or not all(map(_DIGITS.fullmatch, parts)):
        return None
    octets = [one.lstrip("0") or "0" for one in parts]
    if any(len(one) > 3 or int(one) > 255 for one in octets):  # noqa: PLR2004  # of an octet
        return None
    return int.from_bytes(bytes(map(int, octets)), "big")


def _by_resolver(text: str) -> int | None:
    """The address that getaddrinfo(3) reads in numbers: fewer than four, octal, hexadecimal."""
    parts = text.split(".")
    if len(parts) > _OCTETS or not all(map(_PART.fullmatch, parts)) or len(text) > 64:  # noqa: PLR2004  # of four numbers
        return None
    numbers = [_c_number(one) for one in parts]
    most = 1 << 8 * (_OCTETS + 1 - len(parts))
    if any(one > 255 for one in numbers[:-1]) or numbers[-1] >= most:  # noqa: PLR2004  # of an octet
        return None
    high = int.from_bytes(bytes([*numbers[:-1], *[0] * (_OCTETS + 1 - len(parts))]), "big")
    return high + numbers[-1]


def _c_number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def _inet6(text: str) -> str | None:
    """An IPv6 address in its short form; an IPv4 one at its end is read as nginx reads those."""
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
    mapped = address.ipv4_mapped  # Python writes it in one way or the other, by its version
    return address.compressed if mapped is None else f"::ffff:{mapped}"


class Wildcards:
    """The wildcards among some sockets, of which there may be thousands."""

    def __init__(self, names: Iterable[SocketName]) -> None:
        found = [one for one in names if one.is_wildcard]
        self._single = {(one.family, one.first) for one in found if one.first == one.last}
        self._ranges = [one for one in found if one.first != one.last]
        self._all = found

    def cover(self, name: SocketName) -> bool:
        """Tell whether one of them takes what comes to the socket.

        A name may be of IPv4, of IPv6 or both, and is covered by either.
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
    """Cuts of the ranges of ports of some lines, so that any two are the same or apart."""

    def __init__(self, names: Sequence[SocketName]) -> None:
        ranges = [one for one in names if one.first != one.last]
        ends = {end for one in names for end in (one.first, one.last + 1)} if ranges else set()
        self._ends = sorted(ends)
        self.are_too_many = sum(len(self._inside(one)) for one in ranges) > _MOST_PIECES
        """Then none is cut."""

    def _inside(self, name: SocketName) -> range:
        """The places of its ends behind its first port."""
        return range(
            bisect_right(self._ends, name.first), bisect_left(self._ends, name.last + 1) + 1
        )

    def pieces(self, name: SocketName) -> Iterator[SocketName]:
        """The parts of a range; what has one port, or none, as it is."""
        if self.are_too_many or name.first == name.last:
            yield name
            return
        first = name.first
        for index in self._inside(name):
            yield name.at(first, self._ends[index] - 1)
            first = self._ends[index]


_UNSAID_PORTS = (80, 8000)
"""Ports of a server without ``listen``: started by root, and by others."""
_DEFAULT_WORDS = frozenset({"default_server", "default"})
_FLAGS = frozenset({"bind", "deferred", "multipath", "reuseport"})
_PARAMETERS = frozenset({
    "accept_filter", "backlog", "fastopen", "ipv6only", "rcvbuf", "setfib", "sndbuf",
    "so_keepalive",
})  # fmt: skip


@dataclass
class ListenAddress:
    """One listening address with the lines and servers that share it."""

    socket: SocketName
    is_quic: bool
    lines: list[Directive] = field(default_factory=list)
    """A line with a range of ports may be in several addresses."""
    servers: list[Directive] = field(default_factory=list)
    has_socket: bool = True
    """False where it is a sibling: what comes to it comes over the socket of a wildcard address,
    whose options hold for it. One option of its own would have it bind too, and then nginx does not
    start (98: Address already in use), which ``nginx -t`` does not see."""
    maybe: Directive | None = None
    """The line of another address that may be this one: a host name is resolved when nginx starts,
    and not here."""

    @property
    def address(self) -> str:
        """``HOST:PORT`` with ``*`` for every IPv4 address, ``[::]:PORT``, or ``unix:PATH``."""
        return str(self.socket)

    @property
    def default_server(self) -> Directive:
        """The server that answers on it for hosts that no server names."""
        for line, server in zip(self.lines, self.servers, strict=True):
            if names_default(line):
                return server
        return self.servers[0]

    @property
    def reuseport(self) -> Directive | None:
        """The line that asks for ``reuseport``."""
        return next((line for line in self.lines if "reuseport" in line.args[1:]), None)

    @property
    def with_options(self) -> list[Directive]:
        """The lines that give options of the socket, of which nginx takes one."""
        return [line for line in self.lines if gives_options(line)]

    @property
    def is_tls(self) -> bool:
        """True when connections to it are encrypted."""
        return self.is_quic or any("ssl" in line.args[1:] for line in self.lines)

    @property
    def is_http2(self) -> bool:
        """True when one of its lines says ``http2``, which holds for all its servers."""
        return any("http2" in line.args[1:] for line in self.lines)

    @property
    def is_unix(self) -> bool:
        """True when it is no network address."""
        return self.socket.family == "unix"


def listeners(tree: ConfTree) -> list[ListenAddress]:
    """The http listeners of a tree in the order met; ranges of ports are cut where they differ.

    A server without ``listen`` gets ``*:80`` and is left out: there is no line to speak of.
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
    """The addresses of ``listen`` lines with their servers; what is ``unsaid`` is of TCP."""
    named = [(socket_name(line.value), "quic" in line.args[1:], line, own) for line, own in lines]
    cuts = {kind: PortCuts([one[0] for one in named if one[1] == kind]) for kind in (False, True)}
    found: dict[tuple[SocketName, bool], ListenAddress] = {}
    for name, kind, line, server in named:
        for piece in (name,) if name.first == name.last else cuts[kind].pieces(name):
            listener = found.setdefault((piece, kind), ListenAddress(piece, kind))
            listener.lines.append(line)
            listener.servers.append(server)
    for kind in (False, True):
        alike = [one for one in found.values() if one.is_quic == kind]
        _tell_sockets(alike, () if kind else unsaid)
        if cuts[kind].are_too_many:
            for one in alike:
                one.maybe = one.maybe or one.lines[0]
    return list(found.values())


def _tell_sockets(found: Sequence[ListenAddress], unsaid: Sequence[SocketName]) -> None:
    """Find which addresses of one kind have sockets, and which may be others of them."""
    wildcards = Wildcards([*(one.socket for one in found), *unsaid])
    by_ports: dict[tuple[int, int], list[ListenAddress]] = {}
    for one in found:
        one.has_socket = bool(one.with_options) or not wildcards.cover(one.socket)
        by_ports.setdefault((one.socket.first, one.socket.last), []).append(one)
    for beside in by_ports.values():
        names = [one for one in beside if one.socket.family == "name"]
        if not names or len(beside) == 1:
            continue
        bound = next((one for one in names if one.with_options), None)
        for one in beside:
            # A name without options beside a wildcard is it, or rides on its socket, or has one
            # that nobody gives an option: the wildcard may have them.
            other = bound if one.socket.is_wildcard else names[0]
            if other is one:
                other = next(each for each in beside if each is not one)
            one.maybe = None if other is None else other.lines[0]


def names_default(listen: Directive) -> bool:
    """Tell whether a ``listen`` says whose address it is, wherever the server stands."""
    return not _DEFAULT_WORDS.isdisjoint(listen.args[1:])


def is_named_default(server: Directive) -> bool:
    """Tell whether a ``listen`` of the server says that it is the default of an address."""
    return any(map(names_default, (server.block or Block([])).all("listen")))


def gives_options(listen: Directive) -> bool:
    """Tell whether a ``listen`` gives options of its sockets."""
    return any(is_socket_option(arg) for arg in listen.args[1:])


def is_socket_option(arg: str) -> bool:
    """Tell if a word of ``listen`` is an option of the socket, any of which makes nginx bind it.

    Source: ngx_http_core_listen (``lsopt.set``, ``lsopt.bind``).
    """
    name, equals, _ = arg.partition("=")
    return name in (_PARAMETERS if equals else _FLAGS)


def has_usual_port(text: str, *, is_tls: bool) -> bool:
    """Tell whether clients of a ``listen`` leave its port out of the URL, and so of their ``Host``.

    Source: RFC 9110, sections 4.2.1, 4.2.2 and 7.2. A unix socket has none.
    """
    name = socket_name(text)
    port = 443 if is_tls else 80
    return name.family == "unix" or (name.first, name.last) == (port, port)


def multiplexed_servers(every: Iterable[Scope], found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that speak HTTP/2 or HTTP/3, where one connection carries many requests.

    An ``http2`` of ``listen`` holds for every server of the address, the directive for its own.
    """
    listed = list(found)
    quic = {server for listener in listed if listener.is_quic for server in listener.servers}
    return quic | http2_servers(every, listed)


def http2_servers(every: Iterable[Scope], found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that speak HTTP/2."""
    listed = {server for listener in found if listener.is_http2 for server in listener.servers}
    return listed | switched_to_http2(every)


def has_own_queues(found: Iterable[ListenAddress]) -> bool:
    """Tell if each worker has a queue of its own at every address, so that none takes another's."""
    network = [one for one in found if not one.is_unix]
    return bool(network) and all(one.reuseport is not None for one in network)


def newly_multiplexed(tree: ConfTree) -> list[Scope]:
    """The places of the servers with TLS that would speak HTTP/2 were it turned on, and do not."""
    every, found = scopes(tree), listeners(tree)
    secure = tls_servers(found) | {
        server for one in found if one.is_tls and not one.is_quic for server in one.servers
    }
    wanted = secure - multiplexed_servers(every, found)
    return [one for one in every if one.server in wanted]


def cleartext_http2_servers(
    every: Iterable[Scope], found: Iterable[ListenAddress]
) -> set[Directive]:
    """The servers that clients without TLS speak HTTP/2 with.

    A browser never does, so ``http2 on`` counts only for a server that has no TLS at all.
    """
    listed = [one for one in found if not one.is_quic]
    plain = {server for one in listed if not one.is_tls for server in one.servers}
    secure = {server for one in listed if one.is_tls for server in one.servers}
    named = {s for one in listed if one.is_http2 and not one.is_tls for s in one.servers}
    return named | (switched_to_http2(every) & plain - secure)


def switched_to_http2(every: Iterable[Scope]) -> set[Directive]:
    """The servers with ``http2 on``, whatever their listeners say."""
    return {
        scope.server for scope in every if scope.kind == "server" and scope.value("http2") == "on"
    }


def tls_servers(found: Iterable[ListenAddress]) -> set[Directive]:
    """The servers that answer over TLS only."""
    secure: set[Directive] = set()
    plain: set[Directive] = set()
    for listener in found:
        (secure if listener.is_tls else plain).update(listener.servers)
    return secure - plain


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
