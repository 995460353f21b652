from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, identity_of_tls


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``ssl_session_reuse off`` where requests are proxied over TLS."""
    found: dict[Directive, None] = {}
    intended: set[Directive] = set()
    for passed in context.passes:
        line = passed.effective("ssl_session_reuse")
        if not passed.is_tls or line is None or line.value.lower() != "off" or line in found:
            continue
        if _needs_own_session(context, passed):
            intended.add(line)
            continue
        found.setdefault(line)
    for line in found:
        if line not in intended:
            yield Hit(
                line,
                "each new connection to the upstream needs a full TLS handshake",
                [written(line)],
            )


def _needs_own_session(context: Context, passed: Pass) -> bool:
    """True if a resumed session would use another client's identity or another name."""
    sharing = [other for other in context.passes if {*other.addresses} & {*passed.addresses}]
    return identity_of_tls(sharing or [passed], context.variables) is not None


_CONF = "events {} http { server { location / { proxy_pass https://10.0.0.1; %s } } }"

RULE = Rule(
    id="up-tls-no-reuse",
    severity="warning",
    title="TLS sessions with the upstream are not resumed",
    why="A full handshake costs a signature on the upstream and more data than a resumed one, and "
    "with TLS 1.2 another round trip.",
    fix="Remove the line: the default is on. If it was set because of handshake errors, update "
    "nginx and the upstream instead.",
    sources=("https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_session_reuse",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="off is correct, and not reported, if the TLS certificate or name comes from a variable "
    "or differs between locations of the same server: nginx resumes a server's last session for "
    "any client, and a resumed session keeps its original identity.",
    bad=Example(_CONF % "proxy_ssl_session_reuse off;"),
    good=Example(_CONF % "proxy_ssl_session_reuse on;"),
    check=check,
)
