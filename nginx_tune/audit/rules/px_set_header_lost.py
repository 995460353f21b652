"""``px-set-header-lost``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.upstreams import Pass

_WATCHED = frozenset({"host", "x-forwarded-for", "x-real-ip", "x-forwarded-proto", "authorization"})


_OF_THE_CLIENT = frozenset({"x-forwarded-for", "x-real-ip"})
"""Either tells the client's address: a server that is sent one of them has it."""
_NONE: frozenset[str] = frozenset()


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Levels whose own request headers take the outer ones away."""
    told: set[Directive] = set()
    for one in context.passes:
        if one.module not in {"proxy", "grpc"}:
            continue
        found = _levels(one)
        if len(found) < len(("inner", "outer")) or found[0][0] in told:
            continue
        inner, outer = found[0], found[1]
        kept = {line.value.lower() for line in inner}
        told_otherwise = _OF_THE_CLIENT if kept & _OF_THE_CLIENT else _NONE
        lost = [line for line in outer if line.value.lower() in _WATCHED - kept - told_otherwise]
        if lost:
            told.add(inner[0])
            names = ", ".join(dict.fromkeys(line.value for line in lost))
            yield Hit(
                inner[0],
                f"this level's {one.module}_set_header takes away those of the levels around it: "
                f"{names}",
                [written(line) for line in lost[:3]],
            )


def _levels(one: Pass) -> list[list[Directive]]:
    """The lines of each level that has any, the innermost first."""
    name = f"{one.module}_set_header"
    levels = [(level.block or Block([])).all(name) for level in reversed(one.scope.chain)]
    return [lines for lines in levels if lines]


_CONF = """
events {}
http { server {
    listen 80;
    proxy_set_header Host $host;
    location / { proxy_pass http://127.0.0.1:81; %s }
} }
"""

RULE = Rule(
    id="px-set-header-lost",
    severity="warning",
    title="an inner proxy_set_header takes the outer headers away",
    why="A level with any proxy_set_header takes none from outside. Without Host the server gets "
    "the name of the upstream; without X-Forwarded-For and X-Forwarded-Proto it takes every "
    "client for this proxy, and https for http.",
    fix="Repeat the outer lines beside this one; an included file keeps them together.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_set_header",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_merge_loc_conf",
    ),
    about="X-Real-IP and X-Forwarded-For tell the same: where one of them is sent the other is not "
    "missed.",
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    within=frozenset({"server", "location"}),
    bad=Example(_CONF % "proxy_set_header X-Part a;"),
    good=Example(_CONF % "proxy_set_header X-Part a; proxy_set_header Host $host;"),
    check=check,
)
