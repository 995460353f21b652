from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parameter, parse_seconds

DEFAULT_INACTIVE_SECONDS = 600.0
_FACTOR = 2
_PAGE_CODES = frozenset({"200", "any"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Responses that stay valid much longer than an unused entry is kept."""
    reported: set[Directive] = set()
    for caching in context.caching:
        for line in caching.passed.scope.effective_all(f"{caching.passed.module}_cache_valid"):
            valid = parse_seconds(line.args[-1]) if line.args else None
            covers_pages = len(line.args) == 1 or not _PAGE_CODES.isdisjoint(line.args[:-1])
            if valid is None or not covers_pages or line in reported:
                continue
            for cache in caching.caches:
                inactive = parameter(cache.place.args[1:], "inactive")
                inactive_seconds = (
                    DEFAULT_INACTIVE_SECONDS if inactive is None else parse_seconds(inactive)
                )
                if inactive_seconds is None or valid < _FACTOR * inactive_seconds:
                    continue
                reported.add(line)
                evidence = written(cache.place) if inactive else default("inactive", "10m")
                yield Hit(
                    line,
                    f"a response is valid for {line.args[-1]} but deleted once it has not been "
                    f"requested for {inactive or '10m'}",
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
    title="the cache deletes entries long before they expire",
    why="An entry that is not requested within inactive= (10 minutes by default) is deleted, "
    "however long it is valid. Rarely requested pages are fetched from the upstream every time, "
    "and the cache stays small although it has room.",
    fix="Set inactive=TIME in proxy_cache_path to at least the longest *_cache_valid; max_size "
    "limits the disk space.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_path",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_expire",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Not reported where the validity is less than twice that time.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "inactive=30d"),
    check=check,
)
