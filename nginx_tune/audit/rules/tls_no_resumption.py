from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """TLS listeners with neither a session cache nor tickets."""
    reported: set[Directive] = set()
    for listener in context.tls_listeners:
        tickets = listener.default.effective("ssl_session_tickets")
        if tickets is None or tickets.value.lower() != "off" or tickets in reported:
            continue
        if _keeps_sessions(listener.default):
            continue
        reported.add(tickets)
        cache = listener.default.effective("ssl_session_cache")
        yield Hit(
            tickets,
            f"every connection to {listener.listener.address} needs a full TLS handshake",
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
    why="Without tickets and a session cache, a returning client repeats the whole handshake: a "
    "signature on this host, and with TLS 1.2 another round trip. (The default of "
    "ssl_session_cache is none.)",
    fix="Set ssl_session_cache shared:SSL:10m; (4000 sessions take 1 MB).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_session_cache",
        "nginx: src/event/ngx_event_openssl.c, ngx_ssl_session_cache",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="nginx looks up sessions before the client has named a server, so only the settings of "
    "the address's default server count.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "ssl_session_cache shared:SSL:10m;"),
    check=check,
)
