from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

_SCHEMES = ("http://", "https://", "grpc://", "grpcs://")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstreams selected by a map without a default."""
    reported: set[Directive] = set()
    for passed in context.passes:
        text = passed.place.value
        for scheme in _SCHEMES:
            text = text.removeprefix(scheme)
        host = text.partition("/")[0]
        if not host.startswith("$") or passed.place in reported:
            continue
        values = context.variables.possible(host, passed.scope).known
        table = values.get("")
        if table is not None and table.name == "map":
            reported.add(passed.place)
            yield Hit(
                passed.place,
                f"the map of {table.args[-1]} has no default, so requests that it does not list "
                "have "
                "no upstream",
                [written(table)],
            )


_CONF = """
events {}
http {
    upstream a { server 127.0.0.1:81; keepalive 8; }
    map $host $pool { %sa.example.com a; }
    server { listen 80; location / {
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://$pool;
    } }
}
"""

RULE = Rule(
    id="up-map-no-default",
    severity="warning",
    title="a map that selects the upstream has no default",
    why='A request that matches no line of the map gets 500: "no host in upstream". nginx -t '
    "accepts it.",
    fix="Add default NAME; to the map, with an upstream that handles such requests, or a location "
    "that rejects them first.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_map_module.html#map",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_eval",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "default a; "),
    check=check,
)
