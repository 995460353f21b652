"""Upstreams, the scopes that pass requests to them, and the identity used on kept connections.

A name without an ``upstream`` block is a host name, resolved when nginx starts unless the line has
variables. Source: ngx_http_upstream.c, ngx_http_upstream and ngx_http_upstream_server;
ngx_http_proxy_pass and the like. Names ignore case (ngx_http_upstream_add).

nginx selects a kept connection only by the server's address, and a TLS session only by the server.
A connection keeps the properties with which it was opened. So a request that needs a verified
certificate may get a connection without verification, an http request a connection with TLS, and a
gRPC request a connection with HTTP/1. Source: ngx_http_upstream_get_keepalive_peer()
(ngx_memn2cmp of the address), ngx_http_upstream_connect() (ngx_http_upstream_ssl_init_connection()
if there is no c->ssl), ngx_http_upstream_set_round_robin_peer_session(). Confirmed on 1.22.1 and
1.30.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_blocks, http_lines
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import is_placeholder
from nginx_tune.conf.variables import Variables

BALANCERS = ("ip_hash", "least_conn", "hash", "random", "least_time")
"""Methods that replace round robin; a later method overrides an earlier one."""
_NO_BACKUP = frozenset({"ip_hash", "hash", "random"})

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
        """The contents of the block."""
        return self.directive.block or Block([])

    @property
    def servers(self) -> list[Directive]:
        """The ``server`` lines with an address."""
        return [server for server in self.block.all("server") if server.args]

    @cached_property
    def peers(self) -> list[Directive]:
        """The servers that can get requests."""
        return [server for server in self.servers if "down" not in server.args[1:]]

    @property
    def keepalive(self) -> Directive | None:
        """The line that sets a pool of idle connections; None if there is none."""
        return self.block.first("keepalive")

    @property
    def balancer(self) -> Directive | None:
        """The last line that sets the balancing method; None for round robin."""
        lines = [line for line in self.block if line.name in BALANCERS]
        return lines[-1] if lines else None

    @property
    def is_scripted(self) -> bool:
        """True if a script selects the server, regardless of the ``server`` lines."""
        return any(line.name.startswith("balancer_by_lua") for line in self.block)

    @property
    def is_unix(self) -> bool:
        """True if every server is a unix socket."""
        return bool(self.servers) and all(is_unix(server.value) for server in self.servers)

    @property
    def is_loopback(self) -> bool:
        """True if every server is on this host."""
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
    """True if ``first`` precedes ``second`` in a block, with includes expanded."""
    return next((line is first for line in block if line is first or line is second), False)


def refused_backup(block: Block) -> tuple[Directive, Directive] | None:
    """The first backup server that a balancer before it refuses, and the balancer.

    Source: ngx_http_upstream_server and ngx_stream_upstream_server read the flags of the lines
    before.
    """
    balancer = None
    for line in block:
        if line.name in BALANCERS:
            balancer = line
        elif line.name != "server" or "backup" not in line.args[1:]:
            continue
        elif balancer is not None and balancer.name in _NO_BACKUP:
            return line, balancer
    return None


def host_of(address: str) -> str:
    """The host of ``HOST[:PORT]``, lowercase; empty for a unix socket.

    Template placeholders keep their capitals, which identify them.
    """
    if is_unix(address):
        return ""
    match = _HOST.match(address)
    host = match[0] if match else ""
    return host if is_placeholder(host) else host.lower()


def is_unix(address: str) -> bool:
    """True for a unix socket."""
    return address.lower().startswith("unix:")


def is_ipv4(host: str) -> bool:
    """True for an IPv4 address."""
    return _IPV4.fullmatch(host) is not None


def is_loopback(host: str) -> bool:
    """True for a loopback address, or a name for one."""
    return bool(_LOOPBACK.fullmatch(host) or _LOCAL_NAME.fullmatch(host))


_HOST_OF_CONTAINERS = frozenset({
    "host.docker.internal", "gateway.docker.internal", "host.containers.internal",
    "host.minikube.internal",
})  # fmt: skip
"""Names of the container host, which have a fixed address in /etc/hosts."""

_DOCUMENTED = frozenset({"example.com", "example.net", "example.org"})
"""Names of RFC 2606, written as placeholders."""


def is_to_be_named(host: str) -> bool:
    """True for a placeholder that a template or the user still has to replace."""
    return host in _DOCUMENTED or is_placeholder(host)


def is_resolved_once(host: str) -> bool:
    """True for a host name that nginx resolves once, at its start, and whose address may change."""
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
    """A scope that passes requests to a server or upstream."""

    scope: Scope
    place: Directive
    """The line with the target."""
    module: str
    """``proxy``, ``fastcgi``, …"""
    addresses: tuple[str, ...]
    """``HOST[:PORT]``, ``unix:PATH`` or the name of an upstream, as far as known."""
    is_tls: bool

    @property
    def has_variables(self) -> bool:
        """True if the server is selected per request."""
        return "$" in self.place.value

    @property
    def is_to_be_named(self) -> bool:
        """True if the server is a template or documentation placeholder."""
        match = _SCHEME.match(self.place.value)
        rest = self.place.value[match.end() :] if match else self.place.value
        return is_placeholder(rest.partition("/")[0])

    def value(self, name: str, default: str = "") -> str:
        """The first argument of this module's directive: ``buffering`` for ``proxy_buffering``."""
        return self.scope.value(f"{self.module}_{name}", default)

    def effective(self, name: str) -> Directive | None:
        """This module's directive in effect: ``buffering`` for ``proxy_buffering``."""
        return self.scope.effective(f"{self.module}_{name}")


