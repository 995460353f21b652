"""``up-map-no-default``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

_HEADS = ("http://", "https://", "grpc://", "grpcs://")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers chosen by a map that gives nothing for what it does not list."""
    told: set[Directive] = set()
    for one in context.passes:
        text = one.place.value
        for head in _HEADS:
            text = text.removeprefix(head)
        host = text.partition("/")[0]
        if not host.startswith("$") or one.place in told:
            continue
        values = context.variables.possible(host, one.scope).known
        table = values.get("")
        if table is not None and table.name == "map":
            told.add(one.place)
            yield Hit(
                one.place,
                f"the map of {table.args[-1]} has no default: what it does not list is passed to "
                "no server",
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
    title="a map that chooses the server has no default",
    why='A request that no line of the map fits is answered with 500: "no host in upstream". '
    "nginx -t accepts it.",
    fix="default NAME; in the map, with an upstream that answers such requests, or a location "
    "that refuses them first.",
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
