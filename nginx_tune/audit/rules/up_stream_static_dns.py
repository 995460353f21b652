from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.rules.up_static_dns import resolved_at_start
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.request_values import is_address
from nginx_tune.conf.upstreams import host_of, is_resolved_once


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Host names in stream that are resolved only once."""
    for stream in context.tree.main.all("stream"):
        block = stream.block or Block([])
        groups = {
            directive.value.lower(): directive
            for directive in block.all("upstream")
            if directive.block is not None
        }
        for group in groups.values():
            servers = (group.block or Block([])).all("server")
            yield from _judge([line for line in servers if "resolve" not in line.args[1:]])
        for server in block.all("server"):
            for line in (server.block or Block([])).all("proxy_pass"):
                if line.value.lower() not in groups and "$" not in line.value:
                    yield from _judge([line])


def _judge(lines: list[Directive]) -> Iterator[Hit]:
    """One finding for all names of an upstream, or for that of a ``proxy_pass``."""
    hosts: dict[str, Directive] = {}
    for line in lines:
        host = host_of(line.value)
        if is_address(line.value) and is_resolved_once(host) and "$" not in host:
            hosts.setdefault(host, line)
    if hosts:
        first = next(iter(hosts.values()))
        yield Hit(first, resolved_at_start(list(hosts)), [written(first)])


_CONF = "events {} stream { server { listen 53; proxy_pass %s:53; } }"

RULE = Rule(
    id="up-stream-static-dns",
    severity="warning",
    title="a host name in stream is resolved only at start",
    why="When its addresses change, as they do behind load balancers and in clusters, connections "
    "go to the old ones until a reload. A name that cannot be resolved keeps nginx from starting.",
    fix="From nginx 1.27.3: a resolver, and an upstream with a zone and server NAME resolve; "
    "Before: a variable in proxy_pass with a resolver.",
    sources=(
        "https://nginx.org/en/docs/stream/ngx_stream_upstream_module.html#resolve",
        "nginx: src/stream/ngx_stream_proxy_module.c, ngx_stream_proxy_pass",
    ),
    proof="source-only",
    about="If the addresses of a name never change, suppress the finding with that reason. "
    "up-static-dns covers http.",
    bad=Example(_CONF % "dns.example.com"),
    good=Example("events {}"),
    check=check,
)