def passes(scopes: list[Scope], variables: Variables) -> list[Pass]:
    """The scopes that pass requests to a server or upstream."""
    found = []
    for scope in scopes:
        for name in PASS_LINES:
            place = scope.sets(name)
            if place is not None and place.args and scope.kind != "server":
                found.append(_read(scope, place, variables))
                break
    return found


PASS_LINES = tuple(f"{module}_pass" for module in MODULES)
"""Directives that pass a scope's requests to a server or upstream."""


def _read(scope: Scope, place: Directive, variables: Variables) -> Pass:
    known = sorted(variables.possible(place.value, scope).known)
    addresses = dict.fromkeys(address_in(value) for value in known)
    addresses.pop("", None)
    is_tls = any(map(is_tls_url, known or [place.value]))
    return Pass(scope, place, place.name.removesuffix("_pass"), tuple(addresses), is_tls)


@lru_cache(maxsize=4096)
def is_tls_url(value: str) -> bool:
    """True if a URL, or the beginning of one, has a TLS scheme."""
    match = _SCHEME.match(value)
    return match is not None and match[1].lower() in _TLS


@lru_cache(maxsize=4096)
def address_in(value: str) -> str:
    """The server part of a URL, lowercase unless it is a path."""
    match = _SCHEME.match(value)
    rest = value[match.end() :] if match else value
    if is_unix(rest):
        return rest[: rest.find(":", 5)] if ":" in rest[5:] else rest
    return rest.partition("/")[0].partition("?")[0].lower()


def sent_header(scope: Scope, module: str, name: str) -> Directive | None:
    """The line that sets a header for the upstream.

    A block with any such line replaces all outer ones.
    """
    if name not in scope.tree.values_of(f"{module}_set_header"):
        return None
    found = [
        line
        for line in scope.effective_all(f"{module}_set_header")
        if len(line.args) > 1 and line.value.lower() == name
    ]
    return found[-1] if found else None


def lost_connection_header(scope: Scope) -> Directive | None:
    """An outer line for Connection that an inner block drops by setting other headers, or None."""
    if sent_header(scope, "proxy", "connection") is not None:
        return None
    for level in reversed(scope.chain):
        for line in (level.block or Block([])).all("proxy_set_header"):
            if len(line.args) > 1 and line.value.lower() == "connection":
                return line
    return None


