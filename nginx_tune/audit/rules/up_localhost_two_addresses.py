from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import host_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers named localhost, which is both 127.0.0.1 and ::1."""
    lines: dict[Directive, None] = {}
    for name, users in context.passes_by_upstream.items():
        if users:
            servers = context.upstreams[name].servers
            lines.update((line, None) for line in servers if host_of(line.value) == "localhost")
    for passed in context.passes:
        for address in passed.addresses:
            if host_of(address) == "localhost" and address not in context.upstreams:
                lines[passed.place] = None
    if lines:
        first = next(iter(lines))
        yield Hit(
            first,
            "localhost is both 127.0.0.1 and ::1 on hosts with both address families, and requests "
            "alternate between them",
            [written(first), counted("lines with localhost", len(lines))],
        )


_CONF = "events {} http { server { listen 80; location / { proxy_pass http://%s:3000; } } }"

RULE = Rule(
    id="up-localhost-two-addresses",
    severity="info",
    title="localhost is two addresses",
    why="nginx treats every address of a name as a separate server. An application that listens "
    "only on 127.0.0.1 refuses every second request at [::1]: nginx retries it at the other "
    "address and logs an error, and while one address counts as failed, a single failure of the "
    'other ends in 502 ("no live upstreams").',
    fix="Use proxy_pass http://127.0.0.1:PORT; or the address that the application listens on.",
    sources=(
        "nginx: src/core/ngx_inet.c, ngx_inet_resolve_host",
        "nginx: src/http/ngx_http_upstream_round_robin.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    profiles=frozenset({"strict"}),
    about="The configuration does not show where the application listens, so this is reported only "
    "in the profile strict.",
    bad=Example(_CONF % "localhost"),
    good=Example(_CONF % "127.0.0.1"),
    check=check,
)
