from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Unbuffered request bodies where another server is meant to take over."""
    reported: set[Directive] = set()
    for passed in context.passes:
        line = passed.effective("request_buffering")
        if line is None or line.value.lower() != "off" or line in reported:
            continue
        servers = _servers(context, passed)
        if servers > 1 and _retries_bodies(_retry_conditions(passed), context.profile):
            reported.add(line)
            yield Hit(
                line,
                "once part of the body has been sent, no other server is tried",
                [written(line), counted("servers", servers)],
            )


def _servers(context: Context, passed: Pass) -> int:
    upstreams = [context.upstreams[name] for name in passed.addresses if name in context.upstreams]
    return max((len(upstream.peers) for upstream in upstreams), default=1)


def _retries_bodies(conditions: tuple[str, ...], profile: str) -> bool:
    """True if nginx would send a body to another server.

    Unless ``non_idempotent`` is set, nginx sends POST and PATCH only once
    (ngx_http_upstream_test_next). Most bodies come with these methods. That leaves PUT, which only
    the profile strict considers.
    """
    return "off" not in conditions and ("non_idempotent" in conditions or profile == "strict")


def _retry_conditions(passed: Pass) -> tuple[str, ...]:
    line = passed.effective("next_upstream")
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
    title="unbuffered requests cannot be retried on another server",
    why="A body that is passed on as it arrives is not stored. If the server fails in the middle "
    "of it, the client gets 502 although others could answer. A slow upload also occupies the "
    "server for its whole duration.",
    fix="Keep request buffering on where retries matter, or turn retries off explicitly: "
    "proxy_next_upstream off;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_request_buffering",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_next",
    ),
    proof="source-only",
    since="1.7.11",
    about="Without non_idempotent in proxy_next_upstream a POST or PATCH goes to one server only, "
    "buffered or not; the line is then reported only in the profile strict. For an upstream that "
    "nginx speaks HTTP/1.0 with (the default before nginx 1.29.7) a chunked body is buffered "
    "anyway, because its length must be known.",
    bad=Example(_CONF % "error timeout non_idempotent"),
    good=Example(_CONF % "error timeout"),
    check=check,
)
