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
"""Slice size in bytes below which there are too many requests, files and keys."""

_KEY = "$scheme$proxy_host$request_uri"


class _Fault(NamedTuple):
    message: str
    evidence: list[Evidence]
    severity: Severity | None = None


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Slice caches with an incomplete set of directives."""
    reported: set[Directive] = set()
    for caching in context.caching:
        line = caching.passed.scope.effective("slice")
        size = parse_bytes(line.value) if line is not None else None
        if line is None or not size or line in reported or caching.passed.module != "proxy":
            continue
        fault = _worst_fault(caching, line, size, context.variables)
        if fault is not None:
            reported.add(line)
            yield Hit(line, fault.message, fault.evidence, severity=fault.severity)


def _worst_fault(
    caching: Caching, line: Directive, size: int, variables: Variables
) -> _Fault | None:
    """The most severe fault, or None."""
    scope = caching.passed.scope
    key = scope.effective("proxy_cache_key")
    header = sent_header(scope, "proxy", "range")
    shown_key = written(key) if key else default("proxy_cache_key", _KEY)
    shown_header = written(header) if header else default("Range header", "not sent when caching")
    key_use = variables.use_of(VARIABLE, "" if key is None else key.value, scope)
    header_use = variables.use_of(VARIABLE, "" if header is None else header.args[1], scope)
    for use, shown in ((key_use, shown_key), (header_use, shown_header)):
        if use.fixed is not None and not use.is_fresh:
            message = (
                f"{_maker_text(use.fixed)} keeps the $slice_range of the first slice: "
                "clients get one slice of the file"
            )
            return _Fault(message, [written(line), shown, written(use.fixed)])
    has_key, has_header = key_use.is_fresh, header_use.is_fresh
    if has_header and not has_key:
        message = (
            "all slices of a file share one cache key: clients get the first slice for all others"
        )
        return _Fault(message, [written(line), shown_key])
    if has_key and not has_header:
        message = "no Range is sent upstream, so each slice's entry holds the whole file"
        return _Fault(message, [written(line), shown_header], "warning")
    if not has_key:
        message = "slice has no effect: neither the cache key nor Range uses $slice_range"
        return _Fault(message, [written(line), shown_key], "advice")
    valid = scope.effective_all("proxy_cache_valid")
    if valid and not any({"206", "any"} & set(directive.args[:-1]) for directive in valid):
        message = "proxy_cache_valid lacks 206, so slices are cached only if the upstream says so"
        return _Fault(message, [written(line), *map(written, valid)], "advice")
    if size < SMALLEST:
        message = f"every {line.value} of a file costs a request, a cache file and a key"
        return _Fault(message, [written(line)], "advice")
    return None


def _maker_text(line: Directive) -> str:
    """The name of a ``set`` or table, and the variable that it defines."""
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
    title="slice caching is configured incompletely",
    why="A slice is fetched with its Range and stored under a key that includes the range. With "
    "only one of the two, clients get wrong parts, or every slice is a copy of the whole file.",
    fix="Set all three: proxy_set_header Range $slice_range; proxy_cache_key "
    "$uri$is_args$args$slice_range; proxy_cache_valid 200 206 1h; with slice 1m or more. Use "
    "$slice_range itself or a volatile map: a set, or any other map, keeps its first value.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_slice_module.html",
        "nginx: src/http/modules/ngx_http_slice_filter_module.c, ngx_http_slice_header_filter",
        "https://github.com/nginx/nginx/issues/1338",
        "nginx: src/http/ngx_http_variables.c, ngx_http_get_flushed_variable",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.9.8",
    about="It is an error if only the key lacks $slice_range, or if a set or map keeps the value "
    "of the first slice: subrequests share the variables of their request and do not run the "
    "rewrite phase again. A missing Range is a warning. Advice: both are missing, 206 is missing "
    "from proxy_cache_valid (responses with Cache-Control or Expires are cached all the same), or "
    "slices are below 256k.",
    seen="nginx 1.18 to 1.30, a file of 3 MB, slice 1m. Without the key: status 200 with only the "
    "first megabyte, then 206 with that megabyte for any range. Without Range: correct bytes, and "
    "three copies of 3 MB in the cache. With neither: as if slice were not set. Without 206: "
    "correct bytes, nothing cached. With the key in a set or a map: status 200 with 1 MB of 3, and "
    '"unexpected range in slice response" in the error log.',
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "$slice_range"),
    check=check,
)
