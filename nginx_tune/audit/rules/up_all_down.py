from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstreams whose servers are all marked down."""
    for name, users in context.passes_by_upstream.items():
        upstream = context.upstreams[name]
        if not users or not upstream.servers or upstream.is_scripted or upstream.peers:
            continue
        yield Hit(
            upstream.directive,
            f'every server of upstream "{name}" is marked down, so each request gets a 502',
            [counted("servers", len(upstream.servers)), written(upstream.servers[0])],
        )


_CONF = """
events {}
http {
    upstream app { server 127.0.0.1:81 down; %s }
    server { listen 80; location / { proxy_pass http://app; } }
}
"""

RULE = Rule(
    id="up-all-down",
    severity="error",
    title="an upstream whose servers are all down",
    why='nginx -t accepts it, and every request gets 502: "no live upstreams". It happens when '
    "maintenance marks one server after another.",
    fix="Remove down from the servers that are back.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#server",
        "nginx: src/http/ngx_http_upstream_round_robin.c, ngx_http_upstream_get_peer",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    within=frozenset({"upstream"}),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "server 127.0.0.1:82; keepalive 8;"),
    check=check,
)
