from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``cache_background_update on`` without permission to serve stale entries."""
    reported: set[Directive] = set()
    for caching in context.caching:
        line = caching.passed.effective("cache_background_update")
        if line is None or line.value.lower() != "on" or line in reported:
            continue
        stale = caching.passed.effective("cache_use_stale")
        if stale is not None and "updating" in stale.args:
            continue
        reported.add(line)
        ignored = caching.passed.effective("ignore_headers")
        ignores_upstream = ignored is not None and "cache-control" in map(str.lower, ignored.args)
        name = f"{caching.passed.module}_cache_use_stale"
        yield Hit(
            line,
            f"{name} lacks updating, so nothing is updated in the background"
            + (
                "" if ignores_upstream else " except what the upstream marks stale-while-revalidate"
            ),
            [written(line), written(stale) if stale is not None else default(name, "off")],
            severity=None if ignores_upstream else "advice",
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
    title="background cache updates never happen",
    why="nginx updates an entry in the background only while it may serve the stale one. Without "
    "that permission, the client that hits an expired entry waits for the upstream.",
    fix="proxy_cache_use_stale updating; in addition to the conditions already listed.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_background_update",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_cache",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.11.10",
    about="An upstream can give the permission itself, per response, with Cache-Control: "
    "stale-while-revalidate=SECONDS. The finding is therefore only advice unless "
    "proxy_ignore_headers lists Cache-Control.",
    seen="nginx 1.18 to 1.30 with background_update on and without updating: a response with "
    "max-age alone is fetched while the client waits; one with stale-while-revalidate is served "
    "from the cache at once and updated afterwards.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_use_stale error updating;"),
    check=check,
)
