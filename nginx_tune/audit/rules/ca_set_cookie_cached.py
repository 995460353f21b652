from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Caching
from nginx_tune.conf.variables import read_map, variables_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that store Set-Cookie together with the response."""
    reported: set[Directive] = set()
    for caching in context.caching:
        ignored = caching.passed.effective("ignore_headers")
        if ignored is None or ignored in reported:
            continue
        if "set-cookie" not in map(str.lower, ignored.args):
            continue
        module = caching.passed.module
        hidden = caching.passed.scope.effective_all(f"{module}_hide_header")
        key = caching.passed.effective("cache_key")
        if any(line.value.lower() == "set-cookie" for line in hidden):
            continue
        if key is not None and "cookie" in key.value.lower():
            continue
        if _is_excluded(context, caching):
            continue
        reported.add(ignored)
        yield Hit(
            ignored,
            "responses are cached with their Set-Cookie, so every client gets the first one's "
            "cookie",
            [written(ignored), default(f"{module}_hide_header Set-Cookie", "none")],
        )


def _is_excluded(context: Context, caching: Caching) -> bool:
    """True if ``no_cache`` excludes responses that set a cookie."""
    return any(
        _excludes_cookies(context, caching, arg)
        for line in caching.passed.scope.effective_all(f"{caching.passed.module}_no_cache")
        for arg in line.args
    )


def _excludes_cookies(context: Context, caching: Caching, condition: str) -> bool:
    """True if a condition of ``no_cache`` is neither empty nor 0 when the response sets a cookie.

    Source: ngx_http_test_predicates, after the response header. Except for ``$upstream_http_…`` and
    volatile maps, a variable keeps the value of its first use (ngx_http_get_indexed_variable); in
    ``cache_bypass`` and ``if`` that is before there is a response.
    """
    names = variables_of(condition)
    if not names:
        return condition not in _FALSE
    if any(name == _UPSTREAM_COOKIE or name.startswith("upstream_cookie_") for name in names):
        return True
    for name in names - _evaluated_early(caching):
        makers = (line for kind in _SCRIPTED for line in context.lines_by_name.get(kind, ()))
        if name == "sent_http_set_cookie" or any(name == _variable_set(line) for line in makers):
            return True
    return any(
        _map_excludes(context, table, is_evaluated_early=name in _evaluated_early(caching))
        for name in names
        for table in context.variables.tables(name)
    )


def _map_excludes(context: Context, table: Directive, *, is_evaluated_early: bool) -> bool:
    """True if a map of the Set-Cookie header gives a value other than 0 for a cookie."""
    source = variables_of(table.args[0])
    lines = table.block or ()
    if table.name != "map" or (
        is_evaluated_early and all(line.name != "volatile" for line in lines)
    ):
        return False
    if _UPSTREAM_COOKIE not in source and (
        is_evaluated_early or "sent_http_set_cookie" not in source
    ):
        # A map of a map: the inner one decides.
        inner = (table for name in source for table in context.variables.tables(name))
        return any(
            directive is not table
            and _UPSTREAM_COOKIE in variables_of(directive.args[0])
            and not is_evaluated_early
            for directive in inner
        )
    entries, patterns, otherwise = read_map(table)
    values = [line.value for key, line in entries.items() if key]
    values += [line.value for line in (*patterns, otherwise) if line is not None]
    return not _FALSE.issuperset(values)


def _evaluated_early(caching: Caching) -> frozenset[str]:
    """The variables that a request may evaluate before it has a response."""
    scope, module = caching.passed.scope, caching.passed.module
    lines = [
        line
        for name in ("cache_bypass", "cache_key", "set_header", "pass", "param", "cache_methods")
        for line in scope.effective_all(f"{module}_{name}")
    ]
    for level in scope.chain:
        lines += [
            directive
            for directive in level.block or ()
            if directive.name in {"if", "set", "rewrite"}
        ]
    return variables_of(" ".join(arg for line in lines for arg in line.args))


def _variable_set(line: Directive) -> str:
    return line.value.lstrip("$").lower()


_UPSTREAM_COOKIE = "upstream_http_set_cookie"
_SCRIPTED = ("js_set", "perl_set")
_FALSE = frozenset({"", "0"})

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
            proxy_ignore_headers Set-Cookie;
            %s
        }
    }
}
"""

RULE = Rule(
    id="ca-set-cookie-cached",
    severity="error",
    title="the cache serves one client's cookies to all others",
    why="nginx does not cache responses with Set-Cookie unless that header is ignored. With it "
    "ignored, one user's session cookie logs in everyone else.",
    fix="Add proxy_hide_header Set-Cookie; if the cookie does not matter, or proxy_no_cache "
    "$upstream_http_set_cookie; to keep such responses out of the cache, or remove Set-Cookie from "
    "proxy_ignore_headers. Bypass the cache for logged-in users too.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_valid",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_process_set_cookie",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Not reported where proxy_no_cache tests $upstream_http_set_cookie or a map of it. "
    "$sent_http_set_cookie and a map that is not volatile keep the value of their first use: if "
    "proxy_cache_bypass or an if uses them too, they are empty when the response arrives and "
    "exclude nothing. The same applies to fastcgi_, uwsgi_ and scgi_.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_hide_header Set-Cookie;"),
    check=check,
)
