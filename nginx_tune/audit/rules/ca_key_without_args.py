"""``ca-key-without-args``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

_QUERY = ("$request_uri", "${request_uri}", "$args", "${args}", "$query_string", "${query_string}",
          "$arg_", "${arg_", "$request", "${request}", "$slice_range$args")  # fmt: skip
_PATH = ("$uri", "${uri}", "$document_uri", "${document_uri}")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches in which all queries of a path share one entry."""
    told: set[Directive] = set()
    for one in context.caching:
        key = one.passed.effective("cache_key")
        if key is None or key in told or not key.args:
            continue
        text = key.value.lower()
        others = [name for name in text.split("$")[1:] if not name.startswith(_KNOWN)]
        if any(sign in text for sign in _PATH) and not others and not _has_query(text):
            told.add(key)
            yield Hit(
                key,
                "all queries of a page are one entry: the key has no arguments",
                [written(key)],
                fix=_fix(key),
            )


def _fix(key: Directive) -> str:
    """The key that stands with the arguments after its path: what else it tells apart it keeps.

    Without its ``$slice_range`` all slices of a file would be one entry.
    """
    new = _PATH_VARIABLE.sub(_with_arguments, key.value, count=1)
    if new == key.value:
        return ""
    quoted = f'"{new}"' if _NEEDS_QUOTES.search(new) else new
    return f"{key.name} {quoted}; (the arguments after the path, all else as it is)."


def _with_arguments(found: re.Match[str]) -> str:
    is_joined = found.string[found.end() : found.end() + 1].isalnum()
    return f"{found[0]}$is_args{'${args}' if is_joined else '$args'}"


_PATH_VARIABLE = re.compile(
    r"\$(?:\{(?:document_)?uri\}|(?:document_)?uri(?![a-z0-9_]))", re.IGNORECASE
)
_NEEDS_QUOTES = re.compile(r"[\s;]")


_KNOWN = ("uri", "{uri}", "document_uri", "scheme", "{scheme}", "host", "{host}", "proxy_host",
          "{proxy_host}", "server_name", "request_method", "{request_method}", "http_host",
          "server_port", "slice_range")  # fmt: skip
"""Variables that are sure not to hold the query."""


def _has_query(text: str) -> bool:
    return any(sign in text for sign in _QUERY)


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
    title="a cache key without the arguments of the request",
    why="Every query of a path gets the answer to the first one: page 2 of a search shows page 1.",
    fix="proxy_cache_key $scheme$host$request_uri; (nginx's own default is "
    "$scheme$proxy_host$request_uri), or $uri$is_args$args; $slice_range stays at the end of a key "
    "that has it.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_key",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_create_key",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="On purpose where arguments never change the answer, such as a version behind an image: "
    "say so in a suppression comment.",
    bad=Example(_CONF % "$scheme$host$uri"),
    good=Example(_CONF % "$scheme$host$request_uri"),
    check=check,
)
