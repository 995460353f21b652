"""``ls-quic-not-announced``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import is_front
from nginx_tune.conf.scopes import Scope


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Addresses that speak HTTP/3 and tell no browser."""
    if not any(one.is_quic for one in context.listeners):
        return
    answering = _announcing(context.scopes)
    told = _refusing(context.scopes)
    for listener in context.listeners:
        if listener.is_quic and not answering & set(listener.servers):
            lines = zip(listener.lines, listener.servers, strict=True)
            found = next(((line, server) for line, server in lines if server not in told), None)
            if found is not None:
                told.add(found[1])
                yield Hit(
                    found[0], "no answer says that HTTP/3 can be had here", [written(found[0])]
                )


def _refusing(scopes: list[Scope]) -> set[Directive]:
    """The servers that answer with errors or not at all: nobody need come to them sooner.

    A ``return`` of the server itself is before its locations (ngx_http_rewrite_handler).
    """
    whole = {scope.server for scope in scopes if scope.kind == "server" and _is_refused(scope)}
    locations = [scope for scope in scopes if scope.kind == "location"]
    answering = {scope.server for scope in locations if not _is_refused(scope)}
    fronts = {scope.server for scope in locations if is_front(scope)}
    return whole | (fronts - answering)


def _is_refused(scope: Scope) -> bool:
    line = (scope.own.block or Block([])).first("return")
    return line is not None and line.value.isdigit() and int(line.value) >= _FIRST_ERROR


_FIRST_ERROR = 400


def _announcing(scopes: list[Scope]) -> set[Directive]:
    """The servers of which some answer carries Alt-Svc."""
    return {
        scope.server
        for scope in scopes
        for name in ("add_header", "more_set_headers", "proxy_pass_header")
        for line in scope.effective_all(name)
        if any("alt-svc" in word.lower() for word in line.args)
    }


_CONF = """
events { }
http { server { listen 443 quic reuseport; listen 443 ssl; %s root /srv/www; } }
"""

RULE = Rule(
    id="ls-quic-not-announced",
    severity="advice",
    title="HTTP/3 is offered and not announced",
    why="A browser begins with TCP and goes over to HTTP/3 when an answer says so (Alt-Svc) or "
    "the name has a DNS record of type HTTPS. nginx sends no such header by itself, so without "
    "either nobody ever comes over QUIC.",
    fix="add_header Alt-Svc 'h3=\":443\"; ma=86400' always; in the server, and again in each "
    "location with an add_header of its own; nothing where DNS has an HTTPS record with alpn=h3.",
    sources=(
        "https://nginx.org/en/docs/quic.html",
        "RFC 9114, 3.1.1; RFC 7838; RFC 9460",
    ),
    proof="proven",
    proven_on=("1.26", "1.30"),
    about="One server of the address that announces it is enough, and servers that close the "
    "connection without an answer (return 444) are passed over.",
    since="1.25.0",
    by_absence=True,
    within=frozenset({"server"}),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "add_header Alt-Svc 'h3=\":443\"; ma=86400';"),
    check=check,
)
