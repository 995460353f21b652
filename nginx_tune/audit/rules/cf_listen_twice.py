"""``cf-listen-twice``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import names_default
from nginx_tune.conf.values import is_open

_EARLIER_QUIC = "http3"
"""The word of patched builds before 1.25.0 for what is a socket of UDP."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """An address twice in one server, and two servers that are the default of one address."""
    if context.tree.is_template:
        return
    told: set[Directive] = set()
    for listener in context.listeners:
        if is_open(listener.address):
            continue
        first: dict[Directive, Directive] = {}
        default: Directive | None = None
        for line, server in zip(listener.lines, listener.servers, strict=True):
            if _EARLIER_QUIC in line.args[1:]:
                continue
            before = first.setdefault(server, line)
            if line in told:
                continue  # a range of ports, of which others are taken as well
            if before is not line:
                told.add(line)
                place = f"{before.file}:{before.line}"
                what = f"the server listens on {listener.address} already: {place}"
                yield Hit(line, what, [written(before)])
            elif names_default(line):
                if default is not None:
                    told.add(line)
                    place = f"{default.file}:{default.line}"
                    what = f"{listener.address} has a default server already: {place}"
                    yield Hit(line, what, [written(default)])
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
    title="an address twice in a server, or two default servers of one address",
    why='nginx does not start: emerg "a duplicate listen" or "a duplicate default server". Often '
    "one of the two comes with an included file, such as the default site of a package.",
    fix="Take one of the lines out; leave default_server to one server of the address.",
    sources=(
        "nginx: src/http/ngx_http.c, ngx_http_add_addresses and ngx_http_add_server",
        "nginx: src/core/ngx_inet.c, ngx_parse_url and ngx_cmp_sockaddr",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Addresses are compared as nginx does: 80, *:80 and 0.0.0.0:0080 are one, [::1] and "
    "[0:0::1] are, 127.1 is 127.0.0.1, and 8001 is of the range 8000-8003. What a host name stands "
    "for is not known here, so that localhost:80 is taken for another address than 127.0.0.1:80.",
    bad=Example(_CONF % " default_server"),
    good=Example(_CONF % ""),
    check=check,
)
