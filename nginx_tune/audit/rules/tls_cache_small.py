from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes, parse_seconds

SESSIONS_PER_MEBIBYTE = 4000
"""Sessions that fit into 1 MiB. Source: the documentation of ``ssl_session_cache``."""
TIMEOUT_SECONDS = 300.0
"""The default of ``ssl_session_timeout``."""
FEWEST_PER_SECOND = 0.1
"""New sessions per second below which a site needs no cache."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Session caches that fill up long before sessions expire."""
    reported: set[Directive] = set()
    for listener in context.tls_listeners:
        scope = listener.default
        line, timeout = scope.effective("ssl_session_cache"), scope.effective("ssl_session_timeout")
        if line is None or line in reported or scope.value("ssl_session_tickets", "on") != "off":
            continue
        shared = [word.split(":") for word in line.args if word.lower().startswith("shared:")]
        size = parse_bytes(shared[0][-1]) if shared else None
        seconds = TIMEOUT_SECONDS if timeout is None else parse_seconds(timeout.value)
        if not size or not seconds:
            continue
        sessions = size * SESSIONS_PER_MEBIBYTE >> 20
        if sessions / seconds < FEWEST_PER_SECOND:
            reported.add(line)
            yield Hit(
                line,
                f"the cache has room for {sessions} sessions of {seconds / 3600:.3g} hours each: "
                "one "
                f"new client every {seconds / max(1, sessions):.0f} s fills it",
                [
                    written(line),
                    default("ssl_session_timeout", "5m") if timeout is None else written(timeout),
                ],
            )


_CONF = """
events {}
http { server {
    listen 443 ssl; return 204;
    ssl_session_tickets off; ssl_session_timeout 1d; ssl_session_cache shared:SSL:%s;
} }
"""

RULE = Rule(
    id="tls-cache-small",
    severity="advice",
    title="the TLS session cache is too small for its timeout",
    why="A megabyte holds about 4000 sessions. When it is full, each new one evicts the oldest, "
    "whatever ssl_session_timeout says: returning clients do a full handshake.",
    fix="Use a larger cache (10m holds 40000 sessions), or a shorter ssl_session_timeout.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_session_cache",
        "nginx: src/event/ngx_event_openssl.c, ngx_ssl_new_session",
    ),
    proof="source-only",
    about="Reported if fewer than one new session per ten seconds fills it. Not reported with "
    "tickets, which are on by default: the client then stores the session.",
    bad=Example(_CONF % "1m"),
    good=Example(_CONF % "10m"),
    check=check,
)
