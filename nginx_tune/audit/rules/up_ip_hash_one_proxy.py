import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass

_PROXY_HEADER = re.compile(
    r"\$\{?(?:http_x_forwarded_(?:for|proto|port)|http_x_real_ip|http_cf_connecting_ip"
    r"|http_true_client_ip|http_x_client_ip)\b"
)
"""Headers that only a proxy sets, so that an nginx that trusts such a header is behind a proxy."""
_TRUSTING_DIRECTIVES = ("proxy_set_header", "if", "set", "return", "fastcgi_param", "add_header")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``ip_hash`` that sees only the addresses of proxies in front of nginx."""
    for name, upstream in context.upstreams.items():
        balancer = upstream.balancer
        if balancer is None or balancer.name != "ip_hash" or len(upstream.peers) < len("ab"):
            continue
        for passed in context.passes_by_upstream[name]:
            sign = _behind_a_proxy(context, passed)
            if sign is not None and passed.scope.effective("set_real_ip_from") is None:
                yield Hit(
                    balancer,
                    "behind a proxy ip_hash sees the proxy's address, so all its clients go to one "
                    "server",
                    [written(balancer), written(sign), default("set_real_ip_from", "none")],
                )
                break


def _behind_a_proxy(context: Context, passed: Pass) -> Directive | None:
    """A line that shows that requests come through a proxy; None if there is none."""
    for listener in context.listeners:
        for server, line in zip(listener.servers, listener.lines, strict=True):
            if server is passed.scope.server and "proxy_protocol" in line.args[1:]:
                return line
    for level in passed.scope.chain[1:]:
        for line in level.block or ():
            if line.name in _TRUSTING_DIRECTIVES and any(map(_PROXY_HEADER.search, line.args)):
                return line
    return None


_CONF = """
events {}
http {
    upstream app { ip_hash; server 10.0.0.1; server 10.0.0.2; keepalive 8; }
    server {
        listen 80;
        %s
        location / {
            proxy_pass http://app;
            proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;
        }
    }
}
"""

RULE = Rule(
    id="up-ip-hash-one-proxy",
    severity="warning",
    title="ip_hash sees the proxy instead of its clients",
    why="ip_hash uses the address of the connection (for IPv4 its first three octets). Behind a "
    "load balancer or a CDN that is the same for all clients: one server gets everything, and the "
    "others are idle.",
    fix="Set set_real_ip_from ADDRESS-OF-THE-PROXY; with real_ip_header X-Forwarded-For; (or "
    "proxy_protocol), or use another method: hash of a cookie, least_conn.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#ip_hash",
        "F5 blog: Avoiding the Top 10 NGINX Configuration Mistakes (mistake 9)",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A proxy is assumed if a listen line has proxy_protocol, or if a line of the server "
    "trusts a header such as X-Forwarded-Proto.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "set_real_ip_from 10.9.0.0/16; real_ip_header X-Forwarded-For;"),
    check=check,
)
