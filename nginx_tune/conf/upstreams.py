"""Groups of servers that requests are passed to.

Source: ngx_http_upstream.c, ngx_http_upstream and ngx_http_upstream_server. Names are compared
without case (ngx_http_upstream_add).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.conf.templates import is_placeholder
from nginx_tune.conf.tree import ConfTree

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
