from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_directives
from nginx_tune.documents.decisions import Evidence

OWN_DIRECTIVE = (1, 25, 1)
"""The first version with ``http2 on``."""

_OBSOLETE = {
    "http2_idle_timeout": "keepalive_timeout",
    "http2_max_field_size": "large_client_header_buffers",
    "http2_max_header_size": "large_client_header_buffers",
    "http2_max_requests": "keepalive_requests",
    "http2_recv_timeout": "client_header_timeout",
}
"""Directives obsolete since 1.19.7, and their replacements."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """HTTP/2 settings in their deprecated form."""
    lines = _listen_lines(context)
    obsolete: list[Directive] = []
    if not context.names.isdisjoint(_OBSOLETE):
        obsolete = [
            directive for directive in http_directives(context.tree) if directive.name in _OBSOLETE
        ]
    if not lines and not obsolete:
        return
    if context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
        return
    version = Evidence(fact="nginx.nginx_version", value=context.facts.nginx.nginx_version)
    for line in lines if context.version >= OWN_DIRECTIVE else ():
        yield Hit(line, "the http2 parameter of listen is deprecated", [written(line), version])
    for line in obsolete:
        yield Hit(
            line,
            f"{line.name} is obsolete and has no effect",
            [written(line), version],
            fix=f"Remove it; {_OBSOLETE[line.name]} applies to HTTP/2 too.",
        )


def _listen_lines(context: Context) -> list[Directive]:
    """The first line of each server with the parameter; one ``http2 on;`` replaces all lines."""
    first: dict[Directive, Directive] = {}
    for listener in context.listeners:
        for server, line in zip(listener.servers, listener.lines, strict=True):
            if "http2" in line.args[1:]:
                first.setdefault(server, line)
    return list(dict.fromkeys(first.values()))


_CONF = "events { } http { server { listen 443 ssl%s root /srv/www; } }"

RULE = Rule(
    id="ls-http2-param",
    severity="info",
    title="HTTP/2 is configured in a deprecated way",
    why="Since nginx 1.25.1 http2 is a directive and the listen parameter is deprecated: nginx "
    "warns at each start, and servers on one address cannot differ. HTTP/2's own limits are "
    "ignored since 1.19.7.",
    fix="Set http2 on; in the server or in http, and remove http2 from listen.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_v2_module.html",
        "nginx change log, 1.19.7 and 1.25.1",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.19.7",
    bad=Example(_CONF % " http2;", linux(version="1.26.3")),
    good=Example(_CONF % "; http2 on;", linux(version="1.26.3")),
    check=check,
)
