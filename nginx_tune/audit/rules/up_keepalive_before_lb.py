from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, add_after, remove
from nginx_tune.conf.upstreams import UpstreamBlock, identity_that_differs, stands_before


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``keepalive`` lines that a later balancing method overrides."""
    for upstream in context.upstreams.values():
        keepalive, method = upstream.keepalive, upstream.balancer
        if keepalive is None or method is None or keepalive.value == "0":
            continue
        if not stands_before(upstream.block, keepalive, method):
            continue
        if context.version is None:
            yield MissingFacts(("nginx.nginx_version",))
            return
        line = _separating_line(context, upstream)
        yield Hit(
            keepalive,
            f'{method.name} after it disables keepalive of upstream "{upstream.name}"',
            [written(keepalive), written(method), *([written(line)] if line else [])],
            fix=_FIX_REMOVE if line else "",
        )


def fixes(context: Context, hit: Hit) -> Iterator[Edit]:
    """Move the line after the method, unless clients would then share connections wrongly."""
    for upstream in context.upstreams.values():
        if upstream.keepalive is hit.place and upstream.balancer is not None:
            if _separating_line(context, upstream) is not None:
                return
            yield remove(hit.place)
            # Rebuilt from its arguments: a comment between them would hide the rest of the line.
            yield add_after(upstream.balancer, f"{hit.place.name} {' '.join(hit.place.args)};")


def _separating_line(context: Context, upstream: UpstreamBlock) -> Directive | None:
    """The line that keeps requests to an upstream from sharing connections; None if they may."""
    users = context.passes_by_upstream[upstream.name]
    return identity_that_differs(users, context.variables, upstream.name)


_FIX_REMOVE = (
    "Remove keepalive: it has no effect here, and after the method it would keep connections that "
    "not all requests may share."
)

_CONF = "events {} http { upstream app { %s server 10.0.0.1; server 10.0.0.2; %s } }"

RULE = Rule(
    id="up-keepalive-before-lb",
    severity="warning",
    title="keepalive before the balancing method",
    why="Each of these lines takes over the upstream from the previous one; keepalive wraps the "
    "method that is already set. A method after it replaces both: nginx warns (load balancing "
    "method redefined) and keeps no idle connections.",
    fix="Move keepalive after ip_hash, least_conn, hash, random or least_time.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26"),
    until="1.29.7",
    about="Where locations use the upstream with different client identities, certificate "
    "verification or protocols, a kept connection could be given to the wrong one: the fix then "
    "moves nothing.",
    bad=Example(_CONF % ("keepalive 32;", "least_conn;"), linux()),
    good=Example(_CONF % ("least_conn;", "keepalive 32;"), linux()),
    check=check,
    fixes=fixes,
)
