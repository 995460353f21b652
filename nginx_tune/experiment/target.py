"""The targets and entry points of a configuration: addresses, hosts and URLs of its servers.

A load has an entry point: a listener, a root with files, and a URL answered without a file.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import (
    ListenAddress,
    SocketName,
    listeners,
    socket_name,
    switched_to_http2,
)
from nginx_tune.conf.scopes import Scope, http_directives, scopes, servers
from nginx_tune.conf.served import Served, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import UNSAID, VirtualServers, host_of, virtual_servers
from nginx_tune.documents.loadplan import ProxyProtocol, Target, Tls
from nginx_tune.documents.scenario import MultiplexedVersion
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.operation import LOOPBACK
from nginx_tune.nginx.subject import is_own_stream

_WRITTEN = {
    "access_log": 0,
    "error_log": 0,
    "pid": 0,
    "lock_file": 0,
    "client_body_temp_path": 0,
    "proxy_temp_path": 0,
    "fastcgi_temp_path": 0,
    "uwsgi_temp_path": 0,
    "scgi_temp_path": 0,
    "proxy_cache_path": 0,
    "fastcgi_cache_path": 0,
    "uwsgi_cache_path": 0,
    "scgi_cache_path": 0,
}
_NOT_FILES = ("off", "stderr")
_OTHER_LOOPBACK = "127.0.0.2"


class Spoken(NamedTuple):
    """The targets at which a server speaks HTTP/2 over TLS, and HTTP/3."""

    http2: Target | None = None
    """The target for HTTP/2 over TLS."""
    http3: Target | None = None

    def at(self, protocol: MultiplexedVersion) -> Target | None:
        """The target for a protocol."""
        return self.http2 if protocol == "2" else self.http3


def can_load(served: Served) -> bool:
    """True if the files of a served directory have known URLs."""
    if not served.is_whole or served.via == "cache":
        return False
    location = served.scope.own
    return location.name == "server" or (
        location.name == "location" and len(location.args) == 1 and location.args[0][:1] == "/"
    )


class _Tree:
    """A tree hashed by identity, since hashing its contents walks through all of it."""

    def __init__(self, tree: ConfTree) -> None:
        self.tree = tree

    def __hash__(self) -> int:
        return id(self.tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tree) and other.tree is self.tree


class _Listening(NamedTuple):
    addresses: list[ListenAddress]
    hosts: list[VirtualServers]
    switched: set[Directive]
    """Servers with ``http2 on``."""


@lru_cache(maxsize=4)
def _listening(key: _Tree) -> _Listening:
    """The listeners of a whole tree, cached because they are needed for each server."""
    tree = key.tree
    return _Listening(listeners(tree), virtual_servers(tree), switched_to_http2(scopes(tree)))


def target_of(tree: ConfTree, server: Directive) -> Target | None:
    """The server's best listener for HTTP/1.1, with a host by which the server answers there.

    Ports come before unix sockets, then cleartext before TLS, then listeners without the PROXY
    protocol. None if there is no such listener or host.
    """
    return next(iter(_named(tree, server, spoken_plainly(tree, server), is_quic=False)), None)


def why_unreachable(tree: ConfTree, server: Directive) -> str:
    """The reason why a server has no target."""
    if not spoken_plainly(tree, server):
        return "its server has no HTTP/1.1 listener on an address or unix socket"
    names = (server.block or Block([])).first("server_name")
    if names:
        return f"no known host matches its {names}, so another server would answer"
    return "its server has no name, so another server would answer"


def spoken_plainly(tree: ConfTree, server: Directive) -> list[tuple[SocketName, Target]]:
    """A server's HTTP/1.1 listeners, without hosts."""
    places = [
        (listener.socket, place)
        for listener, place in _places(tree, server)
        if not listener.is_quic and (listener.is_tls or not listener.is_http2)
    ]
    if not places and not any(True for _ in (server.block or Block([])).all("listen")):
        places = [(socket_name(UNSAID), Target(address=LOOPBACK, port=80))]
    return places


def _named(
    tree: ConfTree, server: Directive, places: Sequence[tuple[SocketName, Target]], *, is_quic: bool
) -> Iterator[Target]:
    """The places in order of preference, each with a host; places without a host are left out."""
    every = [group for group in _listening(_Tree(tree)).hosts if group.is_quic == is_quic]
    for socket, first in sorted(places, key=lambda item: preference(item[1])):
        for place in (first, *_alternatives(socket, first)):
            host = host_of(server, _reached(every, socket, place))
            if host is not None:
                yield msgspec.structs.replace(place, host=host)


def _alternatives(socket: SocketName, place: Target) -> list[Target]:
    """Another loopback address for a wildcard, in case 127.0.0.1 belongs to other servers."""
    is_every = socket.is_wildcard and place.address == LOOPBACK
    return [msgspec.structs.replace(place, address=_OTHER_LOOPBACK)] if is_every else []


