from collections.abc import Iterator, Mapping

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import http_lines, judges_names
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.upstreams import (
    PASS_LINES,
    UpstreamBlock,
    address_in,
    host_of,
    is_unix,
    refused_backup,
    upstreams,
)
from nginx_tune.conf.values import is_open

_WITHOUT_DEFAULT = frozenset({"fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass",
                              "memcached_pass"})  # fmt: skip
"""Lines whose address has no default port."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstreams that nginx rejects."""
    if not judges_names(context):
        return
    first_upstreams: dict[str, Directive] = {}
    for upstream in upstreams(context.tree):
        earlier = first_upstreams.setdefault(upstream.name, upstream.directive)
        if earlier is not upstream.directive:
            yield Hit(
                upstream.directive,
                f'upstream "{upstream.name}" is already defined at {earlier.file}:{earlier.line}',
                [written(earlier)],
            )
        yield from _servers(upstream, context)
    yield from _zones(context)
    yield from _passes(context, first_upstreams)


def _zones(context: Context) -> Iterator[Hit]:
    """Zones of which no line has the size. Source: ngx_http_upstream_zone, ngx_init_cycle."""
    lines = [line for one in context.upstreams.values() for line in one.block.all("zone")]
    sized = {line.value for line in lines if len(line.args) > 1}
    for line in lines:
        if line.args and line.value not in sized and not is_open(line.value):
            message = f'no line gives the zone "{line.value}" a size'
            yield Hit(line, message, [written(line)], fix="Write a size after the name: 64k.")


def _passes(context: Context, known: Mapping[str, Directive]) -> Iterator[Hit]:
    """Lines with a port for an upstream, or none for an address. Source: ngx_http_upstream_add."""
    for name in PASS_LINES:
        for line in http_lines(context, name):
            if is_open(line.value) or is_unix(address := address_in(line.value)):
                continue
            host, port = host_of(address), address[len(host_of(address)) :]
            if host in known and port:
                message = (
                    f'upstream "{host}" has its ports in its server lines, so "{port}" is wrong'
                )
                yield Hit(line, message, [written(known[host])])
            elif not port and name in _WITHOUT_DEFAULT and host and host not in known:
                yield Hit(line, f'no upstream is named "{host}", and an address needs a port', [
                    written(line), default("upstream", "none of that name")
                ])  # fmt: skip


def _servers(upstream: UpstreamBlock, context: Context) -> Iterator[Hit]:
    foreign = any(not any(row.is_own for row in rows_of(line.name)) for line in upstream.block)
    if foreign or upstream.is_scripted or upstream.block.first("state") is not None:
        return
    if not upstream.servers and _is_filled_elsewhere(upstream, context):
        return
    backups = [server for server in upstream.servers if "backup" in server.args[1:]]
    if len(backups) == len(upstream.servers):
        yield Hit(
            upstream.directive,
            f'upstream "{upstream.name}" has only backup servers'
            if backups
            else f'upstream "{upstream.name}" has no server',
            [counted("servers", len(upstream.servers))],
        )
    if pair := refused_backup(upstream.block):
        message = f'"{pair[1].name}" does not allow backup servers'
        yield Hit(pair[0], message, [written(line) for line in pair])


def _is_filled_elsewhere(upstream: UpstreamBlock, context: Context) -> bool:
    """True if this may be nginx Plus, which adds servers to a zone at run time."""
    is_open_source = context.facts.nginx.version is not None
    return upstream.block.first("zone") is not None and not is_open_source


_CONF = """
events {}
http {
    upstream app { server 127.0.0.1:81%s; keepalive 8; }
    server { listen 80; return 204; }
}
"""

RULE = Rule(
    id="cf-upstream-refused",
    severity="error",
    title="an upstream that nginx rejects",
    why='nginx does not start: emerg "no servers in upstream", "duplicate upstream", "upstream may '
    'not have port", "no port in upstream", "zero size shared memory zone" or "balancing '
    'method does not support parameter "backup"".',
    fix="Add a server that is not a backup; remove backup if ip_hash, hash or random comes before "
    "the server; give each upstream its own name, and its ports to its servers alone.",
    sources=(
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream and ngx_http_upstream_server",
        "nginx: src/http/ngx_http_upstream_round_robin.c, ngx_http_upstream_init_round_robin",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    within=frozenset({"upstream"}),
    bad=Example(_CONF % " backup"),
    good=Example(_CONF % ""),
    check=check,
)
