"""``cache-key``: what tells the entries of a cache apart, and which answers are for nobody else.

The key holds the host as the client named it: nginx's own has the name of the upstream, and one
page for all hosts that pass requests to it. A port that clients name is in it too, and what a proxy
in front tells of host and scheme, since servers make links and redirects of them.

Who shows a password or a token gets an answer of his own: nginx does not look at ``Authorization``,
and would keep what comes with ``max-age`` for all, which a shared cache must not (RFC 9111, section
3.5). ``proxy_cache_bypass`` alone would still keep it, ``proxy_no_cache`` alone would answer such a
request from what others got.

A server that compresses its answers, as nginx does without ``gzip_vary``, does not always say that
others would get another one: the cache would give them what they cannot read. So it is asked for
plain answers where nginx compresses by itself, or each kind of client has an entry of its own.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.conf.listeners import has_usual_port
from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.site import Site, tls_listens

ID: Final = "cache-key"
KEY: Final = "$scheme$host$request_uri"
"""Of a request as its client sent it."""
_KEY_WITH_PORT: Final = "$scheme$host|$http_host|$server_port$request_uri"
"""The same where clients name a port: ``$host`` has none, and over HTTP/3 there is no
``$http_host``."""
_ENCODED: Final = "|$http_accept_encoding"
KEY_AMONG_OTHERS: Final = (
    "$scheme|$server_name:$server_port|$host|$http_host|$http_x_forwarded_proto"
    "|$http_x_forwarded_host|$proxy_host|$uri$is_args$args|$request_uri" + _ENCODED
)
"""The same in a configuration that answers one address in several ways: on other ports, by other
upstreams, by pages put together or led elsewhere, whose requests have the ``$request_uri`` of the
first. An address alone, as it was decoded, is none: ``%2F`` is no slash to every server. The host
of the request line need not be that of the header, and what a client or a proxy in front says of
both (``X-Forwarded-*``) nginx passes on as it is: servers make redirects and links of it."""
_VARY_SINCE = (1, 7, 7)
CREDENTIALS: Final = "$http_authorization"


def names_a_port(site: Site) -> bool:
    """Whether clients of a generated site have its port in their URLs, so in their ``Host``."""
    if site.listen == Site().listen:  # with TLS it becomes that of TLS
        return False
    encrypted = tls_listens(site.listen) if site.tls is not None else []
    return any(
        not has_usual_port(item.split()[0], is_tls=item in encrypted) for item in site.listen
    )


def key_of(site: Site) -> str:
    """The key of a generated site's cache, before what else an answer depends on."""
    return _KEY_WITH_PORT if names_a_port(site) else KEY


def decide_cache_key(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind != "cache":
        return not_applicable(ID, "Nothing is cached.")
    by_host = "each host has pages of its own: the Host header is passed on"
    by_cookie = (
        "a page that differs by a cookie is kept for all if its server lets it be: "
        "Cache-Control: private, or Vary, must come from there"
    )
    encoded = "a server that compresses may say no Vary: one answer for all who take it"
    own = "the answer to who shows a password or a token is for nobody else"
    # nginx compresses by itself what it keeps as it is; else each kind of client has an entry.
    key, plain = f"{key_of(s.site)}{_ENCODED}", []
    if s.site.gzip:
        key = key_of(s.site)
        plain = [setting(ID, "location", "proxy_set_header", "Accept-Encoding", "", reason=encoded)]
    return Decision(
        id=ID,
        verdict="set",
        summary="A page for each host and address; none for requests with Authorization.",
        settings=[
            setting(ID, "location", "proxy_cache_key", key, reason=by_host),
            *plain,
            setting(ID, "location", "proxy_cache_bypass", CREDENTIALS, reason=own),
            setting(ID, "location", "proxy_no_cache", CREDENTIALS, reason=own),
        ],
        confidence="high",
        flips_when=[
            "pages differ by a cookie or a header that their server does not name in Vary",
            "all who show credentials may see the same, as where nginx itself asks (auth_basic)",
        ],
        risks=[
            by_cookie,
            *([] if s.build.at_least(*_VARY_SINCE) else [f"nginx {s.build.text} ignores Vary"]),
        ],
    )
