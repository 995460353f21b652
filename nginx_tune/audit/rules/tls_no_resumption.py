"""``tls-no-resumption``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """TLS listeners that neither keep sessions nor give them to the client."""
    told: set[Directive] = set()
    for one in context.tls_listeners:
        tickets = one.default.effective("ssl_session_tickets")
        if tickets is None or tickets.value.lower() != "off" or tickets in told:
            continue
        if _keeps_sessions(one.default):
            continue
        told.add(tickets)
        cache = one.default.effective("ssl_session_cache")
        yield Hit(
            tickets,
            f"each connection to {one.listener.address} is a full TLS handshake",
            [written(tickets), written(cache) if cache else default("ssl_session_cache", "none")],
        )


def _keeps_sessions(server: Scope) -> bool:
    cache = server.effective("ssl_session_cache")
    return cache is not None and any(
        word.startswith(("shared:", "builtin")) for word in map(str.lower, cache.args)
    )


_CONF = """
events {}
http { server { listen 443 ssl; ssl_session_tickets off; %s return 204; } }
"""

RULE = Rule(
    id="tls-no-resumption",
    severity="warning",
    title="TLS sessions are never resumed",
    why="Without tickets and without a session cache a client that comes back does the whole "
    "handshake again: a signature on this host, and with TLS 1.2 a round trip more. (The default "
    "of ssl_session_cache is none.)",
    fix="ssl_session_cache shared:SSL:10m; (4000 sessions take 1 MB).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_session_cache",
        "nginx: src/event/ngx_event_openssl.c, ngx_ssl_session_cache",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Sessions are looked up before the client has named a server, so the settings of the "
    "default server of an address count, and only those are judged.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "ssl_session_cache shared:SSL:10m;"),
    check=check,
)