def _reached(
    every: Sequence[VirtualServers], socket: SocketName, place: Target
) -> list[VirtualServers]:
    """The servers that a client of ``place`` reaches.

    These listen on the very address of the place, or if none does, on the wildcard address.

    Source: ngx_http_init_connection, which looks for the local address among those of the port.
    """
    if place.unix is not None:
        return [group for group in every if group.socket == socket]
    reached = [
        group
        for group in every
        if group.socket.first <= place.port <= group.socket.last
        and (
            _reached_at(group.socket.host) == place.address
            or (group.socket.host == "*" and place.address == _OTHER_LOOPBACK)
        )
    ]
    return [group for group in reached if not group.socket.is_wildcard] or reached


def spoken_at(tree: ConfTree, server: Directive) -> Spoken:
    """The best targets for HTTP/2 over TLS and for HTTP/3, in the order of ``target_of``."""
    switched = server in _listening(_Tree(tree)).switched
    places = list(_places(tree, server))
    http2 = [
        (listener.socket, place)
        for listener, place in places
        if listener.is_tls and not listener.is_quic and (switched or listener.is_http2)
    ]
    http3 = [(listener.socket, place) for listener, place in places if listener.is_quic]
    return Spoken(
        next(iter(_named(tree, server, http2, is_quic=False)), None),
        next(iter(_named(tree, server, http3, is_quic=True)), None),
    )


def preference(target: Target) -> tuple[bool, bool, bool]:
    """The sort key of listeners, the preferred one first."""
    return (target.unix is not None, target.tls is not None, target.proxy_protocol is not None)


def _places(tree: ConfTree, server: Directive) -> Iterator[tuple[ListenAddress, Target]]:
    """A server's listeners with their targets, without hosts."""
    for listener in _listening(_Tree(tree)).addresses:
        own = [
            line
            for line, owner in zip(listener.lines, listener.servers, strict=True)
            if owner is server
        ]
        if not own:
            continue
        # Parameters on any listen line of an address hold for all of them.
        words = {word for line in listener.lines for word in line.args[1:]}
        # No certificate is checked: nobody else listens in the sandbox.
        tls = Tls(verify=False) if listener.is_tls else None
        is_proxied = "proxy_protocol" in words
        if listener.is_unix:
            path = listener.socket.host
            if path.startswith("/"):
                header = _proxy_header(path) if is_proxied else None
                yield listener, Target(unix=path, tls=tls, proxy_protocol=header)
            continue
        address = _reached_at(listener.socket.host)
        first = listener.socket.first  # of a range of ports
        if address is not None and first:
            header = _proxy_header(None) if is_proxied else None
            place = Target(address=address, port=first, tls=tls, proxy_protocol=header)
            yield listener, place


def _proxy_header(unix: str | None) -> ProxyProtocol:
    """A load balancer's header; loopback addresses for a unix socket."""
    return ProxyProtocol(version=1, source=None if unix is None else LOOPBACK)


def _reached_at(host: str) -> str | None:
    """The address that a client connects to; None for a host name."""
    known = {"*": LOOPBACK, "localhost": LOOPBACK, "[::]": "::1"}
    if host in known:
        return known[host]
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def listen_sockets(tree: ConfTree) -> list[str]:
    """The paths of the unix sockets of a tree's listeners."""
    paths = (listener.socket.host for listener in listeners(tree) if listener.is_unix)
    return [path for path in paths if path.startswith("/")]


def listen_addresses(tree: ConfTree) -> list[str]:
    """The addresses that a tree's listeners name, except loopback addresses."""
    named = {
        _reached_at(listener.socket.host) for listener in listeners(tree) if listener.socket.first
    }
    addresses = {address for address in named if address is not None}
    return sorted(address for address in addresses if not ipaddress.ip_address(address).is_loopback)


def url_prefix(served: Served) -> str:
    """The URL of a served directory (an alias replaces its location's URI, a root keeps it)."""
    location = served.scope.own
    if location.name == "server":
        return ""
    uri = location.args[0]
    return uri.rstrip("/") if uri.endswith("/") else uri.rpartition("/")[0]


def uri_of(scope: Scope) -> str | None:
    """The URI of a location; None for a pattern or a named location."""
    args = scope.own.args
    if len(args) == 2 and args[0] in {"=", "^~"}:  # noqa: PLR2004  # a modifier and a URI
        return args[1]
    return args[0] if len(args) == 1 and args[0].startswith("/") else None


def written_files(tree: ConfTree) -> list[str]:
    """Absolute paths of the logs, pid files, temporary files and caches of a tree.

    A directory that nginx writes into ends in ``/.``.
    """
    paths = []
    for directive in (*tree.main, *http_directives(tree)):
        if directive.name in _WRITTEN and directive.args:
            name = directive.value
            if name in _NOT_FILES or ":" in name or "$" in name:
                continue
            full = tree.full_path(name)
            if full is not None:
                paths.append(f"{full}/." if directive.name.endswith("_path") else full)
    return sorted(set(paths))


_INDEX = "index.html"


