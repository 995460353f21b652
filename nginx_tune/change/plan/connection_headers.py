"""Header fields of HTTP/1.1's connections that a configuration sends itself.

An answer of HTTP/2 or HTTP/3 with one of them is malformed: clients end the stream, and see no
page. Source: RFC 9113, 8.2.2; RFC 9114, 4.2. nginx writes what it is told to
(ngx_http_v2_header_filter, ngx_http_v2_create_trailers_frame). Seen with 1.22.1 and curl, which
ends each with PROTOCOL_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope

_FORBIDDEN = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
_PASSED = frozenset({"proxy-connection", "te", "upgrade"})
"""What nginx passes on of an upstream's answer; the others it keeps for itself, whatever
``proxy_pass_header`` says. Source: ngx_http_upstream_headers_in, whose copy handler for them is
ngx_http_upstream_ignore_header_line."""
_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi", "grpc")
_MEANT_TO_BE_ASKED = frozenset(f"$http_{name.replace('-', '_')}" for name in _FORBIDDEN)
"""Of the request; no client of HTTP/2 may send them, so that these variables are empty."""


def connection_header(found: Iterable[Scope]) -> Directive | None:
    """The first line that has an answer carry a header of a connection."""
    return next((line for scope in found for line in _lines(scope)), None)


def _lines(scope: Scope) -> Iterator[Directive]:
    for line in (*_added(scope, "add_header"), *_added(scope, "add_trailer")):
        if len(line.args) > 1 and _is_sent(line.value, line.args[1]):
            yield line
    for line in _of_all_levels(scope, "more_set_headers"):
        fields = (arg.partition(":") for arg in line.args)
        if any(_is_sent(name, value) for name, _, value in fields):
            yield line
    for module in _MODULES:
        if scope.sets(f"{module}_pass") is not None:
            for line in scope.effective_all(f"{module}_pass_header"):
                if line.value.lower() in _PASSED:
                    yield line


def _is_sent(name: str, value: str) -> bool:
    """An empty value sends nothing (ngx_http_add_header), and ``TE: trailers`` is allowed."""
    name, value = name.strip().lower(), value.strip().lower()
    if name not in _FORBIDDEN or not value or value in _MEANT_TO_BE_ASKED:
        return False
    return (name, value) != ("te", "trailers")


def _added(scope: Scope, name: str) -> list[Directive]:
    """Those of the innermost level with any; of all levels where they are merged (1.29.3)."""
    if scope.value(f"{name}_inherit") == "merge":
        return _of_all_levels(scope, name)
    return scope.effective_all(name)


def _of_all_levels(scope: Scope, name: str) -> list[Directive]:
    """As headers-more has it. Source: ngx_http_headers_more_merge_loc_conf."""
    return [line for block in scope.chain for line in (block.block or Block([])).all(name)]
