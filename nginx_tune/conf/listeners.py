"""Listen addresses: socket options belong to an address and port, not to one server.

Source: ngx_http_core_listen, ngx_http_add_addresses: whichever ``listen`` of an address names
an option sets it for every server there, and a second that names any is refused ("duplicate listen
options"). Which spellings are one address ``conf.sockets`` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, scopes, servers
from nginx_tune.conf.sockets import PortCuts, SocketName, Wildcards, socket_name
from nginx_tune.conf.tree import ConfTree

_UNSAID_PORTS = (80, 8000)
"""Where a server without ``listen`` listens: started by root, and by others."""
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
        """Whether connections to it are encrypted."""
        return self.is_quic or any("ssl" in line.args[1:] for line in self.lines)

    @property
    def is_http2(self) -> bool:
        """Whether one of its lines says ``http2``, which holds for all its servers."""
        return any("http2" in line.args[1:] for line in self.lines)

    @property
    def is_unix(self) -> bool:
        """Whether it is no network address."""
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
        for piece in cuts[kind].pieces(name):
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
    """Which addresses of one kind have sockets, and which may be others of them."""
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
    """Whether a ``listen`` says whose address it is, wherever the server stands."""
    return not _DEFAULT_WORDS.isdisjoint(listen.args[1:])


def is_named_default(server: Directive) -> bool:
    """Whether a ``listen`` of the server says that it is the default of an address."""
    return any(map(names_default, (server.block or Block([])).all("listen")))


def gives_options(listen: Directive) -> bool:
    """Whether a ``listen`` gives options of its sockets."""
    return any(is_socket_option(arg) for arg in listen.args[1:])


def is_socket_option(arg: str) -> bool:
    """Whether a word of ``listen`` is an option of the socket, any of which makes nginx bind it.

    Source: ngx_http_core_listen (``lsopt.set``, ``lsopt.bind``).
    """
    name, equals, _ = arg.partition("=")
    return name in (_PARAMETERS if equals else _FLAGS)


def has_usual_port(text: str, *, is_tls: bool) -> bool:
    """Whether clients of a ``listen`` leave its port out of the URL, and so of their ``Host``.

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
    """Whether each worker has a queue of its own at every address, so that none takes another's."""
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
