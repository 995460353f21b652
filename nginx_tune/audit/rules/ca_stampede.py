"""``ca-stampede``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import default, written
from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that let every miss of one entry through."""
    told: set[Directive] = set()
    for one in context.caching:
        if one.place in told or _is_guarded(one.passed):
            continue
        told.add(one.place)
        module = one.passed.module
        yield Hit(
            one.place,
            "while an entry is fetched, each further request for it goes to the server as well",
            [
                written(one.place),
                default(f"{module}_cache_lock", "off"),
                default(f"{module}_cache_use_stale", "off"),
            ],
        )


def _is_guarded(one: Pass) -> bool:
    stale = one.effective("cache_use_stale")
    return one.value("cache_lock") == "on" or (stale is not None and "updating" in stale.args)


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    server { location / { proxy_pass http://10.0.0.1; proxy_cache c; %s } }
}
"""

RULE = Rule(
    id="ca-stampede",
    severity="advice",
    title="parallel misses of a cache all go to the server",
    why="When a popular entry expires every request that comes until it is there again is passed "
    "on: the server gets the whole load at once.",
    fix="proxy_cache_lock on; (one request fetches, the others wait up to 5 s) and "
    "proxy_cache_use_stale updating; (an expired entry answers meanwhile).",
    sources=("https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_lock",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="How many requests come for one entry at once is a fact that no command here gathers; "
    "with few it does not matter. Waiters look every half second, so cache_lock adds up to "
    "that to the first answers.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_lock on;"),
    check=check,
)
