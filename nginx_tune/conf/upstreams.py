"""Groups of servers, and where requests are passed on to them: to whom, with which header.

A name that is no ``upstream`` is a server of its own, resolved when nginx starts, unless the line
has variables. Source: ngx_http_upstream.c, ngx_http_upstream and ngx_http_upstream_server;
ngx_http_proxy_pass and its kin. Names are compared without case (ngx_http_upstream_add).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_blocks
from nginx_tune.conf.templates import is_placeholder
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.variables import Variables

BALANCERS = ("ip_hash", "least_conn", "hash", "random", "least_time")
"""Methods that take the place of round robin; each replaces what was set before it."""

_HOST = re.compile(r"\[[^\]]*\]|[^:/]*")
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_LOOPBACK = re.compile(r"127(?:\.[0-9]{1,3}){3}|\[::1\]")
_LOCAL_NAME = re.compile(r"(?:.*\.)?localhost|localhost\..*|ip6-localhost|ip6-loopback")


@dataclass(frozen=True)
class UpstreamBlock:
    """One ``upstream`` block of http."""

    name: str
    directive: Directive

    @property
    def block(self) -> Block:
        """What stands in it."""
        return self.directive.block or Block([])

    @property
    def servers(self) -> list[Directive]:
        """Its ``server`` lines."""
        return [server for server in self.block.all("server") if server.args]

    @cached_property
    def peers(self) -> list[Directive]:
        """The servers that can get requests."""
        return [server for server in self.servers if "down" not in server.args[1:]]

    @property
    def keepalive(self) -> Directive | None:
        """The line that asks for a pool of idle connections."""
        return self.block.first("keepalive")

    @property
    def balancer(self) -> Directive | None:
        """The last line that sets a method."""
        lines = [line for line in self.block if line.name in BALANCERS]
        return lines[-1] if lines else None

    @property
    def is_scripted(self) -> bool:
        """Whether a script chooses the server, so that the ``server`` lines say little."""
        return any(line.name.startswith("balancer_by_lua") for line in self.block)

    @property
    def is_unix(self) -> bool:
        """Whether every server is a unix socket."""
        return bool(self.servers) and all(is_unix(server.value) for server in self.servers)

    @property
    def is_loopback(self) -> bool:
        """Whether every server is on this host."""
        hosts = [host_of(server.value) for server in self.servers]
        return bool(hosts) and all(not host or is_loopback(host) for host in hosts)


def upstreams(tree: ConfTree) -> list[UpstreamBlock]:
    """The upstreams of http in order."""
    return [
        UpstreamBlock(line.value.lower(), line)
        for http in http_blocks(tree)
        for line in (http.block or Block([])).all("upstream")
        if line.block is not None and line.args
    ]


def stands_before(block: Block, first: Directive, second: Directive) -> bool:
    """Whether one line of a block comes before another, included files in their place."""
    return next((line is first for line in block if line is first or line is second), False)


def host_of(address: str) -> str:
    """The host of ``HOST[:PORT]`` in lower case; empty for a unix socket.

    What a template fills in keeps its capitals, by which it is known.
    """
    if is_unix(address):
        return ""
    match = _HOST.match(address)
    host = match[0] if match else ""
    return host if is_placeholder(host) else host.lower()


def is_unix(address: str) -> bool:
    """Whether an address is a unix socket."""
    return address.lower().startswith("unix:")


def is_ipv4(host: str) -> bool:
    """Whether a host is an IPv4 address."""
    return _IPV4.fullmatch(host) is not None


def is_loopback(host: str) -> bool:
    """Whether a host is this one."""
    return bool(_LOOPBACK.fullmatch(host) or _LOCAL_NAME.fullmatch(host))


_HOST_OF_CONTAINERS = frozenset({
    "host.docker.internal", "gateway.docker.internal", "host.containers.internal",
    "host.minikube.internal",
})  # fmt: skip
"""What containers call the machine that they run on: in their /etc/hosts, of one fixed address."""

_DOCUMENTED = frozenset({"example.com", "example.net", "example.org"})
"""RFC 2606: written where another name has still to stand."""


def is_to_be_named(host: str) -> bool:
    """Whether a host stands there only until a template or somebody writes the real one."""
    return host in _DOCUMENTED or is_placeholder(host)


def is_resolved_once(host: str) -> bool:
    """Whether a host is a name that nginx looks up when it starts, and that may change."""
    return bool(host) and not (
        is_to_be_named(host)
        or host.startswith("[")
        or _IPV4.fullmatch(host)
        or _LOCAL_NAME.fullmatch(host)
        or host in _HOST_OF_CONTAINERS
    )


MODULES = ("proxy", "fastcgi", "uwsgi", "scgi", "grpc", "memcached")

_SCHEME = re.compile(r"(https?|grpcs?|suwsgi|uwsgi)://", re.IGNORECASE)
_TLS = frozenset({"https", "grpcs", "suwsgi"})


class Pass(NamedTuple):
    """A scope that passes requests on."""

    scope: Scope
    place: Directive
    """The line that says to whom."""
    module: str
    """``proxy``, ``fastcgi``, …"""
    addresses: tuple[str, ...]
    """``HOST[:PORT]``, ``unix:PATH`` or the name of an upstream, as far as they are known."""
    is_tls: bool

    @property
    def has_variables(self) -> bool:
        """Whether the server is chosen for each request."""
        return "$" in self.place.value

    @property
    def is_to_be_named(self) -> bool:
        """Whether a template, or somebody, has still to write the server."""
        match = _SCHEME.match(self.place.value)
        rest = self.place.value[match.end() :] if match else self.place.value
        return is_placeholder(rest.partition("/")[0])

    def value(self, name: str, default: str = "") -> str:
        """The first argument of this module's directive: ``buffering`` for ``proxy_buffering``."""
        return self.scope.value(f"{self.module}_{name}", default)

    def effective(self, name: str) -> Directive | None:
        """This module's directive that holds here: ``buffering`` for ``proxy_buffering``."""
        return self.scope.effective(f"{self.module}_{name}")


