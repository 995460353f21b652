from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass
from nginx_tune.documents.decisions import Evidence

MANY_SERVERS = 5
"""Number of servers to report, since a request may wait for a read timeout (60 s) of each."""

_OFF = frozenset({"", "0", "0s"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Retries limited only by the number of servers."""
    reported: set[Directive] = set()
    for name, users in context.passes_by_upstream.items():
        servers = len(context.upstreams[name].peers)
        if servers < 2:  # noqa: PLR2004  # no other server to try
            continue
        for passed in users:
            line = passed.effective("next_upstream")
            if passed.value("next_upstream_tries") not in _OFF or _is_off(line):
                continue
            if line is not None and "non_idempotent" in line.args:
                place, message = line, f'every server of "{name}" may execute the same POST'
            elif servers >= MANY_SERVERS and passed.value("next_upstream_timeout") in _OFF:
                place = context.upstreams[name].directive
                message = f'one request may try all {servers} servers of "{name}" in turn'
            else:
                continue
            if place not in reported:
                reported.add(place)
                yield Hit(place, message, _evidence(passed, line, servers))


def _is_off(line: Directive | None) -> bool:
    return line is not None and "off" in line.args


def _evidence(passed: Pass, line: Directive | None, servers: int) -> list[Evidence]:
    name = f"{passed.module}_next_upstream"
    return [
        written(line) if line is not None else default(name, "error timeout"),
        default(f"{name}_tries", "0: no limit"),
        counted("servers", servers),
    ]


_CONF = """
events {}
http {
    upstream app { server 10.0.0.1; server 10.0.0.2; server 10.0.0.3; }
    server { location / {
        proxy_pass http://app;
        proxy_next_upstream error timeout non_idempotent;
        %s
    } }
}
"""

RULE = Rule(
    id="up-retry-unbounded",
    severity="warning",
    title="failed requests are retried on every server",
    why="Without proxy_next_upstream_tries a failed request goes to the next server until there is "
    "none left. A request that makes servers fail or time out takes out each of them in turn, and "
    "with non_idempotent a write is executed several times.",
    fix="Set proxy_next_upstream_tries 2; (at most 3) and proxy_next_upstream_timeout, for example "
    "10s.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_next_upstream_tries",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_next",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.5",
    about="Without non_idempotent it is reported from five servers on, and only if "
    "proxy_next_upstream_timeout does not limit the time either: two or three servers are common, "
    "and most people want them all to be tried.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_next_upstream_tries 2;"),
    check=check,
)
