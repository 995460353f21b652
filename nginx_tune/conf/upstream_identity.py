"""As whom a server is asked, by which protocol, and what TLS has to prove, on kept connections.

nginx looks a kept connection up by the server's address alone, and a TLS session by the server:
what a connection was opened with holds for every later request too, whoever it is for. A request
that wants a verified certificate goes over a connection whose certificate nobody looked at, one for
http over TLS, one of gRPC over HTTP/1.
Source: ngx_http_upstream_get_keepalive_peer() (ngx_memn2cmp of the address),
ngx_http_upstream_connect() (ngx_http_upstream_ssl_init_connection() where there is no c->ssl),
ngx_http_upstream_set_round_robin_peer_session(). Seen on 1.22.1 and 1.30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_directives
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, address_in, is_tls_url
from nginx_tune.conf.variables import Variables

_OF_TLS = ("ssl_certificate", "ssl_certificate_key", "ssl_name")
_OF_VERIFYING = ("ssl_trusted_certificate", "ssl_crl", "ssl_verify_depth")
"""What does nothing where no certificate is verified."""
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
"""The same for all that is passed to one group (ngx_http_proxy_set_vars())."""
_OF_THE_SERVER = re.compile(r"\$\{?server_name\b\}?")
_OF_THE_CLIENT = re.compile(r"\$(?:scheme|\{scheme\})://")
"""The scheme that the client came by."""


def identity_that_differs(
    users: Sequence[Pass], variables: Variables, to: str = ""
) -> Directive | None:
    """The line by which not all requests to a group may be made with each other's connections.

    Shape: one with a variable that is not always the same; else one that not all of the places
           say alike; else a place that speaks another protocol (to the group of the name ``to``);
           null where all requests are made as one and the same.
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
    """The line that makes connections of one place differ from request to request."""
    for one in users:
        for _, line in identity_lines(one):
            if line is not None and _constant(line, one.scope, variables) is None:
                return line
    both = (one.place for one in users if len(_is_tls(one, variables, to)) > 1)
    return next(both, None)


def is_of_protocol(line: Directive) -> bool:
    """Whether a line that differs is about the protocol that a server is spoken to in."""
    return line.name.endswith(("_pass", "_http_version"))


def is_of_trust(line: Directive) -> bool:
    """Whether a line that differs is about what a connection's TLS has to prove."""
    return line.name.partition("_")[2] in (*_OF_TRUST, _COMMAND)


def is_spread(line: Directive, tree: ConfTree) -> bool:
    """Whether a source address is one that ``split_clients`` deals out, for more ports."""
    tables = (one.args[1:2] for one in http_directives(tree) if one.name == "split_clients")
    return line.name.endswith("_bind") and any(names == line.args[:1] for names in tables)


def identity_of_tls(users: Sequence[Pass], variables: Variables) -> Directive | None:
    """The same of what TLS sessions are opened with."""
    of_tls = [one for one in users if one.is_tls]
    for one in of_tls:
        for name, line in identity_lines(one):
            if name in _OF_TLS and line and _constant(line, one.scope, variables) is None:
                return line
    return _unlike(of_tls, variables, _OF_TLS)


def _unlike(users: Sequence[Pass], variables: Variables, names: Sequence[str]) -> Directive | None:
    """A line of which other places have another value, or none."""
    said: dict[str, dict[str | None, Directive | None]] = {}
    lines = [(one, dict(identity_lines(one))) for one in users]
    found = dict.fromkeys(name for _, own in lines for name in own)
    for name in found:
        if name.partition(" ")[0] not in names:
            continue
        for one, own in lines:
            if name in own or (one.is_tls and name.startswith(_COMMAND)):
                line = own.get(name)
                value = _DEFAULTS.get(name) if line is None else _said(name, line, one, variables)
                said.setdefault(name, {}).setdefault(value, line)
    for values in said.values():
        if len(values) > 1:
            return next(line for line in values.values() if line is not None)
    return None


def identity_lines(one: Pass) -> Iterator[tuple[str, Directive | None]]:
    """What a place says of its connections, each with null for nginx's default."""
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
    """The first place that speaks to a group otherwise than those before it.

    A module takes a connection of another one for its own: gRPC finds no state of HTTP/2 on it
    (ngx_http_grpc_get_connection_data()).
    """
    spoken: set[object] = set()
    schemes: set[bool] = set()
    for one in users:
        version = one.effective("http_version")
        is_of_2 = version is not None and version.value == "2"
        spoken.add((one.module, is_of_2))
        schemes |= _is_tls(one, variables, to)
        if len(spoken) > 1 or len(schemes) > 1:
            return version if version is not None and is_of_2 else one.place
    return None


def _is_tls(one: Pass, variables: Variables, to: str) -> set[bool]:
    """Whether a place asks a group (or any, by the name "") over TLS; empty where nobody knows."""
    found = set()
    for scheme in _schemes_of_clients(one.scope):
        text = _OF_THE_CLIENT.sub(f"{scheme}://", one.place.value, count=1)
        values = variables.possible(text, one.scope)
        known = [value for value in values.known if not to or address_in(value) == to]
        found |= {is_tls_url(value) for value in known or [text.partition("$")[0]] if value}
    return found


def _schemes_of_clients(scope: Scope) -> list[str]:
    """``$scheme`` as the listeners of a server have it."""
    listening = (scope.server.block or Block([])).all("listen")
    secure = {bool({"ssl", "quic"} & {*line.args[1:]}) for line in listening}
    if scope.value("ssl", "off") == "on":
        secure = {True}
    return ["https" if one else "http" for one in sorted(secure or {False})]


def _said(name: str, line: Directive, one: Pass, variables: Variables) -> str | None:
    """What a line says, alike for those that mean the same; null where requests can differ."""
    if name == "ssl_protocols":
        return " ".join(sorted(line.args))
    if name in _OF_TRUST or name.startswith(_COMMAND):
        value = " ".join(line.args)
        return value.lower() if _DEFAULTS.get(name) == "off" else value
    return _constant(line, one.scope, variables)


def _constant(line: Directive, scope: Scope, variables: Variables) -> str | None:
    """What a line always says; null where requests can differ."""
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