def passes(scopes: list[Scope], variables: Variables) -> list[Pass]:
    """Every one of the scopes with a line that passes requests on."""
    found = []
    for scope in scopes:
        for name in _LINES:
            place = scope.sets(name)
            if place is not None and place.args and scope.kind != "server":
                found.append(_read(scope, place, variables))
                break
    return found


_LINES = tuple(f"{module}_pass" for module in MODULES)


def _read(scope: Scope, place: Directive, variables: Variables) -> Pass:
    known = sorted(variables.possible(place.value, scope).known)
    addresses = dict.fromkeys(address_in(value) for value in known)
    addresses.pop("", None)
    is_tls = any(map(is_tls_url, known or [place.value]))
    return Pass(scope, place, place.name.removesuffix("_pass"), tuple(addresses), is_tls)


def is_tls_url(value: str) -> bool:
    """Whether a URL, or the beginning of one, has a scheme of TLS."""
    match = _SCHEME.match(value)
    return match is not None and match[1].lower() in _TLS


def address_in(value: str) -> str:
    """The server's part of a URL, in lower case unless it is a path."""
    match = _SCHEME.match(value)
    rest = value[match.end() :] if match else value
    if is_unix(rest):
        return rest[: rest.find(":", 5)] if ":" in rest[5:] else rest
    return rest.partition("/")[0].partition("?")[0].lower()


def sent_header(scope: Scope, module: str, name: str) -> Directive | None:
    """The line that sets a header for the server requests are passed to.

    A level with any such line replaces the whole outer set.
    """
    found = [
        line
        for line in scope.effective_all(f"{module}_set_header")
        if len(line.args) > 1 and line.value.lower() == name
    ]
    return found[-1] if found else None


def lost_header(scope: Scope, module: str, name: str) -> Directive | None:
    """An outer line for a header that is lost because an inner level sets other headers."""
    if sent_header(scope, module, name) is not None:
        return None
    for level in reversed(scope.chain):
        for line in (level.block or Block([])).all(f"{module}_set_header"):
            if len(line.args) > 1 and line.value.lower() == name:
                return line
    return None


def depth_of(scope: Scope, name: str) -> int:
    """How far in the line that holds here stands: 0 in http, 1 in server; -1 without a line."""
    levels = enumerate(scope.chain)
    return max((n for n, level in levels if level.block and level.block.all(name)), default=-1)
