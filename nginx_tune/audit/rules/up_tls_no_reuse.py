"""``up-tls-no-reuse``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import written
from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``ssl_session_reuse off`` where requests are passed on over TLS."""
    told: set[Directive] = set()
    for one in context.passes:
        line = one.effective("ssl_session_reuse")
        if one.is_tls and line is not None and line.value.lower() == "off" and line not in told:
            told.add(line)
            yield Hit(
                line, "each new connection to the upstream is a full TLS handshake", [written(line)]
            )


_CONF = "events {} http { server { location / { proxy_pass https://10.0.0.1; %s } } }"

RULE = Rule(
    id="up-tls-no-reuse",
    severity="warning",
    title="TLS sessions with the upstream are not resumed",
    why="A full handshake costs a signature on the server and more data than a resumed one, with "
    "TLS 1.2 a round trip too.",
    fix="Remove the line: on is the default. Where it was set because of handshake errors, update "
    "nginx and the server instead.",
    sources=("https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_session_reuse",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % "proxy_ssl_session_reuse off;"),
    good=Example(_CONF % "proxy_ssl_session_reuse on;"),
    check=check,
)
