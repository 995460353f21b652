"""``up-localhost-two-addresses``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import host_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers that are named localhost, which is 127.0.0.1 and ::1."""
    lines: dict[Directive, None] = {}
    for name, users in context.passes_by_upstream.items():
        if users:
            named = context.upstreams[name].servers
            lines.update((line, None) for line in named if host_of(line.value) == "localhost")
    for one in context.passes:
        for address in one.addresses:
            if host_of(address) == "localhost" and address not in context.upstreams:
                lines[one.place] = None
    if lines:
        first = next(iter(lines))
        yield Hit(
            first,
            "localhost is 127.0.0.1 and ::1 where /etc/hosts and the interfaces have both "
            "families, and requests go to them in turn",
            [written(first), counted("lines that name it", len(lines))],
        )


_CONF = "events {} http { server { listen 80; location / { proxy_pass http://%s:3000; } } }"

RULE = Rule(
    id="up-localhost-two-addresses",
    severity="info",
    title="localhost is two addresses",
    why="nginx takes every address of a name for a server of its own. One that listens on "
    "127.0.0.1 alone refuses each second request at [::1]: that is tried again at the other "
    "address, and an error stands in the log; and while the one address counts as failed, a "
    'single failure of the other ends in 502 ("no live upstreams").',
    fix="proxy_pass http://127.0.0.1:PORT; or the address that the server listens on.",
    sources=(
        "nginx: src/core/ngx_inet.c, ngx_inet_resolve_host",
        "nginx: src/http/ngx_http_upstream_round_robin.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    profiles=frozenset({"strict"}),
    about="Where the server listens is not in the configuration, so this is said in the strict "
    "profile only.",
    bad=Example(_CONF % "localhost"),
    good=Example(_CONF % "127.0.0.1"),
    check=check,
)
