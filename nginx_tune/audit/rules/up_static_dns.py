from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import host_of, is_resolved_once

RESOLVE_SINCE = (1, 27, 3)
"""The first version with ``resolve`` in ``server`` lines."""

_OLDER = (
    "Use a variable, so that the name is resolved again when its TTL expires: resolver ADDRESS; "
    "set $backend NAME; proxy_pass http://$backend; (the URI is then passed on unchanged). Since "
    "nginx 1.27.3 an upstream can do it: server NAME resolve; with zone and resolver."
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Host names that are resolved only when nginx starts."""
    if context.is_until_certified:
        return
    for host, lines in _resolved_once(context).items():
        is_older = context.version is not None and context.version < RESOLVE_SINCE
        yield Hit(
            lines[0],
            f'"{host}" is resolved when nginx starts, and not again until a reload',
            [written(lines[0])] + [counted("lines with this name", len(lines))] * (len(lines) > 1),
            fix=_OLDER if is_older else "",
        )


def _resolved_once(context: Context) -> dict[str, list[Directive]]:
    found: dict[str, dict[Directive, None]] = {}
    for name, users in context.passes_by_upstream.items():
        upstream = context.upstreams[name]
        for server in upstream.servers if users and not upstream.is_scripted else ():
            host = host_of(server.value)
            if is_resolved_once(host) and "resolve" not in server.args[1:]:
                found.setdefault(host, {})[server] = None
    for passed in context.passes:
        for address in passed.addresses:
            host = host_of(address)
            is_name = address not in context.upstreams and is_resolved_once(host)
            if is_name and not passed.has_variables and not passed.is_to_be_named:
                found.setdefault(host, {})[passed.place] = None
    return {host: list(lines) for host, lines in found.items()}


RULE = Rule(
    id="up-static-dns",
    severity="warning",
    title="an upstream's address is fixed until a reload",
    why="nginx resolves a host name in proxy_pass or server once, when it starts. If the address "
    "changes (a container, a cloud load balancer, a failover), requests go to the old one. A name "
    "that cannot be resolved keeps nginx from starting.",
    fix="Since nginx 1.27.3: server NAME resolve; in an upstream with zone NAME SIZE; and a "
    "resolver. Before: resolver ADDRESS; set $backend NAME; proxy_pass http://$backend;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#resolve",
        "nginx: src/core/ngx_inet.c, ngx_inet_resolve_host",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="Reported once per name, with the number of lines. Addresses, localhost, names with "
    "variables, and temporary configurations that only answer ACME challenges are not reported. If "
    "a name never changes, suppress the finding with that reason.",
    bad=Example(
        "events {} http { server { location / { proxy_pass http://app.internal:8080; } } }"
    ),
    good=Example(
        """
        events {}
        http {
            resolver 10.0.0.53;
            upstream app { zone app 64k; server app.internal:8080 resolve; }
            server {
                location / { proxy_pass http://app; }
                location /old/ { set $backend old.internal; proxy_pass http://$backend; }
                location /here/ { proxy_pass http://127.0.0.1:8080; }
            }
        }
        """
    ),
    check=check,
)
