from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import WHOLE_TREE, Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.served import Caching
from nginx_tune.conf.upstreams import sent_header
from nginx_tune.conf.variables import variables_of
from nginx_tune.documents.findings import Severity

_DEFAULT_KEY = "$scheme$proxy_host$request_uri"
"""The default key of ``proxy_cache``; the other modules have none."""
_ANY_NAME = "this server accepts any name"
_SINGLE_SITE: dict[str | None, Severity] = {_ANY_NAME: "advice", None: "info"}
"""Severity for a single site, by the reason why requests for other hosts arrive (None: they do
not)."""
_FIX_SINGLE_SITE = (
    "Add a server for unknown names (listen 80 default_server; return 444;), or set "
    "proxy_cache_key $scheme$host$request_uri; (every entry is then fetched again once). Neither "
    "is "
    "needed if the application rejects unknown hosts."
)
_HOSTS = frozenset({
    "host", "http_host", "server_name", "ssl_server_name", "http_x_forwarded_host",
})  # fmt: skip
"""Variables that differ between the hosts that a client may request."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that store the responses for several hosts under one key."""
    reported: set[Directive] = set()
    for caching in context.caching:
        if caching.place in reported or caching.passed.module != "proxy":
            continue
        host = sent_header(caching.passed.scope, "proxy", "host")
        if host is None or not variables_of(host.args[1]) & _HOSTS or _separates_hosts(caching):
            continue
        reason = _why_several_hosts(context, caching)
        severity = _SINGLE_SITE.get(reason)
        default_address = context.default_address(caching.passed.scope.server)
        if reason is None and default_address is not None:
            if context.tree.is_part:  # another file may have the default server
                yield MissingFacts((WHOLE_TREE,))
                continue
            reason = "this server also answers for unknown names (it is the default server of "
            f"{default_address})"
        if reason is None:
            continue
        reported.add(caching.place)
        key = caching.passed.effective("cache_key")
        yield Hit(
            caching.place,
            "the cache key lacks the host, although the host is passed to the upstream and "
            f"{reason}: one host's pages can be served for another",
            [
                written(caching.place),
                default("proxy_cache_key", _DEFAULT_KEY) if key is None else written(key),
                written(host),
            ],
            fix=_FIX_SINGLE_SITE if severity else "",
            severity=severity,
        )


def _separates_hosts(caching: Caching) -> bool:
    """True if the key depends on the host, directly or through the address in ``proxy_pass``."""
    key = caching.passed.effective("cache_key")
    names = variables_of(_DEFAULT_KEY if key is None else " ".join(key.args))
    if "proxy_host" in names:
        names = names | variables_of(caching.passed.place.value)
    unknown = names - _HOSTS - _KNOWN
    # A variable of a map or set may depend on the host; it is not followed.
    return bool(names & _HOSTS) or any(not _is_built_in(name) for name in unknown)


_KNOWN = frozenset({
    "scheme", "proxy_host", "proxy_port", "request_uri", "uri", "document_uri", "args", "is_args",
    "query_string", "request_method", "slice_range", "request_body", "server_port", "request",
    "content_type",
})  # fmt: skip


def _is_built_in(name: str) -> bool:
    return name.startswith(("arg_", "cookie_", "http_", "sent_http_", "upstream_"))


def _why_several_hosts(context: Context, caching: Caching) -> str | None:
    """The reason why requests for several hosts arrive here; None if all are for one host."""
    names = _server_names(caching.passed.scope)
    if len(names) > 1:
        return f"this server has {len(names)} names"
    if not names or names[0] in {"_", ""} or names[0].startswith(("~", "*", ".")):
        return _ANY_NAME
    served = {
        tuple(_server_names(other.passed.scope))
        for other in context.caching
        if other.place.value == caching.place.value
        and other.passed.place.value == caching.passed.place.value
        and "$" not in caching.place.value
    }
    if len(served) > 1:
        return f"{len(served)} servers share the cache"
    return None


def _server_names(scope: Scope) -> list[str]:
    return [name for line in (scope.server.block or ()) if line.name == "server_name"
            for name in line.args]  # fmt: skip


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    server {
        listen 80;
        server_name a.example.com b.example.com;
        location / {
            proxy_pass http://10.0.0.1;
            proxy_set_header Host $host;
            proxy_cache c;
            %s
        }
    }
}
"""

RULE = Rule(
    id="ca-key-without-host",
    severity="error",
    title="the cache serves one host's pages for another",
    why="nginx's default key is $scheme$proxy_host$request_uri, and $proxy_host is the name in "
    "proxy_pass, which is the same for every host. If the client's Host header is passed on, the "
    "response for one host is stored and served for all of them, including a response to a name "
    "that an attacker chose.",
    fix="Set proxy_cache_key $scheme$host$request_uri; (every entry is then fetched again once).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_key",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_create_key",
        "RFC 9111, section 2: the cache key is at least the method and the target URI",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Advice where a server is for any name, and information where a server of one name also "
    "answers for unknown ones: other hosts are then made-up names, which many applications "
    "reject. A key with a variable that the configuration defines is assumed to separate hosts."
    " If the upstream answers every host alike, the host in the key costs only space: each host"
    " has its own copies.",
    seen="With an origin whose response depends on Host, the second host got the first host's page "
    "(HIT), and so did a host that no server_name lists.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_key $scheme$host$request_uri;"),
    check=check,
)
