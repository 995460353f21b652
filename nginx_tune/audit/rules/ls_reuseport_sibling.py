from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.listeners import AddressFamily
from nginx_tune.documents.decisions import Evidence

_WILDCARDS: dict[str, tuple[AddressFamily, str]] = {"*": ("inet6", "[::]"), "[::]": ("inet", "*")}


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``reuseport`` on only one of the IPv4 and IPv6 wildcards of a port."""
    by_socket = {address.socket: address for address in context.listeners if not address.is_quic}
    for listener in by_socket.values():
        sibling = _WILDCARDS.get(listener.socket.host)
        if sibling is None:
            continue
        family, host = sibling
        other = by_socket.get(listener.socket._replace(family=family, host=host))
        if listener.reuseport is not None and other is not None and other.reuseport is None:
            yield Hit(
                other.lines[0],
                f"{other.address} has one queue for all workers, but {listener.address} has one "
                "per worker",
                [
                    Evidence(
                        fact=f"reuseport at line {listener.reuseport.line}",
                        value=str(listener.reuseport),
                        provenance="declared",
                    )
                ],
            )


_CONF = "events { } http { server { listen 80 reuseport; listen [::]:80%s; root /srv/www; } }"

RULE = Rule(
    id="ls-reuseport-sibling",
    severity="info",
    title="reuseport for one address family only",
    why="IPv4 and IPv6 clients of the same port are then distributed differently, and measurements "
    "of one do not apply to the other.",
    fix="Set the same option on one listen line of both addresses.",
    sources=("nginx: src/http/ngx_http.c, ngx_http_add_addresses",),
    proof="source-only",
    since="1.9.1",
    about="Other listen lines of the same address need no option, because it belongs to the "
    "address. A QUIC listener with reuseport next to a TCP one without follows the documentation "
    "and is not reported.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % " reuseport"),
    check=check,
)
