"""``ca-inactive-short``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parameter, parse_seconds

DEFAULT_INACTIVE_SECONDS = 600.0
_MUCH = 2
_OF_PAGES = frozenset({"200", "any"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Answers that stay valid for much longer than what nobody asks for is kept."""
    told: set[Directive] = set()
    for one in context.caching:
        for line in one.passed.scope.effective_all(f"{one.passed.module}_cache_valid"):
            valid = parse_seconds(line.args[-1]) if line.args else None
            is_of_pages = len(line.args) == 1 or not _OF_PAGES.isdisjoint(line.args[:-1])
            if valid is None or not is_of_pages or line in told:
                continue
            for cache in one.caches:
                asked = parameter(cache.place.args[1:], "inactive")
                kept = DEFAULT_INACTIVE_SECONDS if asked is None else parse_seconds(asked)
                if kept is None or valid < _MUCH * kept:
                    continue
                told.add(line)
                evidence = written(cache.place) if asked else default("inactive", "10m")
                yield Hit(
                    line,
                    f"an answer is valid for {line.args[-1]}, and thrown away when nobody has "
                    f"asked for it in {asked or '10m'}",
                    [written(line), evidence],
                )
                break


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g %s;
    server {
        listen 80;
        location / {
            proxy_pass http://127.0.0.1:8080; proxy_cache c; proxy_cache_lock on;
            proxy_cache_valid 200 30d;
        }
    }
}
"""

RULE = Rule(
    id="ca-inactive-short",
    severity="advice",
    title="a cache forgets sooner than its answers end",
    why="What nobody asks for within inactive= (ten minutes where it is not set) is deleted, "
    "however long it is valid. Pages that are asked for seldom come from the server each time, "
    "and a cache with room to spare stays small.",
    fix="proxy_cache_path ... inactive=TIME; no shorter than the longest *_cache_valid; max_size "
    "bounds the disk.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_path",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_expire",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Silent where the answer is valid for less than twice that time.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "inactive=30d"),
    check=check,
)