def depth_of(scope: Scope, name: str) -> int:
    """The depth of the line in effect: 0 in http, 1 in server; -1 without a line."""
    levels = enumerate(scope.chain)
    return max((n for n, level in levels if level.block and level.block.all(name)), default=-1)


_OF_TLS = ("ssl_certificate", "ssl_certificate_key", "ssl_name")
_OF_VERIFYING = ("ssl_trusted_certificate", "ssl_crl", "ssl_verify_depth")
"""Directives that have an effect only if certificates are verified."""
_OF_TRUST = ("ssl_verify", "ssl_server_name", "ssl_protocols", "ssl_ciphers", *_OF_VERIFYING)
_COMMAND = "ssl_conf_command"
_DEFAULTS = {
    "ssl_name": "$proxy_host",
    "ssl_verify": "off",
    "ssl_server_name": "off",
    "ssl_ciphers": "DEFAULT",
    "ssl_verify_depth": "1",
}
_OF_THE_GROUP = re.compile(r"\$\{?proxy_(host|port)\b\}?")
"""Variables with the same value for all requests to one group (ngx_http_proxy_set_vars())."""
_OF_THE_SERVER = re.compile(r"\$\{?server_name\b\}?")
_OF_THE_CLIENT = re.compile(r"\$(?:scheme|\{scheme\})://")
"""A URL that begins with the scheme of the client's request."""


def identity_that_differs(
    users: Sequence[Pass], variables: Variables, to: str = ""
) -> Directive | None:
    """The line that keeps requests to an upstream from sharing connections; None if they may.

    A line with a variable that is not constant comes first; then one that differs between
    locations; then a location with another protocol (to the upstream named ``to``).
    """
    names = ("bind", *_OF_TLS, *_OF_TRUST, _COMMAND)
    return (
        identity_of_clients(users, variables, to)
        or _unlike(users, variables, names)
        or _other_protocol(users, variables, to)
    )


def identity_of_clients(
    users: Sequence[Pass], variables: Variables, to: str = ""
) -> Directive | None:
    """The line that makes connections of one location differ from request to request."""
    for user in users:
        for _, line in identity_lines(user):
            if line is not None and _constant(line, user.scope, variables) is None:
                return line
    both = (user.place for user in users if len(_is_tls(user, variables, to)) > 1)
    return next(both, None)


def is_of_protocol(line: Directive) -> bool:
    """True if a differing line is about the protocol of the upstream."""
    return line.name.endswith(("_pass", "_http_version"))


def is_of_trust(line: Directive) -> bool:
    """True if a differing line is about certificate verification."""
    return line.name.partition("_")[2] in (*_OF_TRUST, _COMMAND)


def is_spread(line: Directive, tree: ConfTree) -> bool:
    """True if ``split_clients`` selects the source address, which provides more ports."""
    tables = (http_line.args[1:2] for http_line in http_lines(tree, "split_clients"))
    return line.name.endswith("_bind") and any(names == line.args[:1] for names in tables)


def identity_of_tls(users: Sequence[Pass], variables: Variables) -> Directive | None:
    """The line that keeps requests from sharing TLS sessions; None if they may."""
    of_tls = [user for user in users if user.is_tls]
    for one in of_tls:
        for name, line in identity_lines(one):
            if name in _OF_TLS and line and _constant(line, one.scope, variables) is None:
                return line
    return _unlike(of_tls, variables, _OF_TLS)


def _unlike(users: Sequence[Pass], variables: Variables, names: Sequence[str]) -> Directive | None:
    """A line of one of the directives that another location lacks or has with another value.

    None if there is none.
    """
    values_by_name: dict[str, dict[str | None, Directive | None]] = {}
    lines = [(user, dict(identity_lines(user))) for user in users]
    found = dict.fromkeys(name for _, own in lines for name in own)
    for name in found:
        if name.partition(" ")[0] not in names:
            continue
        for one, own in lines:
            if name in own or (one.is_tls and name.startswith(_COMMAND)):
                line = own.get(name)
                value = _DEFAULTS.get(name) if line is None else _said(name, line, one, variables)
                values_by_name.setdefault(name, {}).setdefault(value, line)
    for values in values_by_name.values():
        if len(values) > 1:
            return next(line for line in values.values() if line is not None)
    return None


