"""``px-cache-unbuffered``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import depth_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches asked for where responses are not buffered."""
    told: set[Directive] = set()
    for one in context.caching:
        passed = one.passed
        line = passed.effective("buffering")
        if line is None or line.value.lower() != "off" or one.place in told:
            continue
        if depth_of(passed.scope, one.place.name) < depth_of(passed.scope, line.name):
            continue  # an exception that streams, inside of what is cached
        told.add(one.place)
        yield Hit(
            one.place,
            f'"{line}" holds here, so no response is stored in the cache',
            [written(one.place), written(line)],
        )


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    %s
    server { location / { proxy_pass http://10.0.0.1; proxy_cache c; } }
}
"""

RULE = Rule(
    id="px-cache-unbuffered",
    severity="error",
    title="a cache stores nothing, because responses are not buffered",
    why="Only the buffering path writes responses to the cache. Without it every request goes to "
    "the server, and nothing says so: the log shows MISS for each.",
    fix="proxy_buffering on; beside the cache, or no cache there.",
    sources=(
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_send_response",
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Where buffering is turned off further in than the cache is turned on, it is an "
    "exception that somebody made for streams, and nothing is said. A server that sends "
    "X-Accel-Buffering: yes gets its responses buffered and cached all the same.",
    bad=Example(_CONF % "proxy_buffering off;"),
    good=Example(
        _CONF % "server { location /a { proxy_pass http://10.0.0.2; proxy_buffering off; } }"
    ),
    check=check,
)
