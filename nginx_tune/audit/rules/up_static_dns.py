import re
from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, address_in, host_of, is_resolved_once
from nginx_tune.documents.units import listed

RESOLVE_SINCE = (1, 27, 3)
"""The first version with ``resolve`` in ``server`` lines."""
_SINCE = (
    "Since nginx 1.27.3 an upstream can do it: server NAME resolve; with zone NAME SIZE; and a "
    "resolver."
)
_AGAIN = "Use a variable, so that the name is resolved again when its TTL expires:"
_GROUP = "A variable holds one name, not a group: reload nginx when an address changes."
_PLAIN_PATH = re.compile(r"[\w/.~-]+", re.ASCII)
_LINES = ("lines with this name", "lines with these names")
_MOST_NAMED = 4


class _Cause(NamedTuple):
    """Names that one change makes nginx resolve again, and the lines with them."""

    hosts: dict[str, None]
    lines: dict[Directive, None]
    user: Pass
    """The first location that passes requests there."""
    is_group: bool
    """True for an upstream with several servers."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Host names that are resolved only when nginx starts."""
    if context.is_until_certified:
        return
    for cause in _resolved_once(context):
        first, *others = cause.lines
        is_older = context.version is not None and context.version < RESOLVE_SINCE
        yield Hit(
            first,
            resolved_at_start(list(cause.hosts)),
            [written(first)]
            + [counted(_LINES[len(cause.hosts) > 1], len(others) + 1)] * bool(others),
            fix=f"{_GROUP if cause.is_group else _with_variable(cause)} {_SINCE}"
            if is_older
            else "",
        )


def resolved_at_start(hosts: list[str]) -> str:
    """The message for names that nginx resolves once; at most four are named."""
    more = len(hosts) - _MOST_NAMED
    shown = [f'"{host}"' for host in hosts[:_MOST_NAMED]] + [f"{more} more"] * (more > 0)
    verb = "is" if len(hosts) == 1 else "are"
    return f"{listed(shown)} {verb} resolved when nginx starts, and not again until a reload"


def _resolved_once(context: Context) -> list[_Cause]:
    """One cause for each upstream, and for each name outside of one."""
    found: dict[str, _Cause] = {}
    for name, users in context.passes_by_upstream.items():
        upstream = context.upstreams[name]
        own: _Cause | None = None
        for server in upstream.servers if users and not upstream.is_scripted else ():
            host = host_of(server.value)
            if not is_resolved_once(host) or "resolve" in server.args[1:]:
                continue
            if host not in found:
                own = own or _Cause({}, {}, users[0], len(upstream.servers) > 1)
                own.hosts[host] = None
                found[host] = own
            found[host].lines[server] = None
    for passed in context.passes:
        for address in passed.addresses:
            host = host_of(address)
            is_name = address not in context.upstreams and is_resolved_once(host)
            if is_name and not passed.has_variables and not passed.is_to_be_named:
                cause = found.setdefault(host, _Cause({host: None}, {}, passed, is_group=False))
                cause.lines[passed.place] = None
    return list({id(cause): cause for cause in found.values()}.values())


def _with_variable(cause: _Cause) -> str:
    """The lines that resolve a name again, for the first location that uses it.

    With a variable nginx does not replace the location's path by the URI of the line, so a rewrite
    does; ``set`` must precede it. Source: ngx_http_proxy_create_request().
    """
    passed, place = cause.user, cause.user.place
    first = next(iter(cause.lines))
    server = address_in(place.value) if first is place else first.value
    if first is not place and ":" not in server:
        server += ":80"  # the name alone would select an upstream of the same name
    scheme, _, rest = place.value.rpartition("://")
    resolver = "" if passed.scope.effective("resolver") else "resolver ADDRESS; "
    rewrite = _rewrite(passed, rest.partition("/"))
    target = f"{scheme}://$backend" if scheme else "$backend"
    if rewrite is None:
        return (
            f"{_AGAIN} {resolver}set $backend {server}; {place.name} {target}; (the URI is then "
            "passed on unchanged)."
        )
    return f"{_AGAIN} {resolver}set $backend {server}; {rewrite}{place.name} {target};"


def _rewrite(passed: Pass, address: tuple[str, str, str]) -> str | None:
    """The line that changes the URI as the slash after the address did, empty if nothing did.

    None if it cannot be written.
    """
    uri = "".join(address[1:])
    args = passed.scope.own.args
    path = args[-1] if args and passed.scope.own.name == "location" else ""
    if not uri or passed.module != "proxy" or uri == path:
        return ""
    is_plain = _PLAIN_PATH.fullmatch(path) and _PLAIN_PATH.fullmatch(uri)
    if not is_plain or passed.scope.sets("rewrite") is not None:
        return None
    if args[:1] == ("=",):
        return f"rewrite ^ {uri} break; "
    pattern = path.replace(".", r"\.")
    return f"rewrite ^{pattern}(.*)$ {uri}$1 break; "


RULE = Rule(
    id="up-static-dns",
    severity="warning",
    title="an upstream's address is fixed until a reload",
    why="nginx resolves a host name in proxy_pass or server once, when it starts. If the address "
    "changes (a container, a cloud load balancer, a failover), requests go to the old one. A name "
    "that cannot be resolved keeps nginx from starting.",
    fix="Since nginx 1.27.3: server NAME resolve; in an upstream with zone NAME SIZE; and a "
    "resolver. Before, for a single name: resolver ADDRESS; set $backend NAME; proxy_pass "
    "http://$backend;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#resolve",
        "nginx: src/core/ngx_inet.c, ngx_inet_resolve_host",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="Reported once per upstream or name, with the number of lines. Addresses, localhost, "
    "names with variables, and temporary configurations that only answer ACME challenges are not "
    "reported. If a name never changes, suppress the finding with that reason.",
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
