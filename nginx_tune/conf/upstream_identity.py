"""As whom a server is asked: the source address, the client certificate, the name of TLS.

nginx looks a kept connection up by the server's address alone, and a TLS session by the server:
what a connection was opened with is presented for every later request too, whoever it is for.
Source: ngx_http_upstream_get_keepalive_peer() (ngx_memn2cmp of the address),
ngx_http_upstream_set_round_robin_peer_session(). Seen on 1.22.1 and 1.30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope, http_directives
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass
from nginx_tune.conf.variables import Variables

_OF_TLS = ("ssl_certificate", "ssl_certificate_key", "ssl_name")
_DEFAULTS = {"ssl_name": "$proxy_host"}
_OF_THE_GROUP = re.compile(r"\$\{?proxy_(host|port)\b\}?")
"""The same for all that is passed to one group (ngx_http_proxy_set_vars())."""
_OF_THE_SERVER = re.compile(r"\$\{?server_name\b\}?")


def identity_that_differs(users: Sequence[Pass], variables: Variables) -> Directive | None:
    """The line by which not all requests to a group may be made with each other's connections.

    Shape: one with a variable that is not always the same; else one that not
           all of the places say alike; null where all requests are made as one and the same.
    """
    return identity_of_clients(users, variables) or _unlike(users, variables)


def identity_of_clients(users: Sequence[Pass], variables: Variables) -> Directive | None:
    """The line that makes connections of one place differ from request to request."""
    lines = ((line, one.scope) for one in users for _, line in identity_lines(one) if line)
    return next((line for line, at in lines if _constant(line, at, variables) is None), None)


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


def _unlike(
    users: Sequence[Pass], variables: Variables, names: Sequence[str] = ("bind", *_OF_TLS)
) -> Directive | None:
    """A line of which other places have another value, or none."""
    said: dict[str, dict[str | None, Directive | None]] = {name: {} for name in names}
    for one in users:
        for name, line in identity_lines(one):
            if name in said:
                default = _DEFAULTS.get(name)
                value = default if line is None else _constant(line, one.scope, variables)
                said[name].setdefault(value, line)
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
