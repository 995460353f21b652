"""``up-tls-no-reuse``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, identity_of_tls


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``ssl_session_reuse off`` where requests are passed on over TLS."""
    told: dict[Directive, None] = {}
    apart: set[Directive] = set()
    for one in context.passes:
        line = one.effective("ssl_session_reuse")
        if not one.is_tls or line is None or line.value.lower() != "off" or line in told:
            continue
        if _is_told_apart(context, one):
            apart.add(line)
            continue
        told.setdefault(line)
    for line in told:
        if line not in apart:
            yield Hit(
                line, "each new connection to the upstream is a full TLS handshake", [written(line)]
            )


def _is_told_apart(context: Context, one: Pass) -> bool:
    """True if a resumed session would make a request as another client, or to another name."""
    beside = [other for other in context.passes if {*other.addresses} & {*one.addresses}]
    return identity_of_tls(beside or [one], context.variables) is not None


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
    about="off is right, and passed over, where the certificate or the name of TLS comes from a "
    "variable, or differs between places that ask the same server: nginx resumes a server's last "
    "session whoever it was made for, and a resumed session is what it was at first.",
    bad=Example(_CONF % "proxy_ssl_session_reuse off;"),
    good=Example(_CONF % "proxy_ssl_session_reuse on;"),
    check=check,
)
