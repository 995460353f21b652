"""Names that a configuration uses and that nothing in it makes: zones, formats, variables.

Silent as the tables of directives are (foreign modules, forks), and where anything is not nginx's
own: a module may make names by code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.known_variables import (
    EVALUATED,
    has_stray_dollar,
    is_known_variable,
    is_listed_variable,
    made_variables,
    used_variables,
)
from nginx_tune.conf.quantities import parameter
from nginx_tune.conf.templates import is_open

if TYPE_CHECKING:
    from nginx_tune.audit.context import Context

HTTP_CONTEXTS = frozenset(
    {"http", "server", "location", "server-if", "location-if", "limit_except", "upstream"}
)
_CACHE_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi")


class Unmade(NamedTuple):
    """A name that is used and not made."""

    place: Directive
    kind: str
    name: str


def unknown_zones(context: Context) -> Iterator[Unmade]:
    """Zones and log formats of http that no line declares."""
    made = {
        "limit_req_zone": _zones(context, "limit_req_zone", "zone"),
        "limit_conn_zone": _zones(context, "limit_conn_zone", "zone"),
        **{
            f"{one}_cache_path": _zones(context, f"{one}_cache_path", "keys_zone")
            for one in _CACHE_MODULES
        },
        "log_format": {"combined", *(line.value for line in http_lines(context, "log_format"))},
    }
    for maker, kind, place, name in _uses(context):
        if name and name not in made[maker] and not is_open(name):
            yield Unmade(place, kind, name)


def unknown_variables(context: Context) -> Iterator[Unmade]:
    """Variables of http that neither nginx nor the configuration makes."""
    if any(not any(row.is_own for row in rows_of(kind.name)) for kind in context.kinds):
        return  # a module that is not nginx's own
    if has_doubled_dollars(context):
        return
    made: set[str] | None = None
    for kind, directives in context.kinds.items():
        if kind.name not in EVALUATED or kind.context not in HTTP_CONTEXTS:
            continue
        for directive in directives:
            for name in used_variables(directive):
                if is_known_variable(name):
                    continue
                if made is None:
                    lines = context.tree.main.walk()
                    made = {name for line in lines for name in made_variables(line)}
                if name not in made:
                    yield Unmade(directive, "variable", name)


def stray_dollars(context: Context) -> Iterator[Directive]:
    """Lines of http with a dollar sign that begins no variable's name."""
    if has_doubled_dollars(context):
        return
    for kind, directives in context.kinds.items():
        if kind.context in HTTP_CONTEXTS and rows_of(kind.name):
            yield from filter(has_stray_dollar, directives)


def has_doubled_dollars(context: Context) -> bool:
    """Whether every variable of nginx stands as ``$$name``.

    So a program writes it that fills ``$name`` in itself and leaves one dollar of two: Python's
    string.Template, Compose, make. One variable with a single dollar shows that it is no template.
    """
    doubled = 0
    for line in context.tree.main.walk():
        if line.block is not None and not line.args:
            continue
        text = " ".join(line.args)
        if any(is_listed_variable(name) for name in _SINGLE.findall(text)):
            return False
        doubled += any(is_known_variable(name) for name in _DOUBLED.findall(text))
    return doubled >= _NO_SLIP


_NO_SLIP = 3
"""Lines that show a habit."""
_SINGLE = re.compile(r"(?<!\$)\$\{?([a-z]\w*)", re.ASCII)
_DOUBLED = re.compile(r"(?<!\$)\$\$\{?([a-z]\w*)", re.ASCII)


def http_lines(context: Context, name: str) -> list[Directive]:
    """The directives of that name inside http, each once."""
    return [
        directive
        for kind, directives in context.kinds.items()
        if kind.name == name and kind.context in HTTP_CONTEXTS
        for directive in directives
    ]


def _uses(context: Context) -> Iterator[tuple[str, str, Directive, str]]:
    for line in http_lines(context, "limit_req"):
        yield "limit_req_zone", "zone of limit_req_zone", line, parameter(line.args, "zone") or ""
    for line in http_lines(context, "limit_conn"):
        yield "limit_conn_zone", "zone of limit_conn_zone", line, line.value
    for module in _CACHE_MODULES:
        for line in http_lines(context, f"{module}_cache"):
            if line.value != "off":
                path = f"{module}_cache_path"
                yield path, f"keys_zone of {path}", line, line.value
    for line in http_lines(context, "access_log"):
        if line.value != "off" and len(line.args) > 1:
            yield "log_format", "log_format", line, line.args[1]


def _zones(context: Context, directive: str, name: str) -> set[str]:
    return {
        (parameter(line.args, name) or "").partition(":")[0]
        for line in http_lines(context, directive)
    }