def identity_lines(one: Pass) -> Iterator[tuple[str, Directive | None]]:
    """(name, line) of the directives about a location's connections; no line means the default."""
    bind = one.effective("bind")
    yield "bind", None if bind is None or bind.value == "off" else bind
    if not one.is_tls:
        return
    for name in ("ssl_certificate", "ssl_certificate_key"):
        line = one.effective(name)
        yield name, None if line is None or not line.value else line
    if "on" in (one.value("ssl_server_name"), one.value("ssl_verify")):
        yield "ssl_name", one.effective("ssl_name")
    for name in _OF_TRUST:
        if name not in _OF_VERIFYING or one.value("ssl_verify") == "on":
            yield name, one.effective(name)
    for line in one.scope.effective_all(f"{one.module}_{_COMMAND}"):
        yield f"{_COMMAND} {line.value}", line


def _other_protocol(users: Sequence[Pass], variables: Variables, to: str) -> Directive | None:
    """The line of the first location that uses another protocol for an upstream than earlier ones.

    A module treats another module's connection as its own: gRPC finds no HTTP/2 state on it
    (ngx_http_grpc_get_connection_data()).
    """
    spoken: set[object] = set()
    schemes: set[bool] = set()
    for user in users:
        version = user.effective("http_version")
        is_of_2 = version is not None and version.value == "2"
        spoken.add((user.module, is_of_2))
        schemes |= _is_tls(user, variables, to)
        if len(spoken) > 1 or len(schemes) > 1:
            return version if version is not None and is_of_2 else user.place
    return None


def _is_tls(one: Pass, variables: Variables, to: str) -> set[bool]:
    """True for TLS, False for cleartext: the schemes that a location may use for an upstream.

    Empty if not known. An empty name ``to`` means any upstream.
    """
    if not one.has_variables:
        return {is_tls_url(one.place.value)} if one.place.value else set()
    found = set()
    for scheme in _schemes_of_clients(one.scope):
        text = _OF_THE_CLIENT.sub(f"{scheme}://", one.place.value, count=1)
        values = variables.possible(text, one.scope)
        known = [value for value in values.known if not to or address_in(value) == to]
        found |= {is_tls_url(value) for value in known or [text.partition("$")[0]] if value}
    return found


def _schemes_of_clients(scope: Scope) -> list[str]:
    """The values of ``$scheme`` on the listeners of a server."""
    listening = (scope.server.block or Block([])).all("listen")
    secure = {bool({"ssl", "quic"} & {*line.args[1:]}) for line in listening}
    if scope.value("ssl", "off") == "on":
        secure = {True}
    return ["https" if one else "http" for one in sorted(secure or {False})]


def _said(name: str, line: Directive, one: Pass, variables: Variables) -> str | None:
    """A line's value in a normal form for comparison; None if it can differ between requests."""
    if name == "ssl_protocols":
        return " ".join(sorted(line.args))
    if name in _OF_TRUST or name.startswith(_COMMAND):
        value = " ".join(line.args)
        return value.lower() if _DEFAULTS.get(name) == "off" else value
    return _constant(line, one.scope, variables)


def _constant(line: Directive, scope: Scope, variables: Variables) -> str | None:
    """The constant text of a line; None if it can differ between requests."""
    text = _OF_THE_GROUP.sub(r"(proxy_\1)", line.value)
    text = _OF_THE_SERVER.sub(_first_name(scope), text)
    values = variables.possible(text, scope)
    if not values.complete or len(values.known) != 1:
        return None
    [value] = values.known
    return "$proxy_host" if value == "(proxy_host)" else value


def _first_name(scope: Scope) -> str:
    line = scope.server.block.first("server_name") if scope.server.block else None
    return line.value if line is not None and "$" not in line.value else ""
