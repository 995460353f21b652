from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import WHOLE_TREE, Hit, MissingFacts, counted, written
from nginx_tune.audit.processes import lacking_ports
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.rules.up_proxy_pass_no_resolver import authority_of
from nginx_tune.audit.rules.up_static_dns import RESOLVE_SINCE
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

_BY_VARIABLE = (
    "Define upstream NAME { zone NAME 64k; server ADDRESS resolve; keepalive 16; } with resolver "
    "in http, and use that name in proxy_pass: connections stay, and the address follows the DNS."
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers on the network that ``proxy_pass`` names directly or by a variable."""
    by_address: dict[str, list[Pass]] = {}
    for passed in context.passes:
        if passed.module not in {"proxy", "grpc"}:
            continue
        named = _named_by_variable(context, passed) if passed.has_variables else passed.addresses
        addresses = [at for at in named if at not in context.upstreams and not is_unix(at)]
        if not addresses or _upgrades(passed) or is_for_monitors(passed.scope):
            continue
        for address in addresses:
            by_address.setdefault(address, []).append(passed)
    shareable = {
        address: users
        for address, users in by_address.items()
        if identity_that_differs(users, context.variables, address) is None
        and not all(map(is_better_left, users))
    }
    for address, users in shareable.items():
        host = host_of(address)
        port_evidence = lacking_ports(context, [address]) if is_loopback(host) else []
        is_cheap = not port_evidence and (is_loopback(host) or not users[0].is_tls)
        is_unnamed = users[0].is_to_be_named or is_to_be_named(host)
        if is_unnamed or (is_cheap and context.profile != "strict"):
            continue
        if is_loopback(host) and not users[0].is_tls and not port_evidence:
            continue
        if "." not in host and host == address and not context.tree.is_whole:
            yield MissingFacts((WHOLE_TREE,))  # an upstream of that name may be in another file
            continue
        place = min(users, key=_narrowness).place
        yield Hit(
            place,
            f"every request to {address} opens a new connection"
            + (" and a TLS session" if users[0].is_tls else ""),
            [written(place), counted("locations that use it", len(users)), *port_evidence],
            fix=_BY_VARIABLE if any(user.has_variables for user in users) else "",
        )


def _named_by_variable(context: Context, passed: Pass) -> tuple[str, ...]:
    """All addresses that the variables of a line can have; empty if some are not known.

    Also empty before nginx 1.27.3, where only a variable makes nginx resolve a name again.
    Source: ngx_http_upstream_init_request(): an address that no ``upstream`` has gets a balancer of
            its own for the request, without a pool (ngx_http_upstream_create_round_robin_peer()).
    """
    if context.version is None or context.version < RESOLVE_SINCE:
        return ()
    known = context.variables.possible(authority_of(passed.place.value), passed.scope)
    return tuple(sorted(value.lower() for value in known.known)) if known.complete else ()


def _narrowness(passed: Pass) -> int:
    """Sort key for locations, the widest first, because it gets most requests."""
    return len(passed.scope.own.args[-1]) if passed.scope.own.args else 0


def _upgrades(passed: Pass) -> bool:
    return sent_header(passed.scope, passed.module, "upgrade") is not None


_CONF = """
events {}
http { %sserver { listen 80; location / { proxy_pass http://%s; } } }
"""

RULE = Rule(
    id="up-literal-no-keepalive",
    severity="advice",
    title="a server named in proxy_pass has no keepalive pool",
    why="nginx keeps connections only for an upstream block, in every version (including 1.29.7). "
    "Each request costs a connection and, with https, a handshake.",
    fix="Define upstream NAME { server ADDRESS; keepalive 16; } and use that name in proxy_pass, "
    'with proxy_http_version 1.1; and proxy_set_header Connection ""; before nginx 1.29.7.',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_init_request",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Plain connections and TLS on the loopback cost little, so they are reported only in the "
    "profile strict. Plain connections on the loopback are reported there only if local ports run "
    "out. Locations that pass on Upgrade, health checks, and servers that are used with several "
    "client identities are not reported. A server named by a variable is reported from nginx "
    "1.27.3 on, where an upstream can resolve its name again, and only if all values of the "
    "variable are known.",
    bad=Example((_CONF % ("", "10.0.0.1:8080")).replace("http://", "https://")),
    good=Example(_CONF % ("upstream app { server 127.0.0.1:8080; keepalive 8; } ", "127.0.0.1:81")),
    check=check,
)
