"""``cn-location-unreachable``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import written
from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.templates import is_open

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations that no request can reach."""
    told: set[Directive] = set()
    for scope in context.scopes:
        before: dict[tuple[str, str], Directive] = {}
        for location in (scope.own.block or Block([])).all("location"):
            reason = _reason(location, is_merging=scope.value("merge_slashes", "on") != "off")
            if len(location.args) > 1 and location.value in {"~", "~*"}:
                first = before.setdefault((location.args[0], location.args[1]), location)
                if first is not location:
                    reason = f"the same pattern stands before it: {first.file}:{first.line}"
            if reason and location not in told:
                told.add(location)
                yield Hit(
                    location, f"no request reaches this location: {reason}", [written(location)]
                )


def _reason(location: Directive, *, is_merging: bool) -> str:
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
        return "a request's path begins with a slash"
    if "?" in uri:
        return "the part behind ? is no part of what is compared"
    if _ESCAPE.search(uri):
        return "paths are compared decoded, so %XX never stands in one"
    if is_merging and "//" in uri:
        return "several slashes are made one before they are compared"
    return ""


_CONF = "events {} http { server { listen 80; location %s { return 204; } } }"

RULE = Rule(
    id="cn-location-unreachable",
    severity="warning",
    title="a location that no request can reach",
    why="nginx -t accepts it, and the requests it was written for are answered elsewhere, often by "
    "a location that is less strict.",
    fix="Write the path as nginx compares it: from the first slash, decoded, without the query "
    "(test $args or $arg_NAME for that), slashes single.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_find_location",
        "nginx: src/http/ngx_http_parse.c, ngx_http_parse_complex_uri",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % "/search?q=1"),
    good=Example(_CONF % "/search"),
    check=check,
)
