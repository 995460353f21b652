"""Names and locations that a change takes away; pure.

Their requests are answered all the same, by the default server or by another location, so no load
shows it. Source: ngx_http_find_virtual_server, ngx_http_core_find_location.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.sample_uris import sample_uris
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import names_of
from nginx_tune.experiment.validate.successors import find_successors

_MODIFIERS = ("=", "^~", "~*", "~")


class _Name(NamedTuple):
    """What a location is known by, however it is written."""

    kind: str
    """``=``, ``~`` or ``~*``; empty for a beginning, with ``^~`` or without."""
    text: str


_REST = _Name("", "/")
"""What answers all that no other does, as a server does without it."""
_ANSWERS = ("root", "return", "rewrite")


def dropped_places(old: ConfTree, new: ConfTree) -> list[str]:
    """Each with where its requests go now."""
    if old is new:
        return []
    successors = find_successors(old, new)
    before, after = LocationMatcher(old), LocationMatcher(new)
    found = list(successors.lost)
    for scope in scopes(old):
        own, now = scope.own, successors.servers.get(scope.server)
        if scope.kind != "location" or now is None:
            continue
        if said := _gone(scope, now, (before, after)):
            name = names_of(scope.server)[0] or "the server"
            text = f"location {' '.join(own.args)} of {name} ({own.file}:{own.line}): {said}"
            found.append(text)
    return found


def _gone(
    scope: Scope, server: Directive, matchers: tuple[LocationMatcher, LocationMatcher]
) -> str:
    """Where requests go that a location answered; empty where it, or a new one, answers them.

    A location that is new is in the place of what it takes. One that was there before stood for
    something else.
    """
    name = _name(scope.own)
    known = {_name(one) for one in _locations(scope.server)}
    for forms in _asked(name, _around(scope)):
        own = [u for u in forms if matchers[0].location_of(scope.server, u) is scope.own]
        taken = [matchers[1].location_of(server, uri) for uri in own]
        if not own or any(_is_in_place(one, server, name, known) for one in taken):
            continue
        who = "the server itself" if taken[0] is None else f"location {' '.join(taken[0].args)}"
        return f"{who} answers{f' {own[0]}' if name.kind.startswith('~') else ''}"
    return ""


def _is_in_place(
    location: Directive | None, server: Directive, of: _Name, known: Collection[_Name]
) -> bool:
    """Whether a location of NEW, or the server itself by its own lines, stands for one of OLD's."""
    if location is None:
        own = server.block or Block([])
        return of == _REST and any(own.first(line) for line in _ANSWERS)
    name = _name(location)
    return name == of or name not in known


def _locations(server: Directive) -> Iterator[Directive]:
    return (one for one in (server.block or Block([])).walk() if one.name == "location")


def _name(location: Directive) -> _Name:
    words = " ".join(location.args)
    kind = next((one for one in _MODIFIERS if words.startswith(one)), "")
    return _Name(kind if kind != "^~" else "", words.removeprefix(kind).lstrip(" "))


def _around(scope: Scope) -> str:
    """What the URIs of a location inside another begin with."""
    outer = [_name(one) for one in scope.chain if one.name == "location" and one is not scope.own]
    return next((one.text for one in reversed(outer) if one.text.startswith("/")), "/")


def _asked(name: _Name, around: str) -> list[list[str]]:
    """What the clients of a location may ask, each in all its forms; none where it is not known."""
    if name.kind.startswith("~"):
        return sample_uris(name.text, ignores_case=name.kind == "~*", beneath=around)
    if name.kind == "=":
        return [[name.text]]
    if name.text.startswith("@"):
        return []
    if name.text.endswith("/"):
        return [[f"{name.text}any"]]
    return [[name.text, f"{name.text}/any"]]
