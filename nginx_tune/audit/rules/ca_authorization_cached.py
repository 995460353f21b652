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
    """Caches that store responses to requests with credentials."""
    reported: set[Directive] = set()
    for caching in context.caching:
        if (
            caching.place in reported
            or _separates_users(caching)
            or _authenticates(caching.passed.scope)
        ):
            continue
        expected = _authorization_line(caching)
        keeps = _unconditional_validity(caching)
        if expected is None or keeps is None:
            continue
        reported.add(caching.place)
        module = caching.passed.module
        ignored = caching.passed.effective("ignore_headers")
        is_forced = ignored is not None and "cache-control" in map(str.lower, ignored.args)
        exception = (
            "even when the upstream sends Cache-Control: private"
            if is_forced
            else "unless the upstream forbids it"
        )
        yield Hit(
            caching.place,
            "requests here carry Authorization, and the cache key ignores it: a response is cached "
            f"{exception} and then served to any other user, logged in or not",
            [
                written(caching.place),
                written(expected),
                written(keeps),
                default(f"{module}_no_cache $http_authorization", "none"),
            ],
            fix=f"{module}_no_cache $http_authorization; and "
            f"{module}_cache_bypass $http_authorization; in the same block.",
            severity=None if is_forced else "warning",
        )


def _authorization_line(caching: Caching) -> Directive | None:
    """The line that shows that clients send Authorization and the upstream receives it."""
    scope = caching.passed.scope
    module = caching.passed.module
    if scope.value(f"{module}_pass_request_headers") == "off":
        return None
    for line in scope.effective_all("fastcgi_param") if module == "fastcgi" else ():
        if line.value == "HTTP_AUTHORIZATION":
            return line if _is_from_client(line.args[1:]) else None
    sent = sent_header(scope, module, "authorization") if module == "proxy" else None
    if sent is not None:
        return sent if _is_from_client(sent.args[1:]) else None
    for line in scope.effective_all("add_header"):
        words = " ".join(line.args[1:]).lower().replace(",", " ").split()
        if line.value.lower() == "access-control-allow-headers" and "authorization" in words:
            return line
    return None


def _is_from_client(values: Sequence[str]) -> bool:
    return "http_authorization" in variables_of(" ".join(values))


def _unconditional_validity(caching: Caching) -> Directive | None:
    """The ``cache_valid`` line that stores pages without the upstream's consent."""
    for line in caching.passed.scope.effective_all(f"{caching.passed.module}_cache_valid"):
        codes = set(line.args[:-1])
        if line.args and line.args[-1] not in {"0", "0s"} and (
            not codes or codes & {"any", "200"}
        ):  # fmt: skip
            return line
    return None


def _separates_users(caching: Caching) -> bool:
    """True if the key separates users, or their responses are not stored; true in doubt."""
    key = caching.passed.effective("cache_key")
    not_kept = caching.passed.scope.effective_all(f"{caching.passed.module}_no_cache")
    in_key = variables_of("" if key is None else " ".join(key.args))
    unkept = variables_of(" ".join(value for line in not_kept for value in line.args))
    named = {"http_authorization", "remote_user"}
    by_user = any(name in named or not _is_built_in(name) for name in in_key | unkept)
    by_cookie = any(name.startswith(("cookie_", "http_cookie")) for name in in_key)
    # The upstream may name the responses that must not be stored.
    by_server = any(name.startswith(("upstream_", "sent_")) for name in unkept)
    return by_user or by_cookie or by_server


def _is_built_in(name: str) -> bool:
    """True for a variable of nginx that does not hold credentials."""
    return name in _BUILT_IN or name.startswith(
        ("arg_", "cookie_", "http_", "sent_http_", "upstream_")
    )


_BUILT_IN = frozenset({
    "scheme", "proxy_host", "proxy_port", "host", "server_name", "server_port", "https",
    "ssl_server_name", "request_uri", "uri", "document_uri", "args", "is_args", "query_string",
    "request_method", "request_body", "request", "content_type", "slice_range", "status",
})  # fmt: skip


def _authenticates(scope: Scope) -> bool:
    """True if nginx checks credentials here: the header may be meant for nginx alone."""
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
    title="the cache can serve one user's response to another",
    why="A shared cache must not store the response to a request with Authorization unless the "
    "response allows it (RFC 9111, section 3.5). nginx ignores that header: with proxy_cache_valid "
    "it stores such a response like any other, and the default key does not include the "
    "credentials.",
    fix="Add proxy_no_cache $http_authorization; and proxy_cache_bypass $http_authorization; to "
    "the same block. With proxy_cache_bypass alone the response is still stored, and served to "
    "clients without credentials.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_no_cache",
        "RFC 9111, section 3.5: storing responses to authenticated requests",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_send_response",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Reported only where the configuration shows that such requests arrive: it passes the "
    "header on by name, or allows it from other origins (Access-Control-Allow-Headers). Not "
    "reported where nginx checks the password itself (auth_basic, auth_request), because all "
    "authenticated users may be meant to see the same page, nor where the key or proxy_no_cache "
    "uses a variable that the configuration defines. The finding is a warning where the upstream "
    "can still prevent caching with Cache-Control. An upstream that sends Vary: Authorization "
    "already keeps users apart.",
    seen="With an origin whose response depends on Authorization, the second user got the first "
    "user's response (HIT), and so did a client without credentials. With proxy_cache_bypass "
    "alone, only the client without credentials did.",
    bad=Example(_CONF % ""),
    good=Example(
        _CONF % "proxy_no_cache $http_authorization; proxy_cache_bypass $http_authorization;"
    ),
    check=check,
)
