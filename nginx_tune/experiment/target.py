"""What of an operator's configuration is put under load: a listener, a root, a memory URL; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import ListenAddress, listeners, switched_to_http2
from nginx_tune.conf.scopes import Scope, http_directives, scopes, servers
from nginx_tune.conf.served import Served, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.experiment import Protocol
from nginx_tune.documents.loadplan import ProxyProtocol, Target, Tls
from nginx_tune.errors import UndecidedError
from nginx_tune.lab.environment import LOOPBACK
from nginx_tune.lab.refused import is_own_stream

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
_INDEX = "index.html"


class Spoken(NamedTuple):
    """Where a server speaks more than HTTP/1.1."""

    http2: Target | None = None
    """Over TLS."""
    http3: Target | None = None

    def at(self, protocol: Protocol) -> Target | None:
        """The listener for one of them."""
        return self.http2 if protocol == "2" else self.http3


class EntryPoint(NamedTuple):
    """Where the load enters a configuration."""

    target: Target
    server: Directive
    root: str | None
    """Directory on disk behind ``url_prefix``; none where no server serves files."""
    url_prefix: str
    index_file: str
    """The file that stands for a directory."""
    memory_url: str | None
    """A URL answered by ``return 200`` or ``204``, that is without a file."""
    error_log: str | None
    """The main context's error log; null for the build's default."""
    written: list[str]
    """Files and directories that the configuration writes."""
    spoken: Spoken = Spoken()


def plan_entry(
    tree: ConfTree, *, default_error_log: str | None, protocols: Sequence[Protocol] = ()
) -> EntryPoint:
    """The first server that serves files, one without TLS before one with; else the first one.

    One that speaks all of ``protocols`` goes before those that do not.
    Errors: UndecidedError when none can be asked.
    """
    root: str | None
    static = [
        (target, served)
        for served in served_paths(tree)
        if can_load(served) and (target := target_of(tree, served.scope.server)) is not None
    ]
    if static:
        target, served = min(
            static,
            key=lambda item: (
                _lacks(tree, item[1].scope.server, protocols),
                *_last_choice(item[0])[:2],
            ),
        )
        server, root, prefix = served.scope.server, served.path, url_prefix(served)
        index = _index(served.scope)
    else:
        targets = [(target_of(tree, server), server) for _, server in servers(tree)]
        asked = [(target, server) for target, server in targets if target is not None]
        if not asked:
            raise UndecidedError(
                f"{tree.path}: no server with a plain-HTTP listener or one with TLS",
                hint="listen on an IP address or a unix socket, http2 only beside ssl",
            )
        target, server = min(asked, key=lambda item: _lacks(tree, item[1], protocols))
        root, prefix, index = None, "", _INDEX
    return EntryPoint(
        target=target,
        server=server,
        root=root,
        url_prefix=prefix,
        index_file=index,
        memory_url=_memory_url(tree, server),
        error_log=_error_log(tree, default_error_log),
        written=written_files(tree),
        spoken=spoken_at(tree, server),
    )


def _lacks(tree: ConfTree, server: Directive, protocols: Sequence[Protocol]) -> bool:
    spoken = spoken_at(tree, server) if protocols else Spoken()
    return any(spoken.at(one) is None for one in protocols)


def _index(scope: Scope) -> str:
    names = scope.effective("index")
    plain = [name for name in (names.args if names else ()) if "$" not in name and "/" not in name]
    return plain[0] if plain else _INDEX


def can_load(served: Served) -> bool:
    """Whether the files of a directory have URLs that are known."""
    if not served.is_whole or served.via == "cache":
        return False
    location = served.scope.own
    return location.name == "server" or (
        location.name == "location" and len(location.args) == 1 and location.args[0][:1] == "/"
    )


def target_of(tree: ConfTree, server: Directive) -> Target | None:
    """The server's first listener that takes HTTP/1.1.

    A port goes before a unix socket, then one without TLS before one with, and of these one
    without the PROXY protocol.
    """
    places = [
        place
        for listener, place in _places(tree, server)
        if not listener.is_quic and (listener.is_tls or not listener.is_http2)
    ]
    if not places and not any(True for _ in (server.block or Block([])).all("listen")):
        places = [Target(address=LOOPBACK, port=80)]
    best = min(places, key=_last_choice, default=None)
    return None if best is None else msgspec.structs.replace(best, host=_host(server))


def spoken_at(tree: ConfTree, server: Directive) -> Spoken:
    """Where it speaks HTTP/2 over TLS, and HTTP/3; HTTP/1.1's order of choice."""
    switched = server in switched_to_http2(scopes(tree))
    http2 = [
        place
        for listener, place in _places(tree, server)
        if listener.is_tls and not listener.is_quic and (switched or listener.is_http2)
    ]
    http3 = [place for listener, place in _places(tree, server) if listener.is_quic]
    best = [min(found, key=_last_choice, default=None) for found in (http2, http3)]
    host = _host(server)
    return Spoken(
        *(None if one is None else msgspec.structs.replace(one, host=host) for one in best)
    )


