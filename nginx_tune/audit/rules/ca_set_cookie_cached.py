"""``ca-set-cookie-cached``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Caching
from nginx_tune.conf.variables import read_map, variables_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that keep answers with a cookie, cookie and all."""
    told: set[Directive] = set()
    for one in context.caching:
        ignored = one.passed.effective("ignore_headers")
        if ignored is None or ignored in told:
            continue
        if "set-cookie" not in map(str.lower, ignored.args):
            continue
        module = one.passed.module
        hidden = one.passed.scope.effective_all(f"{module}_hide_header")
        key = one.passed.effective("cache_key")
        if any(line.value.lower() == "set-cookie" for line in hidden):
            continue
        if key is not None and "cookie" in key.value.lower():
            continue
        if _is_refused(context, one):
            continue
        told.add(ignored)
        yield Hit(
            ignored,
            "an answer that sets a cookie is kept, and everybody gets that cookie",
            [written(ignored), default(f"{module}_hide_header Set-Cookie", "none")],
        )


def _is_refused(context: Context, one: Caching) -> bool:
    """True if ``no_cache`` keeps out what sets a cookie."""
    return any(
        _is_of_cookies(context, one, arg)
        for line in one.passed.scope.effective_all(f"{one.passed.module}_no_cache")
        for arg in line.args
    )


def _is_of_cookies(context: Context, one: Caching, text: str) -> bool:
    """True if a text of ``no_cache`` is neither empty nor 0 where the answer sets a cookie.

    Source: ngx_http_test_predicates, after the answer's head. But for ``$upstream_http_…`` and
    volatile maps a variable keeps the value of its first use (ngx_http_get_indexed_variable),
    which in ``cache_bypass`` and ``if`` is before there is an answer.
    """
    names = variables_of(text)
    if not names:
        return text not in _NOT_REFUSING
    if any(name == _SENT or name.startswith("upstream_cookie_") for name in names):
        return True
    for name in names - _used_before(one):
        makers = (line for kind in _SCRIPTED for line in context.lines_by_name.get(kind, ()))
        if name == "sent_http_set_cookie" or any(name == _made(line) for line in makers):
            return True
    return any(
        _map_refuses(context, table, is_used_before=name in _used_before(one))
        for name in names
        for table in context.variables.tables(name)
    )


def _map_refuses(context: Context, table: Directive, *, is_used_before: bool) -> bool:
    """True if a map of the cookie says anything but 0 for one."""
    source = variables_of(table.args[0])
    lines = table.block or ()
    if table.name != "map" or (is_used_before and all(line.name != "volatile" for line in lines)):
        return False
    if _SENT not in source and (is_used_before or "sent_http_set_cookie" not in source):
        # A map of maps, of which the inner one is judged.
        inner = (one for name in source for one in context.variables.tables(name))
        return any(
            one is not table and _SENT in variables_of(one.args[0]) and not is_used_before
            for one in inner
        )
    entries, patterns, otherwise = read_map(table)
    values = [line.value for key, line in entries.items() if key]
    values += [line.value for line in (*patterns, otherwise) if line is not None]
    return not _NOT_REFUSING.issuperset(values)


def _used_before(one: Caching) -> frozenset[str]:
    """The variables that a request here may use before it is answered."""
    scope, module = one.passed.scope, one.passed.module
    lines = [
        line
        for name in ("cache_bypass", "cache_key", "set_header", "pass", "param", "cache_methods")
        for line in scope.effective_all(f"{module}_{name}")
    ]
    for level in scope.chain:
        lines += [one for one in level.block or () if one.name in {"if", "set", "rewrite"}]
    return variables_of(" ".join(arg for line in lines for arg in line.args))


def _made(line: Directive) -> str:
    return line.value.lstrip("$").lower()


_SENT = "upstream_http_set_cookie"
_SCRIPTED = ("js_set", "perl_set")
_NOT_REFUSING = frozenset({"", "0"})

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
    title="cookies of one client are served to all from the cache",
    why="nginx does not keep answers with Set-Cookie; ignoring that header makes it keep them. A "
    "session cookie of one user then logs in all others.",
    fix="proxy_hide_header Set-Cookie; beside it where the cookie does not matter; or "
    "proxy_no_cache $upstream_http_set_cookie; which keeps such answers out; or leave Set-Cookie "
    "out of proxy_ignore_headers. Skip the cache for who is logged in, too.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_valid",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_process_set_cookie",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Silent where a line of proxy_no_cache asks $upstream_http_set_cookie, or a map of it. A "
    "map that is not volatile, and $sent_http_set_cookie, keep the value of their first use: in "
    "proxy_cache_bypass or an if as well, they are empty when the answer comes, and keep nothing "
    "out. The same holds of fastcgi_, uwsgi_ and scgi_.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_hide_header Set-Cookie;"),
    check=check,
)
