"""Where ``limit_conn`` counts, and whom: over HTTP/2 and HTTP/3 each request in flight counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.quantities import parse_count
from nginx_tune.conf.scopes import Scope, http_directives
from nginx_tune.conf.tree import ConfTree

PAGE_STREAMS = 32
"""Requests that a browser has in flight at once for one ordinary page over HTTP/2."""


class CountedLimit(NamedTuple):
    """A limit where it holds."""

    scope: Scope
    line: Directive
    most: int
    """Connections at once of one value of the key, whatever the key is."""


def counted_limits(found: Iterable[Scope]) -> Iterator[CountedLimit]:
    """The limits of connections that are in effect; what only says what it would do is none.

    Source: ngx_http_limit_conn_handler().
    """
    for scope in found:
        if scope.value("limit_conn_dry_run") == "on":
            continue
        for line in scope.effective_all("limit_conn"):
            most = parse_count(line.args[1]) if len(line.args) > 1 else None
            if most is not None:
                yield CountedLimit(scope, line, most)


def zone_keys(tree: ConfTree, name: str) -> dict[str, str]:
    """The key of each zone that ``limit_conn_zone`` or ``limit_req_zone`` makes."""
    return {
        arg.removeprefix("zone=").partition(":")[0]: line.value
        for line in http_directives(tree)
        if line.name == name
        for arg in line.args[1:]
        if arg.startswith("zone=")
    }
