"""``ca-key-without-host``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import WHOLE_TREE, Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.served import Caching
from nginx_tune.conf.upstreams import sent_header
from nginx_tune.conf.variables import variables_of

_DEFAULT_KEY = "$scheme$proxy_host$request_uri"
"""The default key of ``proxy_cache``; the other modules have none."""
_ANY = "any name is served"
_FIX_OF_ONE_SITE = (
    "A server of its own for unknown names (listen 80 default_server; return 444;), or "
    "proxy_cache_key $scheme$host$request_uri; (what is cached is fetched once more). Neither "
    "where the application refuses hosts that it does not know."
)
_HOSTS = frozenset({
    "host", "http_host", "server_name", "ssl_server_name", "http_x_forwarded_host",
})  # fmt: skip
"""Variables that differ between the hosts that a client may ask for."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that keep the responses of several hosts under one key."""
    told: set[Directive] = set()
    for one in context.caching:
        if one.place in told or one.passed.module != "proxy":
            continue
        host = sent_header(one.passed.scope, "proxy", "host")
        if host is None or not variables_of(host.args[1]) & _HOSTS or _is_in_key(one):
            continue
        several = _several_hosts(context, one)
        is_of_one_site = several in (None, _ANY)
        own = context.default_address(one.passed.scope.server)
        if several is None and own is not None:
            if context.tree.is_part:  # of which another file may have the first server
                yield MissingFacts((WHOLE_TREE,))
                continue
            several = (
                f"its server takes requests for unknown names as well (the default server of {own})"
            )
        if several is None:
            continue
        told.add(one.place)
        key = one.passed.effective("cache_key")
        yield Hit(
            one.place,
            f"the key of this cache has no host, the server is told which is asked for, and "
            f"{several}: one host's pages are served to another",
            [
                written(one.place),
                default("proxy_cache_key", _DEFAULT_KEY) if key is None else written(key),
                written(host),
            ],
            fix=_FIX_OF_ONE_SITE if is_of_one_site else "",
            severity="advice" if is_of_one_site else None,
        )


def _is_in_key(one: Caching) -> bool:
    """True if the key tells hosts apart, through the name of the server passed to as well."""
    key = one.passed.effective("cache_key")
    found = variables_of(_DEFAULT_KEY if key is None else " ".join(key.args))
    if "proxy_host" in found:
        found = found | variables_of(one.passed.place.value)
    unknown = found - _HOSTS - _KNOWN
    # What a map or set makes of a host tells hosts apart too; it is not followed.
    return bool(found & _HOSTS) or any(not _is_built_in(name) for name in unknown)


_KNOWN = frozenset({
    "scheme", "proxy_host", "proxy_port", "request_uri", "uri", "document_uri", "args", "is_args",
    "query_string", "request_method", "slice_range", "request_body", "server_port", "request",
    "content_type",
})  # fmt: skip


def _is_built_in(name: str) -> bool:
    return name.startswith(("arg_", "cookie_", "http_", "sent_http_", "upstream_"))


def _several_hosts(context: Context, one: Caching) -> str | None:
    """The reason why requests for several hosts come here; null when only those for one do."""
    names = _names(one.passed.scope)
    if len(names) > 1:
        return f"{len(names)} names are served"
    if not names or names[0] in {"_", ""} or names[0].startswith(("~", "*", ".")):
        return _ANY
    used = {
        tuple(_names(other.passed.scope))
        for other in context.caching
        if other.place.value == one.place.value
        and other.passed.place.value == one.passed.place.value
        and "$" not in one.place.value
    }
    if len(used) > 1:
        return f"{len(used)} servers share it"
    return None


def _names(scope: Scope) -> list[str]:
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
    title="a cache serves one host's pages to another",
    why="nginx's own key is $scheme$proxy_host$request_uri, and $proxy_host is the name in "
    "proxy_pass, the same for every host. With the client's Host passed on, what the server "
    "answers for one host is kept and served for all: also what it answers to a name that an "
    "attacker chose.",
    fix="proxy_cache_key $scheme$host$request_uri; (what is cached is fetched once more).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_key",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_create_key",
        "RFC 9111, section 2: the cache key is at least the method and the target URI",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Advice where one site is served, and only names that nobody gave it could be another "
    "(many applications refuse these). A key with a variable that the configuration itself "
    "defines is taken to tell hosts apart. A server that answers the same to every host loses "
    "nothing by a host in the key but room: each host then has its own copies.",
    seen="With an origin that answers by Host, the second host got the first one's "
    "page (HIT), and so did a host that no server_name lists.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_key $scheme$host$request_uri;"),
    check=check,
)
