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
    """The server that a URL names once its variables have values."""

    host: str
    port: str
    """The port; empty if there is none, ``?`` if it is not known."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Names that must be resolved for each request, without a resolver."""
    if not any(one.has_variables for one in context.passes):
        return
    reported: set[Directive] = set()
    literal = {
        (server.host, server.port or ("443" if one.is_tls else "80"))
        for one in context.passes
        if not one.has_variables
        for server in map(_server, one.addresses)
    }
    for passed in context.passes:
        if (
            not passed.has_variables
            or passed.place in reported
            or passed.scope.effective("resolver")
        ):
            continue
        name = _unresolved(context, passed, literal)
        if name:
            reported.add(passed.place)
            yield Hit(
                passed.place,
                f"{name} is resolved per request, but no resolver is set",
                [written(passed.place), default("resolver", "none")],
            )


def _unresolved(context: Context, passed: Pass, literal: Collection[tuple[str, str]]) -> str:
    """A name that must be resolved; empty if there is none."""
    authority = authority_of(passed.place.value)
    host = _host_text(authority)
    if is_placeholder(host) or is_unix(authority) or host.startswith("["):
        return ""
    known = context.variables.possible(authority, passed.scope)
    if known.complete:
        servers = list(map(_server, known.known))
    else:
        given = {**dict.fromkeys(_ADDRESSES, (AN_ADDRESS,)), **captured(passed.scope)}
        known = context.variables.possible(host, passed.scope, given)
        port = "" if host == authority else "?"
        found = map(_server, known.known)
        servers = [server if server.port else server._replace(port=port) for server in found]
        servers = [server for server in servers if not _NUMBERS.fullmatch(server.host)]
    for server in sorted(servers):
        if _is_looked_up(context, server, literal):
            return f'"{server.host}"'
    if known.complete or known.known or _comes_from_response(context, host):
        return ""
    if _NUMBERS.fullmatch(VARIABLE.sub("", host)):
        return ""  # part of an address
    others = " that is not an upstream" if context.upstreams else ""
    return f"a name from the request{others}"


def _is_looked_up(context: Context, server: _Server, literal: Collection[tuple[str, str]]) -> bool:
    """True unless a server is an address, an upstream or the server of another line.

    Source: ngx_http_upstream_init_request. An ``upstream`` is found if the URL has no port; a line
    without variables creates an upstream of its own, with its port.
    """
    host, port = server
    if not host or is_to_be_named(host) or host.startswith("[") or is_ipv4(host):
        return False
    if not port and host in context.upstreams:
        return False
    if port == "?":
        return all(host != name for name, _ in literal)
    ports = {port} if port else {"80", "443"}
    return all((host, port) not in literal for port in ports)


def _comes_from_response(context: Context, host: str) -> bool:
    """True if an upstream response or a script sets the name: it may return only addresses."""
    used = variables_of(host)
    if any(name.startswith(_RESPONSE_PREFIXES) for name in used):
        return True
    makers = (
        line
        for kind, lines in context.kinds.items()
        if kind.name in _SCRIPTED or kind.name.startswith("set_by_")
        for line in lines
    )
    return any(line.value.lstrip("$").lower() in used for line in makers)


_RESPONSE_PREFIXES = ("upstream_", "sent_")
_SCRIPTED = frozenset({"auth_request_set", "js_set", "js_var", "perl_set", "keyval"})
_ADDRESSES = (
    "server_addr", "remote_addr", "realip_remote_addr", "proxy_protocol_addr",
    "proxy_protocol_server_addr",
)  # fmt: skip
"""Variables that hold an address or nothing."""
_NUMBERS = re.compile(r"[0-9]+\.[0-9.]*|\.[0-9][0-9.]*")
_AUTHORITY_END = re.compile(r"[/?#]|\$\{?(?:request_uri|uri|document_uri|is_args)\b")
"""The first character after the host and port of a URL (ngx_parse_inet_url)."""


def authority_of(url: str) -> str:
    """Host and port of a URL, as written."""
    _, scheme, rest = url.rpartition("://")
    text = rest if scheme else url
    return text if is_unix(text) else _AUTHORITY_END.split(text, maxsplit=1)[0]


def _host_text(authority: str) -> str:
    return authority if authority.startswith("[") else authority.partition(":")[0]


def _server(url: str) -> _Server:
    """The server of a URL without variables."""
    address = authority_of(url)
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
    title="an upstream by variable without a resolver",
    why="If the variable yields a name that is neither an address nor an upstream, the request "
    'gets 502: "no resolver defined to resolve NAME". nginx -t accepts it, because the name is '
    "known only at request time.",
    fix="Set resolver ADDRESS valid=30s; in http, with the address of a name server that this host "
    "may use (127.0.0.53 for systemd-resolved), or use the name of an upstream.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#resolver",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_init_request",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Any variable in the line, even in the path, postpones the lookup to the request, also "
    "for localhost. A line is not reported if every known host is an address (with any port), an "
    "upstream of the configuration or, with its port, the server of a line without variables. Nor "
    "is it reported if the host is part of an address or a variable that holds one, such as "
    "$server_addr, or comes from an upstream's response, a script or a key-value zone. nginx finds "
    "an upstream only by its bare name: a name with a port is resolved.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "resolver 127.0.0.53; "),
    check=check,
)
