"""``ca-slice-incomplete``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Caching
from nginx_tune.conf.upstreams import sent_header
from nginx_tune.conf.values import parse_bytes
from nginx_tune.conf.variables import Variables
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.findings import Severity

VARIABLE = "slice_range"
SMALLEST = 256 << 10
"""Each slice is a request, a file and a key of its own."""

_KEY = "$scheme$proxy_host$request_uri"


class _Fault(NamedTuple):
    message: str
    evidence: list[Evidence]
    severity: Severity | None = None


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches of slices without all that belongs to them."""
    told: set[Directive] = set()
    for one in context.caching:
        line = one.passed.scope.effective("slice")
        size = parse_bytes(line.value) if line is not None else None
        if line is None or not size or line in told or one.passed.module != "proxy":
            continue
        fault = _fault(one, line, size, context.variables)
        if fault is not None:
            told.add(line)
            yield Hit(line, fault.message, fault.evidence, severity=fault.severity)


def _fault(one: Caching, line: Directive, size: int, variables: Variables) -> _Fault | None:
    """The worst that is missing."""
    scope = one.passed.scope
    key = scope.effective("proxy_cache_key")
    header = sent_header(scope, "proxy", "range")
    shown_key = written(key) if key else default("proxy_cache_key", _KEY)
    shown_header = written(header) if header else default("Range header", "not sent with a cache")
    of_key = variables.use_of(VARIABLE, "" if key is None else key.value, scope)
    of_header = variables.use_of(VARIABLE, "" if header is None else header.args[1], scope)
    for use, shown in ((of_key, shown_key), (of_header, shown_header)):
        if use.fixed is not None and not use.is_fresh:
            message = (
                f"{_named(use.fixed)} keeps the $slice_range of the first slice: "
                "clients get one slice of a longer file"
            )
            return _Fault(message, [written(line), shown, written(use.fixed)])
    has_key, has_header = of_key.is_fresh, of_header.is_fresh
    if has_header and not has_key:
        message = "all slices of a file share one cache key: clients get the first for every other"
        return _Fault(message, [written(line), shown_key])
    if has_key and not has_header:
        message = "no Range is sent to the server, so each slice's entry is the whole file"
        return _Fault(message, [written(line), shown_header], "warning")
    if not has_key:
        message = "slice has no effect: neither the cache key nor Range names $slice_range"
        return _Fault(message, [written(line), shown_key], "advice")
    valid = scope.effective_all("proxy_cache_valid")
    if valid and not any({"206", "any"} & set(one.args[:-1]) for one in valid):
        message = "proxy_cache_valid leaves 206 out, so slices are kept only as the server says"
        return _Fault(message, [written(line), *map(written, valid)], "advice")
    if size < SMALLEST:
        message = f"each {line.value} of a file is a request, a file and a key of its own"
        return _Fault(message, [written(line)], "advice")
    return None


def _named(line: Directive) -> str:
    """The variable that a ``set`` or a table makes, with what makes it."""
    return f"{line.name} {line.args[0 if line.name == 'set' else 1]}"


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=10g;
    server { location / {
        proxy_pass http://10.0.0.1;
        proxy_cache c;
        proxy_cache_key $uri%s;
        proxy_cache_valid 200 206 1h;
        proxy_set_header Range $slice_range;
        slice 1m;
    } }
}
"""

RULE = Rule(
    id="ca-slice-incomplete",
    severity="error",
    title="slices are cached without all that belongs to them",
    why="A slice is fetched by its Range and kept under a key with that range. With one of the "
    "two alone clients get wrong parts, or every slice is a copy of the whole file.",
    fix="All three: proxy_set_header Range $slice_range; proxy_cache_key $uri$is_args$args"
    "$slice_range; proxy_cache_valid 200 206 1h; with slice 1m or more. $slice_range itself, or a "
    "map with volatile: a set or another map keeps its first value.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_slice_module.html",
        "nginx: src/http/modules/ngx_http_slice_filter_module.c, ngx_http_slice_header_filter",
        "https://github.com/nginx/nginx/issues/1338",
        "nginx: src/http/ngx_http_variables.c, ngx_http_get_flushed_variable",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.9.8",
    about="Only $slice_range missing from the key is an error, and so is one that a set or a map "
    "keeps from the first slice: subrequests share the variables of their request, and run no "
    "rewrite of their own. Range missing is a warning; both "
    "missing, 206 missing from proxy_cache_valid (a server that sends Cache-Control or Expires "
    "is cached all the same) and slices below 256k are advice.",
    seen="nginx 1.18 to 1.30, a file of 3 MB, slice 1m. Without the key: status 200 with the first "
    "megabyte and no more, then 206 with that megabyte for whatever range is asked for. Without "
    "Range: right bytes, and three copies of 3 MB in the cache. With neither: as if slice were "
    "not there. Without 206: right bytes, nothing cached. "
    'With the key in a set or a map: status 200 with 1 MB of 3 and "unexpected range in slice '
    'response" in the error log.',
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "$slice_range"),
    check=check,
)
