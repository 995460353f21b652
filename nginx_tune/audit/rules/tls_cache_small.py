"""``tls-cache-small``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes, parse_seconds

SESSIONS_PER_MEBIBYTE = 4000
"""Source: the documentation of ``ssl_session_cache``."""
TIMEOUT_SECONDS = 300.0
"""``ssl_session_timeout``."""
FEWEST_PER_SECOND = 0.1
"""New sessions; a site with fewer has no need of a cache."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Session caches that are full long before a session's time is over."""
    told: set[Directive] = set()
    for one in context.tls_listeners:
        scope = one.default
        line, timeout = scope.effective("ssl_session_cache"), scope.effective("ssl_session_timeout")
        if line is None or line in told or scope.value("ssl_session_tickets", "on") != "off":
            continue
        shared = [word.split(":") for word in line.args if word.lower().startswith("shared:")]
        size = parse_bytes(shared[0][-1]) if shared else None
        seconds = TIMEOUT_SECONDS if timeout is None else parse_seconds(timeout.value)
        if not size or not seconds:
            continue
        sessions = size * SESSIONS_PER_MEBIBYTE >> 20
        if sessions / seconds < FEWEST_PER_SECOND:
            told.add(line)
            yield Hit(
                line,
                f"{sessions} sessions have room, and each is to stay for {seconds / 3600:.3g} "
                f"hours: one new client in {seconds / max(1, sessions):.0f} s fills it",
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
    why="A megabyte holds about 4000 sessions. When it is full each new one drops the oldest, "
    "whatever ssl_session_timeout says: clients who come back do a whole handshake.",
    fix="A larger cache (10m holds 40000), or a shorter ssl_session_timeout.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_session_cache",
        "nginx: src/event/ngx_event_openssl.c, ngx_ssl_new_session",
    ),
    proof="source-only",
    about="Told where fewer than one new session in ten seconds fills it. Silent with tickets, "
    "which are on by default: with them a session lies with the client.",
    bad=Example(_CONF % "1m"),
    good=Example(_CONF % "10m"),
    check=check,
)
