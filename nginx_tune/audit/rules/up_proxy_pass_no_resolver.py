"""``up-proxy-pass-no-resolver``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, host_of, is_ipv4, is_to_be_named, is_unix
from nginx_tune.conf.values import is_placeholder
from nginx_tune.conf.variables import AN_ADDRESS, VARIABLE, captured, variables_of


class _Server(NamedTuple):
    """Whom a URL names, once its variables have their values."""

    host: str
    port: str
    """Empty where there is none, ``?`` where it is not known."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers that are looked up for each request, with nobody to ask."""
    if not any(one.has_variables for one in context.passes):
        return
    told: set[Directive] = set()
    literal = {
        (server.host, server.port or ("443" if one.is_tls else "80"))
        for one in context.passes
        if not one.has_variables
        for server in map(_server, one.addresses)
    }
    for one in context.passes:
        if not one.has_variables or one.place in told or one.scope.effective("resolver"):
            continue
        name = _unresolved(context, one, literal)
        if name:
            told.add(one.place)
            yield Hit(
                one.place,
                f"the server is looked up for each request, {name} cannot be: no resolver",
                [written(one.place), default("resolver", "none")],
            )


def _unresolved(context: Context, one: Pass, literal: Collection[tuple[str, str]]) -> str:
    """A name that must be looked up; empty where there is none."""
    authority = _authority(one.place.value)
    host = _host_text(authority)
    if is_placeholder(host) or is_unix(authority) or host.startswith("["):
        return ""
    known = context.variables.possible(authority, one.scope)
    if known.complete:
        servers = list(map(_server, known.known))
    else:
        given = {**dict.fromkeys(_ADDRESSES, (AN_ADDRESS,)), **captured(one.scope)}
        known = context.variables.possible(host, one.scope, given)
        port = "" if host == authority else "?"
        found = map(_server, known.known)
        servers = [server if server.port else server._replace(port=port) for server in found]
        servers = [server for server in servers if not _NUMBERS.fullmatch(server.host)]
    for server in sorted(servers):
        if _is_looked_up(context, server, literal):
            return f'"{server.host}"'
    if known.complete or known.known or _is_answered(context, host):
        return ""
    if _NUMBERS.fullmatch(VARIABLE.sub("", host)):
        return ""  # part of an address
    others = ", if it is no upstream's," if context.upstreams else ""
    return f"a name that a request brings{others}"


def _is_looked_up(context: Context, server: _Server, literal: Collection[tuple[str, str]]) -> bool:
    """True if a server is neither an address, nor an upstream, nor one that another line names.

    Source: ngx_http_upstream_init_request. A group with ``upstream`` is found where the URL has no
    port; what a line without variables passes to is a group of its own, with its port.
    """
    host, port = server
    if not host or is_to_be_named(host) or host.startswith("[") or is_ipv4(host):
        return False
    if not port and host in context.upstreams:
        return False
    if port == "?":
        return all(host != name for name, _ in literal)
    ports = {port} if port else {"80", "443"}
    return all((host, one) not in literal for one in ports)


def _is_answered(context: Context, host: str) -> bool:
    """True if a server or a script gives the name: it may give addresses alone."""
    used = variables_of(host)
    if any(name.startswith(_OF_ANSWERS) for name in used):
        return True
    makers = (
        line
        for kind, lines in context.kinds.items()
        if kind.name in _BY_OTHERS or kind.name.startswith("set_by_")
        for line in lines
    )
    return any(line.value.lstrip("$").lower() in used for line in makers)


_OF_ANSWERS = ("upstream_", "sent_")
_BY_OTHERS = frozenset({"auth_request_set", "js_set", "js_var", "perl_set", "keyval"})
_ADDRESSES = (
    "server_addr", "remote_addr", "realip_remote_addr", "proxy_protocol_addr",
    "proxy_protocol_server_addr",
)  # fmt: skip
"""Variables that hold an address, if anything."""
_NUMBERS = re.compile(r"[0-9]+\.[0-9.]*|\.[0-9][0-9.]*")
_BEHIND = re.compile(r"[/?#]|\$\{?(?:request_uri|uri|document_uri|is_args)\b")
"""The end of the host and port of a URL (ngx_parse_inet_url)."""


def _authority(url: str) -> str:
    """Host and port of a URL, as they are written."""
    _, scheme, rest = url.rpartition("://")
    text = rest if scheme else url
    return text if is_unix(text) else _BEHIND.split(text, maxsplit=1)[0]


def _host_text(authority: str) -> str:
    return authority if authority.startswith("[") else authority.partition(":")[0]


def _server(url: str) -> _Server:
    """The server of a URL without variables."""
    address = _authority(url)
    host = host_of(address)
    return _Server(host, "" if is_unix(address) else address[len(host) :].removeprefix(":"))


_CONF = """
events {}
http { %sserver { listen 80; location / {
    set $backend app.example.com;
    proxy_pass http://$backend;
} } }
"""

RULE = Rule(
    id="up-proxy-pass-no-resolver",
    severity="error",
    title="a server is chosen by a variable and no resolver is set",
    why="A request whose server comes out as a name, and not as an address or an upstream, is "
    'answered with 502: "no resolver defined to resolve NAME". nginx -t accepts it, since the '
    "name is known at the request only.",
    fix="resolver ADDRESS valid=30s; in http, with the address of a name server that this host may "
    "ask (127.0.0.53 for systemd-resolved); or name an upstream.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#resolver",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_init_request",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Any variable in the line, in the path too, puts the lookup off to the request, of "
    "localhost as well. Silent where every host that is known is an address (whatever the port), "
    "an upstream of the configuration or, with its port, the server of a line without variables; "
    "where the host is part of an address or a variable that holds one, such as $server_addr; and "
    "where another server's answer, a script or a key-value zone gives it. An upstream is found "
    "by its name alone: with a port behind it, it is a name to look up.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "resolver 127.0.0.53; "),
    check=check,
)
