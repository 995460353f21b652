from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import is_front
from nginx_tune.conf.scopes import Scope


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Addresses with HTTP/3 that no response announces."""
    if not any(address.is_quic for address in context.listeners):
        return
    announcing = _announcing_servers(context.scopes)
    skipped = _rejecting_servers(context.scopes)
    over_tcp = {
        server
        for listener in context.listeners
        if listener.is_tls and not listener.is_quic
        for server in listener.servers
    }
    named, announced = _names(over_tcp), _names(over_tcp & announcing)
    for listener in context.listeners:
        if not listener.is_quic or announcing & set(listener.servers):
            continue
        for line, server in zip(listener.lines, listener.servers, strict=True):
            names = _names({server})
            is_asked_over_tcp = server in over_tcp or names & named
            if server not in skipped and is_asked_over_tcp and not names & announced:
                skipped.add(server)
                yield Hit(line, "no response announces HTTP/3 (Alt-Svc)", [written(line)])
                break


def _names(servers: set[Directive]) -> set[str]:
    lines = (line for one in servers for line in (one.block or Block([])).all("server_name"))
    return {name.lower() for line in lines for name in line.args}


def _rejecting_servers(scopes: list[Scope]) -> set[Directive]:
    """Servers that answer only with errors or not at all, so that HTTP/3 does not matter.

    A ``return`` of the server itself runs before its locations (ngx_http_rewrite_handler).
    """
    whole = {scope.server for scope in scopes if scope.kind == "server" and _rejects(scope)}
    locations = [scope for scope in scopes if scope.kind == "location"]
    answering = {scope.server for scope in locations if not _rejects(scope)}
    fronts = {scope.server for scope in locations if is_front(scope)}
    return whole | (fronts - answering)


def _rejects(scope: Scope) -> bool:
    line = (scope.own.block or Block([])).first("return")
    return line is not None and line.value.isdigit() and int(line.value) >= _FIRST_ERROR


_FIRST_ERROR = 400


def _announcing_servers(scopes: list[Scope]) -> set[Directive]:
    """Servers with some response that carries Alt-Svc."""
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
    title="HTTP/3 is available but not announced",
    why="A browser starts with TCP and switches to HTTP/3 when a response announces it (Alt-Svc) "
    "or the name has an HTTPS record in DNS. nginx sends no such header by default, so without "
    "either nobody connects over QUIC.",
    fix="Add add_header Alt-Svc 'h3=\":443\"; ma=86400' always; to the server that listens with "
    "ssl, and again to each location with its own add_header. Nothing is needed if DNS has an "
    "HTTPS record with alpn=h3.",
    sources=("https://nginx.org/en/docs/quic.html", "RFC 9114, 3.1.1; RFC 7838; RFC 9460"),
    proof="proven",
    proven_on=("1.26", "1.30"),
    about="A browser learns of HTTP/3 over TCP: a server counts if it, or another of the same "
    "name, listens with ssl. One announcing server per address is enough, and servers that close "
    "the connection without a response (return 444) are skipped.",
    since="1.25.0",
    by_absence=True,
    within=frozenset({"server"}),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "add_header Alt-Svc 'h3=\":443\"; ma=86400';"),
    check=check,
)
