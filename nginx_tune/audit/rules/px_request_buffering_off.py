"""``px-request-buffering-off``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Unbuffered request bodies where another server is meant to take over."""
    told: set[Directive] = set()
    for one in context.passes:
        line = one.effective("request_buffering")
        if line is None or line.value.lower() != "off" or line in told:
            continue
        servers = _servers(context, one)
        if servers > 1 and _goes_on(_next(one), context.profile):
            told.add(line)
            yield Hit(
                line,
                "once a part of the body is sent, no other server is tried",
                [written(line), counted("servers", servers)],
            )


def _servers(context: Context, one: Pass) -> int:
    found = [context.upstreams[name] for name in one.addresses if name in context.upstreams]
    return max((len(upstream.peers) for upstream in found), default=1)


def _goes_on(conditions: tuple[str, ...], profile: str) -> bool:
    """True if another server would be asked with a body.

    POST and PATCH, which most bodies come with, are sent once only unless ``non_idempotent`` says
    otherwise (ngx_http_upstream_test_next): a PUT is left, and told of in the strict profile.
    """
    return "off" not in conditions and ("non_idempotent" in conditions or profile == "strict")


def _next(one: Pass) -> tuple[str, ...]:
    line = one.effective("next_upstream")
    return ("error", "timeout") if line is None else line.args


_CONF = """
events {}
http {
    upstream app { server 10.0.0.1; server 10.0.0.2; }
    server { location /upload/ {
        proxy_pass http://app; proxy_http_version 1.1; proxy_request_buffering off;
        proxy_next_upstream %s;
    } }
}
"""

RULE = Rule(
    id="px-request-buffering-off",
    severity="info",
    title="unbuffered requests cannot go to another server",
    why="A body that is passed on as it comes is kept nowhere. When the server fails in the "
    "middle of it the client gets 502, though others could answer. A slow upload also holds the "
    "server for as long as it lasts.",
    fix="Leave request buffering on where retries matter, or say that there are none: "
    "proxy_next_upstream off;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_request_buffering",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_next",
    ),
    proof="source-only",
    since="1.7.11",
    about="Without non_idempotent in proxy_next_upstream a POST or PATCH goes to one server only, "
    "whether it is buffered or not: then the line is spoken of in the strict profile alone. To a "
    "server that is spoken to in HTTP/1.0 (the default before nginx 1.29.7) a chunked "
    "body is buffered all the same, since its length must be known.",
    bad=Example(_CONF % "error timeout non_idempotent"),
    good=Example(_CONF % "error timeout"),
    check=check,
)
