from collections.abc import Iterator
from itertools import combinations

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.values import is_open


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches inside another cache's directory."""
    for one, other in combinations(context.caches, 2):
        if is_open(one.directory) or is_open(other.directory):
            continue
        outer, inner = sorted((one, other), key=lambda cache: len(cache.directory))
        above = context.tree.full_path(outer.directory)
        below = context.tree.full_path(inner.directory)
        if above is None or below is None:
            continue
        if below.rstrip("/").startswith(f"{above.rstrip('/')}/"):
            yield Hit(
                inner.place,
                f"the cache in {inner.directory} lies inside that in {outer.directory}",
                [written(outer.place), written(inner.place)],
            )


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=a:10m max_size=1g;
    proxy_cache_path /var/cache/%s keys_zone=b:10m max_size=1g;
    server { location / { proxy_pass http://10.0.0.1; proxy_cache a; } }
}
"""

RULE = Rule(
    id="ca-nested",
    severity="warning",
    title="a cache inside the directory of another",
    why="The cache loader walks the whole tree below its directory. It counts the files of the "
    "inner cache in the keys_zone and max_size of the outer one, so the outer cache removes its "
    "own files too early. For the others the error log has unlink() failed (2: No such file or "
    "directory).",
    fix="Give each cache a directory of its own, beside the other.",
    sources=(
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_loader",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_add_file",
    ),
    proof="source-only",
    bad=Example(_CONF % "nginx/b"),
    good=Example(_CONF % "nginx-b"),
    check=check,
)
