"""``ca-bg-update-inert``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``background_update on`` where no stale answer may be given meanwhile."""
    told: set[Directive] = set()
    for one in context.caching:
        line = one.passed.effective("cache_background_update")
        if line is None or line.value.lower() != "on" or line in told:
            continue
        stale = one.passed.effective("cache_use_stale")
        if stale is not None and "updating" in stale.args:
            continue
        told.add(line)
        ignored = one.passed.effective("ignore_headers")
        is_deaf = ignored is not None and "cache-control" in map(str.lower, ignored.args)
        name = f"{one.passed.module}_cache_use_stale"
        yield Hit(
            line,
            f"{name} has no updating, so nothing is updated in the background"
            + ("" if is_deaf else " but what the server marks stale-while-revalidate"),
            [written(line), written(stale) if stale is not None else default(name, "off")],
            severity=None if is_deaf else "advice",
        )


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    server { location / {
        proxy_pass http://10.0.0.1; proxy_cache c; proxy_ignore_headers Cache-Control;
        proxy_cache_background_update on; %s
    } }
}
"""

RULE = Rule(
    id="ca-bg-update-inert",
    severity="warning",
    title="background updates of a cache never happen",
    why="An update runs in the background only while the client may be given the expired entry. "
    "Without that permission each expired entry makes its client wait for the server.",
    fix="proxy_cache_use_stale updating; (with the error conditions that are there already).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_background_update",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_cache",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.11.10",
    about="A server can give the permission itself, response by response: Cache-Control: "
    "stale-while-revalidate=SECONDS. Unless proxy_ignore_headers has Cache-Control the finding "
    "is therefore an advice.",
    seen="nginx 1.18 to 1.30 with background_update on and no updating: a response with max-age "
    "alone is fetched while the client waits; one with stale-while-revalidate is answered from "
    "the cache at once and fetched after it.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_use_stale error updating;"),
    check=check,
)
