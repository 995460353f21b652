"""``ca-authorization-cached``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.served import Caching
from nginx_tune.conf.upstreams import sent_header
from nginx_tune.conf.variables import variables_of


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that keep answers to requests with Authorization, where such requests come."""
    told: set[Directive] = set()
    for one in context.caching:
        if one.place in told or _is_apart(one) or _is_guarded(one.passed.scope):
            continue
        expected = _expected(one)
        keeps = _keeps(one)
        if expected is None or keeps is None:
            continue
        told.add(one.place)
        module = one.passed.module
        ignored = one.passed.effective("ignore_headers")
        is_forced = ignored is not None and "cache-control" in map(str.lower, ignored.args)
        unless = "though its server says private" if is_forced else "unless its server forbids it"
        yield Hit(
            one.place,
            f"requests come with Authorization, the answer to one is kept {unless}, and who "
            "asks for the same address gets it, with other credentials or with none",
            [
                written(one.place),
                written(expected),
                written(keeps),
                default(f"{module}_no_cache $http_authorization", "none"),
            ],
            fix=f"{module}_no_cache $http_authorization; and "
            f"{module}_cache_bypass $http_authorization; beside it.",
            severity=None if is_forced else "warning",
        )


def _expected(one: Caching) -> Directive | None:
    """The line that shows that clients send the header and that it is passed on."""
    scope = one.passed.scope
    module = one.passed.module
    if scope.value(f"{module}_pass_request_headers") == "off":
        return None
    for line in scope.effective_all("fastcgi_param") if module == "fastcgi" else ():
        if line.value == "HTTP_AUTHORIZATION":
            return line if _names_it(line.args[1:]) else None
    sent = sent_header(scope, module, "authorization") if module == "proxy" else None
    if sent is not None:
        return sent if _names_it(sent.args[1:]) else None
    for line in scope.effective_all("add_header"):
        words = " ".join(line.args[1:]).lower().replace(",", " ").split()
        if line.value.lower() == "access-control-allow-headers" and "authorization" in words:
            return line
    return None


def _names_it(values: Sequence[str]) -> bool:
    return "http_authorization" in variables_of(" ".join(values))


def _keeps(one: Caching) -> Directive | None:
    """The line by which pages are kept without a word from their server."""
    for line in one.passed.scope.effective_all(f"{one.passed.module}_cache_valid"):
        codes = set(line.args[:-1])
        if line.args and line.args[-1] not in {"0", "0s"} and (
            not codes or codes & {"any", "200"}
        ):  # fmt: skip
            return line
    return None


def _is_apart(one: Caching) -> bool:
    """True if the key tells clients apart, or their answers are not kept; true in doubt."""
    key = one.passed.effective("cache_key")
    not_kept = one.passed.scope.effective_all(f"{one.passed.module}_no_cache")
    in_key = variables_of("" if key is None else " ".join(key.args))
    unkept = variables_of(" ".join(value for line in not_kept for value in line.args))
    named = {"http_authorization", "remote_user"}
    is_told = any(name in named or not _is_built_in(name) for name in in_key | unkept)
    by_cookie = any(name.startswith(("cookie_", "http_cookie")) for name in in_key)
    # The server itself may say which answers are not to be kept.
    by_server = any(name.startswith(("upstream_", "sent_")) for name in unkept)
    return is_told or by_cookie or by_server


def _is_built_in(name: str) -> bool:
    """True if nginx itself makes the variable, of something else than credentials."""
    return name in _BUILT_IN or name.startswith(
        ("arg_", "cookie_", "http_", "sent_http_", "upstream_")
    )


_BUILT_IN = frozenset({
    "scheme", "proxy_host", "proxy_port", "host", "server_name", "server_port", "https",
    "ssl_server_name", "request_uri", "uri", "document_uri", "args", "is_args", "query_string",
    "request_method", "request_body", "request", "content_type", "slice_range", "status",
})  # fmt: skip


def _is_guarded(scope: Scope) -> bool:
    """True if nginx itself asks who it is: the header may then be for it alone."""
    return scope.value("auth_basic", "off") != "off" or scope.value("auth_request", "off") != "off"


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    server {
        listen 80;
        location /api/ {
            proxy_pass http://127.0.0.1:81;
            proxy_set_header Authorization $http_authorization;
            proxy_cache c;
            proxy_cache_lock on;
            proxy_cache_valid 200 1m;
            proxy_ignore_headers Cache-Control Expires;
            %s
        }
    }
}
"""

RULE = Rule(
    id="ca-authorization-cached",
    severity="error",
    title="what one user may see is served to others from the cache",
    why="A shared cache must not keep the answer to a request with Authorization unless the "
    "answer allows it (RFC 9111, section 3.5). nginx does not look at that header: with "
    "proxy_cache_valid it keeps such an answer like any other, and its key does not hold the "
    "credentials.",
    fix="proxy_no_cache $http_authorization; and proxy_cache_bypass $http_authorization; beside "
    "it. With proxy_cache_bypass alone the answer is still kept, and served to who sends none.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_no_cache",
        "RFC 9111, section 3.5: storing responses to authenticated requests",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_send_response",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="It speaks where the configuration shows that such requests come: it sends the header "
    "on by name, or lets pages of other origins send it (Access-Control-Allow-Headers). Where "
    "nginx itself asks for a password (auth_basic, auth_request), all who are let in may be meant "
    "to see the same, and nothing is said; nor where the key, or proxy_no_cache, has a variable "
    "that the configuration itself defines. A warning where the server can still forbid it by "
    "Cache-Control. A server that sends Vary: Authorization keeps users apart by itself.",
    seen="With an origin that answers by Authorization, the second user got the first one's answer "
    "(HIT), and so did who sent no credentials; with proxy_cache_bypass alone the latter still.",
    bad=Example(_CONF % ""),
    good=Example(
        _CONF % "proxy_no_cache $http_authorization; proxy_cache_bypass $http_authorization;"
    ),
    check=check,
)
