"""``ca-set-cookie-cached``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import default, written
from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.conf.directive import Directive


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
        told.add(ignored)
        yield Hit(
            ignored,
            "an answer that sets a cookie is kept, and everybody gets that cookie",
            [written(ignored), default(f"{module}_hide_header Set-Cookie", "none")],
        )


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
    fix="proxy_hide_header Set-Cookie; beside it where the cookie does not matter, else leave "
    "Set-Cookie out of proxy_ignore_headers, and skip the cache for who is logged in.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_valid",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_process_set_cookie",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_hide_header Set-Cookie;"),
    check=check,
)
