from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.http2 import PAGE_STREAMS, counted_limits
from nginx_tune.conf.listeners import multiplexed_servers
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import depth_of
from nginx_tune.documents.decisions import Evidence

BROWSER_CONNECTIONS = 6
"""Connections that a browser opens to one server over HTTP/1."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``limit_conn`` with a number that is meant for connections but applies to streams."""
    if "limit_conn" not in context.names:
        return
    servers = multiplexed_servers(context.scopes, context.listeners)
    reported: set[Directive] = set()
    for scope, line, limit in counted_limits(s for s in context.scopes if s.server in servers):
        if line not in reported and _least_limit(scope) <= limit < PAGE_STREAMS:
            reported.add(line)
            yield Hit(
                line,
                f"over HTTP/2 and HTTP/3 this allows {limit} concurrent requests, not "
                f"{limit} connections",
                [Evidence(fact="limit_conn", value=limit, provenance="declared")],
            )


def _least_limit(scope: Scope) -> int:
    """The smallest limit to report, since a lower limit is reached over HTTP/1 too."""
    place = scope.chain[depth_of(scope, "limit_conn")]
    is_narrow = place.name == "location" and place.args != ("/",)
    return BROWSER_CONNECTIONS if is_narrow else 0


_CONF = """
events { }
http {
    limit_conn_zone $binary_remote_addr zone=addresses:10m;
    server {
        listen 443 ssl http2;
        limit_conn addresses %s;
        location / { root /srv/www; }
    }
}
"""

RULE = Rule(
    id="lim-conn-h2",
    severity="warning",
    title="limit_conn counts every stream",
    why="Over HTTP/2 and HTTP/3 each concurrent request counts as a connection. A browser requests "
    "dozens of a page's parts at once over one connection, and those above the limit get 503.",
    fix="Raise the number to what a page needs (about 100), or set it only where large downloads "
    "are served.",
    sources=("https://nginx.org/en/docs/http/ngx_http_limit_conn_module.html#limit_conn",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="In a location for specific pages, a limit below six, the connections that a browser "
    "opens over HTTP/1, is assumed to be intended.",
    bad=Example(_CONF % 10),
    good=Example(_CONF % 100),
    check=check,
)