def _last_choice(target: Target) -> tuple[bool, bool, bool]:
    return (
        target.unix is not None,
        target.tls is not None,
        target.proxy_protocol is not None,
    )


def _places(tree: ConfTree, server: Directive) -> Iterator[tuple[ListenAddress, Target]]:
    """Where it listens; hosts are left out."""
    for listener in listeners(tree):
        own = [
            line
            for line, owner in zip(listener.lines, listener.servers, strict=True)
            if owner is server
        ]
        if not own:
            continue
        # Whichever line of an address says it, says it for all of them.
        words = {word for line in listener.lines for word in line.args[1:]}
        # No certificate is checked: behind the walls is nobody else.
        tls = Tls(verify=False) if listener.is_tls else None
        is_proxied = "proxy_protocol" in words
        if listener.is_unix:
            path = listener.socket.host
            if path.startswith("/"):
                said = _said_first(path) if is_proxied else None
                yield listener, Target(unix=path, tls=tls, proxy_protocol=said)
            continue
        address = _reached_at(listener.socket.host)
        first = listener.socket.first  # a range of ports: the first of them
        if address is not None and first:
            said = _said_first(None) if is_proxied else None
            place = Target(address=address, port=first, tls=tls, proxy_protocol=said)
            yield listener, place


def _said_first(unix: str | None) -> ProxyProtocol:
    """What a balancer on this host says: a unix socket's connection has no address of its own."""
    return ProxyProtocol(version=1, source=None if unix is None else LOOPBACK)


def _reached_at(host: str) -> str | None:
    """The address that a client connects to; None for a name."""
    known = {"*": LOOPBACK, "localhost": LOOPBACK, "[::]": "::1"}
    if host in known:
        return known[host]
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def listen_sockets(tree: ConfTree) -> list[str]:
    """The paths of the unix sockets that its listeners make."""
    paths = (one.socket.host for one in listeners(tree) if one.is_unix)
    return [path for path in paths if path.startswith("/")]


def listen_addresses(tree: ConfTree) -> list[str]:
    """The addresses of the host that its listeners name; loopback is there anyway."""
    found = {_reached_at(one.socket.host) for one in listeners(tree) if one.socket.first}
    known = {address for address in found if address is not None}
    return sorted(one for one in known if not ipaddress.ip_address(one).is_loopback)


def _host(server: Directive) -> str:
    names = (server.block or Block([])).first("server_name")
    for name in names.args if names else ():
        if name.startswith("*."):
            name = f"www{name[1:]}"  # noqa: PLW2901  # any name that it matches
        name = name.removeprefix(".")  # noqa: PLW2901
        if name not in {"", "_"} and not name.startswith("~") and "*" not in name:
            return name
    return "localhost"


def url_prefix(served: Served) -> str:
    """URL of the served directory (an alias replaces its location's URI, a root keeps it)."""
    location = served.scope.own
    if location.name == "server":
        return ""
    uri = location.args[0]
    return uri.rstrip("/") if uri.endswith("/") else uri.rpartition("/")[0]


def _memory_url(tree: ConfTree, server: Directive) -> str | None:
    for scope in scopes(tree):
        answer = scope.sets("return")
        if scope.kind == "location" and scope.server is server and answer is not None:
            uri = uri_of(scope)
            if uri and answer.args[:1] in (("200",), ("204",)):
                return uri
    return None


def uri_of(scope: Scope) -> str | None:
    """A URI that a location takes; None for a pattern or a named one."""
    args = scope.own.args
    if len(args) == 2 and args[0] in {"=", "^~"}:  # noqa: PLR2004  # a modifier and a URI
        return args[1]
    return args[0] if len(args) == 1 and args[0].startswith("/") else None


def _error_log(tree: ConfTree, default: str | None) -> str | None:
    names = [line.value for line in tree.main.all("error_log")]
    # Of several that take the same lines a device keeps none.
    own = next((name for name in names if not name.startswith("/dev/")), names[0] if names else "")
    name = own or default
    if name is None or name == "stderr" or name.startswith(("syslog:", "memory:")):
        return None
    full = tree.full_path(name)
    return None if full is None or is_own_stream(full) else full


def written_files(tree: ConfTree) -> list[str]:
    """Full names of the logs, pids, temporary files and caches that a tree names.

    A directory that nginx writes into ends with ``/.``: what is beside it is not written.
    """
    found = []
    for directive in (*tree.main, *http_directives(tree)):
        if directive.name in _WRITTEN and directive.args:
            name = directive.value
            if name in _NOT_FILES or ":" in name or "$" in name:
                continue
            full = tree.full_path(name)
            if full is not None:
                found.append(f"{full}/." if directive.name.endswith("_path") else full)
    return sorted(set(found))


def server_count(tree: ConfTree) -> int:
    """How many http servers the tree has."""
    return len(servers(tree))
