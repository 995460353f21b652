from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import depth_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches in locations without response buffering."""
    reported: set[Directive] = set()
    for caching in context.caching:
        passed = caching.passed
        line = passed.effective("buffering")
        if line is None or line.value.lower() != "off" or caching.place in reported:
            continue
        if depth_of(passed.scope, caching.place.name) < depth_of(passed.scope, line.name):
            continue  # a streaming exception within a cached block
        reported.add(caching.place)
        yield Hit(
            caching.place,
            f'no response is cached here, because of "{line}"',
            [written(caching.place), written(line)],
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
    title="nothing is cached because response buffering is off",
    why="Only buffered responses are written to the cache. Without buffering every request goes "
    "upstream, and nothing reports it: the log shows MISS each time.",
    fix="Set proxy_buffering on; with the cache, or remove the cache there.",
    sources=(
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_send_response",
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="If an outer block turns the cache on and an inner one turns buffering off, that is "
    "assumed to be a deliberate exception for streams. An upstream that sends X-Accel-Buffering: "
    "yes has its responses buffered and cached anyway.",
    bad=Example(_CONF % "proxy_buffering off;"),
    good=Example(
        _CONF % "server { location /a { proxy_pass http://10.0.0.2; proxy_buffering off; } }"
    ),
    check=check,
)
