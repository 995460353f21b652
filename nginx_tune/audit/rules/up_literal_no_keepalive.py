"""``up-literal-no-keepalive``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import WHOLE_TREE, Hit, MissingFacts, counted, written
from nginx_tune.audit.processes import lacking_ports
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.answer_bodies import is_better_left
from nginx_tune.conf.locations import is_for_monitors
from nginx_tune.conf.upstreams import (
    Pass,
    host_of,
    identity_that_differs,
    is_loopback,
    is_to_be_named,
    is_unix,
    sent_header,
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers over the network that are named in the line that passes requests on."""
    found: dict[str, list[Pass]] = {}
    for one in context.passes:
        if one.module not in {"proxy", "grpc"} or one.has_variables:
            continue
        own = [at for at in one.addresses if at not in context.upstreams and not is_unix(at)]
        if not own or _upgrades(one) or is_for_monitors(one.scope):
            continue
        for address in own:
            found.setdefault(address, []).append(one)
    shareable = {
        address: users
        for address, users in found.items()
        if identity_that_differs(users, context.variables, address) is None
        and not all(map(is_better_left, users))
    }
    for address, users in shareable.items():
        host = host_of(address)
        lacking = lacking_ports(context, [address]) if is_loopback(host) else []
        is_cheap = not lacking and (is_loopback(host) or not users[0].is_tls)
        is_unnamed = users[0].is_to_be_named or is_to_be_named(host)
        if is_unnamed or (is_cheap and context.profile != "strict"):
            continue
        if is_loopback(host) and not users[0].is_tls and not lacking:
            continue
        if "." not in host and host == address and not context.tree.is_whole:
            yield MissingFacts((WHOLE_TREE,))  # an upstream of that name may stand elsewhere
            continue
        place = min(users, key=_narrowness).place
        yield Hit(
            place,
            f"every request to {address} opens a connection of its own"
            + (" and a TLS session" if users[0].is_tls else ""),
            [written(place), counted("places that pass requests to it", len(users)), *lacking],
        )


def _narrowness(one: Pass) -> int:
    """The order of several places, widest first: most requests come through that."""
    return len(one.scope.own.args[-1]) if one.scope.own.args else 0


def _upgrades(one: Pass) -> bool:
    return sent_header(one.scope, one.module, "upgrade") is not None


_CONF = """
events {}
http { %sserver { listen 80; location / { proxy_pass http://%s; } } }
"""

RULE = Rule(
    id="up-literal-no-keepalive",
    severity="advice",
    title="a server named in proxy_pass has no pool of idle connections",
    why="Connections are kept for an upstream block only, in every version (1.29.7 too). Each "
    "request costs a connection and, with https, a handshake.",
    fix="upstream NAME { server ADDRESS; keepalive 16; } and proxy_pass to the name, with "
    'proxy_http_version 1.1; and proxy_set_header Connection ""; before nginx 1.29.7.',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Plain connections cost little, and so does TLS on the loopback: they are spoken of in "
    "the strict profile, plain ones on the loopback only where local ports run out. Locations that "
    "pass Upgrade on, health checks, and servers that are asked as one client or another are "
    "passed over.",
    bad=Example((_CONF % ("", "10.0.0.1:8080")).replace("http://", "https://")),
    good=Example(_CONF % ("upstream app { server 127.0.0.1:8080; keepalive 8; } ", "127.0.0.1:81")),
    check=check,
)
