"""Where requests are passed on, to whom, and with which header.

Source: ngx_http_proxy_pass and its kin; a name that is no ``upstream`` is a server of its own,
resolved when nginx starts, unless the line has variables.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.templates import is_placeholder
from nginx_tune.conf.upstreams import is_unix
from nginx_tune.conf.variables import Variables

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
    schemes = {match[1].lower() for value in known if (match := _SCHEME.match(value))}
    addresses = dict.fromkeys(address_in(value) for value in known)
    addresses.pop("", None)
    return Pass(
        scope, place, place.name.removesuffix("_pass"), tuple(addresses), bool(schemes & _TLS)
    )


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
