"""What of an operator's configuration is put under load: a listener, a root, a memory URL; pure."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.scopes import Scope, http_directives, scopes, servers
from nginx_tune.conf.served import Served, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.errors import UndecidedError

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
_LOOPBACK = "127.0.0.1"
_OTHER_WIRE = {"ssl", "http2", "proxy_protocol"}
"""Parameters of ``listen`` under which a plain HTTP/1.1 request is not understood."""


class Target(NamedTuple):
    """What the load asks of a configuration."""

    address: str
    """Where the listener is reached inside the walls: its own address, or loopback."""
    port: int
    host: str
    """``Host`` header that leads to the server."""
    root: str
    """Directory on disk behind ``url_prefix``."""
    url_prefix: str
    memory_url: str | None
    """A URL answered by ``return 200`` or ``204``, that is without a file."""
    error_log: str | None
    """The main context's error log; null for the build's default."""
    written: list[str]
    """Files and directories that the configuration writes."""


def plan_target(tree: ConfTree, *, default_error_log: str | None) -> Target:
    """The first plain-HTTP server that serves files.

    Errors: UndecidedError when there is none.
    """
    static = [served for served in served_paths(tree) if _can_load(served)]
    for served in static:
        server = served.scope.server
        place = _plain_place(tree, server)
        if place is not None:
            return Target(
                address=place[0],
                port=place[1],
                host=_host(server),
                root=served.path,
                url_prefix=_url_prefix(served),
                memory_url=_memory_url(tree, server),
                error_log=_error_log(tree, default_error_log),
                written=_written(tree),
            )
    raise UndecidedError(
        f"{tree.path}: no server with a plain-HTTP listener serves files from a directory",
        hint="listen on an IP address without ssl, and serve from root or alias",
    )


def _can_load(served: Served) -> bool:
    if not served.is_whole or served.via == "cache":
        return False
    location = served.scope.own
    return location.name == "server" or (
        location.name == "location" and len(location.args) == 1 and location.args[0][:1] == "/"
    )


def _plain_place(tree: ConfTree, server: Directive) -> tuple[str, int] | None:
    """Address and port of the server's first listener that takes plain HTTP/1.1."""
    for listener in listeners(tree):
        own = [
            line
            for line, owner in zip(listener.lines, listener.servers, strict=True)
            if owner is server
        ]
        if not own or listener.is_unix or listener.is_quic or _OTHER_WIRE & {*own[0].args}:
            continue
        host, _, port = listener.address.rpartition(":")
        address = _reached_at(host)
        first = port.partition("-")[0]  # a range of ports: the first of them
        if address is not None and first.isascii() and first.isdigit():
            return address, int(first)
    has_listen = any(True for _ in (server.block or Block([])).all("listen"))
    return None if has_listen else (_LOOPBACK, 80)


def _reached_at(host: str) -> str | None:
    """The address that a client connects to; None for a name."""
    known = {"*": _LOOPBACK, "localhost": _LOOPBACK, "[::]": "::1"}
    if host in known:
        return known[host]
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def listen_addresses(tree: ConfTree) -> list[str]:
    """The addresses of the host that its listeners name; loopback is there anyway."""
    found = {_reached_at(one.address.rpartition(":")[0]) for one in listeners(tree)}
    known = {address for address in found if address is not None}
    return sorted(one for one in known if not ipaddress.ip_address(one).is_loopback)


def _host(server: Directive) -> str:
    names = (server.block or Block([])).first("server_name")
    for name in names.args if names else ():
        if name not in {"", "_"} and not name.startswith(("~", "*", ".")) and "*" not in name:
            return name
    return "localhost"


def _url_prefix(served: Served) -> str:
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
            uri = _exact_uri(scope)
            if uri and answer.args[:1] in (("200",), ("204",)):
                return uri
    return None


def _exact_uri(scope: Scope) -> str | None:
    args = scope.own.args
    if len(args) == 2 and args[0] in {"=", "^~"}:  # noqa: PLR2004  # a modifier and a URI
        return args[1]
    return args[0] if len(args) == 1 and args[0].startswith("/") else None


def _error_log(tree: ConfTree, default: str | None) -> str | None:
    own = tree.main.first("error_log")
    name = own.value if own is not None else default
    if name is None or name == "stderr" or name.startswith(("syslog:", "memory:")):
        return None
    return tree.full_path(name)


def _written(tree: ConfTree) -> list[str]:
    found = []
    for directive in (*tree.main, *http_directives(tree)):
        if directive.name in _WRITTEN and directive.args:
            name = directive.value
            if name in _NOT_FILES or ":" in name or "$" in name:
                continue
            full = tree.full_path(name)
            if full is not None:
                found.append(full)
                if directive.name.endswith("_path"):
                    found.append(f"{full}/.")
    return sorted(set(found))


def server_count(tree: ConfTree) -> int:
    """How many http servers the tree has."""
    return len(servers(tree))
