import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

_NAME = re.compile(r"\$(?:\{([a-z0-9_]+)\}|([a-z0-9_]+))", re.IGNORECASE)
_PATH = frozenset({"uri", "document_uri"})
_WITHOUT_QUERY = _PATH | {"scheme", "host", "proxy_host", "server_name", "request_method",
                          "http_host", "server_port", "slice_range"}  # fmt: skip
"""Variables that never contain the query string."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches whose key ignores the query string."""
    reported: set[Directive] = set()
    for caching in context.caching:
        key = caching.passed.effective("cache_key")
        if key is None or key in reported or not key.args:
            continue
        names = {(braced or bare).lower() for braced, bare in _NAME.findall(key.value)}
        if names & _PATH and names <= _WITHOUT_QUERY:
            reported.add(key)
            yield Hit(
                key,
                "the key ignores the query string: all pages of a search share one entry",
                [written(key)],
                fix=_fix(key),
            )


def _fix(key: Directive) -> str:
    """The same key with the arguments added after its path.

    The other parts of the key are kept. Without its ``$slice_range``, all slices of a file would
    share one entry.
    """
    new = _PATH_VARIABLE.sub(_with_arguments, key.value, count=1)
    if new == key.value:
        return ""
    quoted = f'"{new}"' if _NEEDS_QUOTES.search(new) else new
    return f"{key.name} {quoted}; (the same key with the arguments after the path)."


def _with_arguments(found: re.Match[str]) -> str:
    is_joined = found.string[found.end() : found.end() + 1].isalnum()
    return f"{found[0]}$is_args{'${args}' if is_joined else '$args'}"


_PATH_VARIABLE = re.compile(
    r"\$(?:\{(?:document_)?uri\}|(?:document_)?uri(?![a-z0-9_]))", re.IGNORECASE
)
_NEEDS_QUOTES = re.compile(r"[\s;]")


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    server {
        listen 80;
        location / {
            proxy_pass http://127.0.0.1:81;
            proxy_cache c;
            proxy_cache_lock on;
            proxy_cache_key %s;
        }
    }
}
"""

RULE = Rule(
    id="ca-key-without-args",
    severity="warning",
    title="a cache key without the query string",
    why="The response to the first query of a path is served for every other one: page 2 of a "
    "search shows page 1.",
    fix="Use proxy_cache_key $scheme$host$request_uri; (nginx's default is "
    "$scheme$proxy_host$request_uri), or $uri$is_args$args. Keep $slice_range at the end of a key "
    "that has it.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_key",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_create_key",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="This can be intended where arguments never change the response, such as a version "
    "number after an image: note it in a suppression comment.",
    bad=Example(_CONF % "$scheme$host$uri"),
    good=Example(_CONF % "$scheme$host$request_uri"),
    check=check,
)
