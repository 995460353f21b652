"""``up-keepalive-before-lb``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, add_after, remove
from nginx_tune.conf.upstreams import UpstreamBlock, identity_that_differs, stands_before


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``keepalive`` lines that a later balancing method puts out of effect."""
    for upstream in context.upstreams.values():
        keepalive, method = upstream.keepalive, upstream.balancer
        if keepalive is None or method is None or keepalive.value == "0":
            continue
        if not stands_before(upstream.block, keepalive, method):
            continue
        if context.version is None:
            yield MissingFacts(("nginx.nginx_version",))
            return
        line = _unshared(context, upstream)
        yield Hit(
            keepalive,
            f'{method.name} after it puts keepalive of upstream "{upstream.name}" out of effect',
            [written(keepalive), written(method), *([written(line)] if line else [])],
            fix=_TAKE_OUT if line else "",
        )


def fixes(context: Context, hit: Hit) -> Iterator[Edit]:
    """The line behind the method, unless what it then keeps would be given to the wrong ones."""
    for upstream in context.upstreams.values():
        if upstream.keepalive is hit.place and upstream.balancer is not None:
            if _unshared(context, upstream) is not None:
                return
            yield remove(hit.place)
            # Without a comment between its words, which would hide what follows it on one line.
            yield add_after(upstream.balancer, f"{hit.place.name} {' '.join(hit.place.args)};")


def _unshared(context: Context, upstream: UpstreamBlock) -> Directive | None:
    """The line by which requests to an upstream are not to share connections."""
    users = context.passes_by_upstream[upstream.name]
    return identity_that_differs(users, context.variables, upstream.name)


_TAKE_OUT = (
    "Take keepalive out: it does nothing where it stands, and behind the method it would keep "
    "connections that not all requests may share."
)

_CONF = "events {} http { upstream app { %s server 10.0.0.1; server 10.0.0.2; %s } }"

RULE = Rule(
    id="up-keepalive-before-lb",
    severity="warning",
    title="keepalive stands before the balancing method",
    why="Each of these lines takes the upstream over from the one before it; keepalive wraps the "
    "method that is there already. A method after it replaces both: nginx warns (load balancing "
    "method redefined) and keeps no idle connection.",
    fix="Put keepalive after ip_hash, least_conn, hash, random or least_time.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26"),
    until="1.29.7",
    about="Where places ask the upstream as different clients, verify its certificate or not, or "
    "speak different protocols, a kept connection of one would be given to another: then nothing "
    "is moved.",
    bad=Example(_CONF % ("keepalive 32;", "least_conn;"), linux()),
    good=Example(_CONF % ("least_conn;", "keepalive 32;"), linux()),
    check=check,
    fixes=fixes,
)
