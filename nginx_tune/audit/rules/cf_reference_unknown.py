from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import unknown_zones
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Zones and log formats that are used but not defined."""
    for reference in unknown_zones(context):
        yield hit_at(reference.place, f'no {reference.definer} defines "{reference.name}"')


RULE = Rule(
    id="cf-reference-unknown",
    severity="error",
    title="a zone or log format that is not defined",
    why='nginx does not start: emerg "zero size shared memory zone", "zone is unknown" or '
    '"unknown log format".',
    fix="Define it in http (limit_req_zone, limit_conn_zone, proxy_cache_path, log_format), or "
    "correct the name. In access_log, options follow the format.",
    sources=(
        "nginx: src/http/modules/ngx_http_limit_req_module.c, ngx_http_limit_conn_module.c",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_cache_get",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_set_log",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    bad=Example("events {} http { server { listen 80; limit_req zone=one burst=5; } }"),
    good=Example(
        "events {} http { limit_req_zone $binary_remote_addr zone=one:10m rate=5r/s; "
        "server { listen 80; limit_req zone=one burst=5; } }"
    ),
    check=check,
)