class EntryPoint(NamedTuple):
    """The server, directory and URLs at which the load enters a configuration."""

    target: Target
    server: Directive
    root: str | None
    """The directory on disk behind ``url_prefix``; None if no server serves files."""
    url_prefix: str
    index_file: str
    """The file served for a directory."""
    memory_url: str | None
    """A URL answered by ``return 200`` or ``204``, without a file."""
    error_log: str | None
    """The main context's error log; None for the build's default."""
    written: list[str]
    """Files and directories that the configuration writes."""
    spoken: Spoken = Spoken()


class FilePlace(NamedTuple):
    """A directory whose files a server serves by known URLs."""

    target: Target
    server: Directive
    root: str
    url_prefix: str
    index_file: str
    lacks: bool
    """True if its server lacks a requested protocol."""


def file_places(tree: ConfTree, *, protocols: Sequence[MultiplexedVersion] = ()) -> list[FilePlace]:
    """The places with files in order of preference.

    Servers with all of ``protocols`` come first, then ports, then cleartext; ties keep file order.
    """
    places = []
    targets: dict[Directive, Target | None] = {}
    for served in filter(can_load, served_paths(tree)):
        server = served.scope.server
        if server not in targets:
            targets[server] = target_of(tree, server)
        target = targets[server]
        if target is not None:
            places.append(
                FilePlace(
                    target,
                    server,
                    served.path,
                    url_prefix(served),
                    _index(served.scope),
                    _lacks(tree, server, protocols),
                )
            )
    return sorted(places, key=lambda place: (place.lacks, *preference(place.target)[:2]))


def plan_entry(
    tree: ConfTree,
    place: FilePlace | None,
    *,
    default_error_log: str | None,
    protocols: Sequence[MultiplexedVersion] = (),
    server: Directive | None = None,
) -> EntryPoint:
    """The entry point at a place with files; without one, at a reachable server.

    Servers with all of ``protocols`` are preferred, then ``server``.
    Errors: UndecidedError if no server is reachable.
    """
    if place is None:
        targets = [(target_of(tree, server), server) for _, server in servers(tree)]
        reachable = [(target, server) for target, server in targets if target is not None]
        if not reachable:
            raise UndecidedError(
                f"{tree.path}: no server has a reachable HTTP or TLS listener{_why_none(tree)}",
                hint="listen on an IP address or a unix socket, with http2 only beside ssl",
            )
        target, chosen = min(
            reachable, key=lambda item: (_lacks(tree, item[1], protocols), item[1] is not server)
        )
        root, prefix, index = None, "", _INDEX
    else:
        target, chosen, index = place.target, place.server, place.index_file
        root, prefix = place.root, place.url_prefix
    return EntryPoint(
        target=target,
        server=chosen,
        root=root,
        url_prefix=prefix,
        index_file=index,
        memory_url=_memory_url(tree, chosen),
        error_log=_error_log(tree, default_error_log),
        written=written_files(tree),
        spoken=spoken_at(tree, chosen),
    )


def _why_none(tree: ConfTree) -> str:
    """The reason why the first server with a listener is unreachable; empty if there is none."""
    listening = [server for _, server in servers(tree) if spoken_plainly(tree, server)]
    return f": {why_unreachable(tree, listening[0])}" if listening else ""


def _lacks(tree: ConfTree, server: Directive, protocols: Sequence[MultiplexedVersion]) -> bool:
    spoken = spoken_at(tree, server) if protocols else Spoken()
    return any(spoken.at(protocol) is None for protocol in protocols)


def _index(scope: Scope) -> str:
    names = scope.effective("index")
    plain = [name for name in (names.args if names else ()) if "$" not in name and "/" not in name]
    return plain[0] if plain else _INDEX


_CONDITIONS = ("if", "limit_except", "deny", "auth_basic", "auth_request", "auth_jwt", "rewrite")
"""Directives by which other clients may get a different answer than the probe."""


def _memory_url(tree: ConfTree, server: Directive) -> str | None:
    """The URI of the first location that always returns 200 or 204, else of one that may return it.

    The survey requests it before a load. It skips ``internal`` locations, and all locations of a
    server with its own ``return``.
    """
    may = None
    for scope in scopes(tree):
        answer = scope.sets("return")
        if scope.kind != "location" or scope.server is not server or answer is None:
            continue
        uri = uri_of(scope)
        if not uri or answer.args[:1] not in (("200",), ("204",)):
            continue
        if scope.effective("internal") or (server.block or Block([])).first("return"):
            continue
        if not any(scope.effective(name) for name in _CONDITIONS):
            return uri
        may = may or uri
    return may


def _error_log(tree: ConfTree, default: str | None) -> str | None:
    names = [line.value for line in tree.main.all("error_log")]
    # All error logs get the same lines; one that is a device cannot be read back.
    own = next((name for name in names if not name.startswith("/dev/")), names[0] if names else "")
    name = own or default
    if name is None or name == "stderr" or name.startswith(("syslog:", "memory:")):
        return None
    full = tree.full_path(name)
    return None if full is None or is_own_stream(full) else full
