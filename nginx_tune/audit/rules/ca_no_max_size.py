from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.served import Cache
from nginx_tune.conf.values import parameter, parse_bytes


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches limited only by the size of the disk."""
    for cache in context.used_caches:
        if not _is_bounded(cache):
            yield Hit(
                cache.place,
                f"the cache in {cache.directory} has neither max_size nor min_free",
                [written(cache.place)],
            )


def _is_bounded(cache: Cache) -> bool:
    """True if the line has a limit, or a placeholder for one that a template fills in."""
    bounds = (parameter(cache.place.args, "max_size"), parameter(cache.place.args, "min_free"))
    return any(text and parse_bytes(text) != 0 for text in bounds)


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m%s;
    server { location / { proxy_pass http://10.0.0.1; proxy_cache c; } }
}
"""

RULE = Rule(
    id="ca-no-max-size",
    severity="warning",
    title="a cache without a size limit",
    why="Entries are deleted only when they have not been requested for the inactive time (10 "
    "minutes by default) or when keys_zone is full. Large responses can fill the disk before that; "
    "writes then fail, for everything else on that disk too.",
    fix="Set max_size=SIZE well below the free space: the cache manager trims afterwards, so the "
    "cache exceeds it for a moment. From nginx 1.19.1 add min_free=SIZE.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_path",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_manager",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % ""),
    good=Example(_CONF % " max_size=10g"),
    check=check,
)
