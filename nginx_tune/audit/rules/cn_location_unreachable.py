"""``cn-location-unreachable``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.values import is_open

_DOTS = re.compile(r"/\.\.?/")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations that requests do not reach."""
    told: set[Directive] = set()
    for scope in context.scopes_that_set("location"):
        before: dict[tuple[str, str], Directive] = {}
        for location in (scope.own.block or Block([])).all("location"):
            reason = _reason(location, partial(_is_merging, context, scope))
            if reason and _is_named_elsewhere(context, location):
                continue
            if len(location.args) > 1 and location.value in {"~", "~*"}:
                first = before.setdefault((location.args[0], location.args[1]), location)
                if first is not location:
                    place = f"{first.file}:{first.line}"
                    reason = f"{_NONE} the same pattern stands before it: {place}"
            if reason and location not in told:
                told.add(location)
                yield Hit(location, reason, [written(location)])


def _is_merging(context: Context, scope: Scope) -> bool:
    """True if slashes are merged, whichever server reads the request line.

    That is the default server of the address where TLS has not named another
    (ngx_http_process_request_uri), so that one ``off`` leaves it open.
    """
    if scope.value("merge_slashes", "on") == "off":
        return False
    lines = context.lines_by_name.get("merge_slashes", ())
    return all(line.value.lower() != "off" for line in lines)


def _is_named_elsewhere(context: Context, location: Directive) -> bool:
    """True if a line sends requests there as it is written: such a path is not read again."""
    uri = location.args[-1]
    return any(
        arg.startswith(uri)
        for name in ("rewrite", "try_files", "error_page")
        for line in context.lines_by_name.get(name, ())
        for arg in line.args[1:]
        if name != "try_files" or arg.startswith("/")
    )


_NONE = "no request reaches this location:"


def _reason(location: Directive, is_merging: Callable[[], bool]) -> str:
    match location.args:
        case ("=" | "^~", uri):
            pass
        case (uri,) if not uri.startswith(("~", "@", "=", "^~")):
            pass
        case _:
            return ""
    if not uri or is_open(uri):
        return ""
    if not uri.startswith("/"):
        return f"{_NONE} a request's path begins with a slash"
    if _DOTS.search(uri) or (location.args[0] == "=" and uri.endswith(("/.", "/.."))):
        return f"{_NONE} . and .. are resolved before paths are compared"
    if "//" in uri and is_merging():
        return f"{_NONE} several slashes are made one before they are compared"
    if "?" in uri:
        return (
            "only a path with %3F reaches this location: the part behind ? is no part of what is "
            "compared"
        )
    if _ESCAPE.search(uri):
        return (
            "only a path with %25 reaches this location: paths are compared decoded, and %XX stays "
            "in one only where the % itself was encoded"
        )
    return ""


_CONF = "events {} http { server { listen 80; location %s { return 204; } } }"

RULE = Rule(
    id="cn-location-unreachable",
    severity="warning",
    title="a location that the requests it was written for do not reach",
    why="nginx -t accepts it, and the requests it was written for are answered elsewhere, often by "
    "a location that is less strict.",
    fix="Write the path as nginx compares it: from the first slash, decoded, without the query "
    "(test $args or $arg_NAME for that), slashes single, without . and .. between them.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_find_location",
        "nginx: src/http/ngx_http_parse.c, ngx_http_parse_complex_uri",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Silent where a line of rewrite, try_files or error_page leads there by that very path, "
    "which is not normalised again, and of double slashes where a server turns merge_slashes off: "
    "the default server of an address reads the path for all of them.",
    bad=Example(_CONF % "/search?q=1"),
    good=Example(_CONF % "/search"),
    check=check,
)
