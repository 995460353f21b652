from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import names_default
from nginx_tune.conf.values import is_open

_EARLIER_QUIC = "http3"
"""The parameter of patched builds before 1.25.0 for a UDP socket."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Addresses repeated within a server, and addresses with two default servers."""
    if context.tree.is_template:
        return
    reported: set[Directive] = set()
    for listener in context.listeners:
        if is_open(listener.address):
            continue
        first_lines: dict[Directive, Directive] = {}
        default: Directive | None = None
        for line, server in zip(listener.lines, listener.servers, strict=True):
            if _EARLIER_QUIC in line.args[1:]:
                continue
            earlier = first_lines.setdefault(server, line)
            if line in reported:
                continue  # a port range that overlaps at several ports
            if earlier is not line:
                reported.add(line)
                place = f"{earlier.file}:{earlier.line}"
                message = f"this server already listens on {listener.address} at {place}"
                yield Hit(line, message, [written(earlier)])
            elif names_default(line):
                if default is not None:
                    reported.add(line)
                    place = f"{default.file}:{default.line}"
                    message = f"{listener.address} already has a default server at {place}"
                    yield Hit(line, message, [written(default)])
                default = default or line


_CONF = """
events {}
http {
    server { listen 80%s; server_name a.example; }
    server { listen 80 default_server; server_name b.example; }
}
"""

RULE = Rule(
    id="cf-listen-twice",
    severity="error",
    title="an address twice in a server, or two default servers for one address",
    why='nginx does not start: emerg "a duplicate listen" or "a duplicate default server". Often '
    "one of the two comes from an included file, such as a package's default site.",
    fix="Remove one of the lines; keep default_server on one server per address.",
    sources=(
        "nginx: src/http/ngx_http.c, ngx_http_add_addresses and ngx_http_add_server",
        "nginx: src/core/ngx_inet.c, ngx_parse_url and ngx_cmp_sockaddr",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Addresses are compared as nginx compares them: 80, *:80 and 0.0.0.0:0080 are the same, "
    "and so are [::1] and [0:0::1]; 127.1 is 127.0.0.1, and 8001 is in the range 8000-8003. Host "
    "names are not resolved, so localhost:80 and 127.0.0.1:80 count as different addresses.",
    bad=Example(_CONF % " default_server"),
    good=Example(_CONF % ""),
    check=check,
)
