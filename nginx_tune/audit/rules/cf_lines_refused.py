from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import HTTP_CONTEXTS, judges_names
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default, hit_at, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import Wildcards
from nginx_tune.conf.own_values import is_network
from nginx_tune.conf.patterns import pattern_fault, patterns_of
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.values import is_open, parse_count

_KEEPALIVE_OFF = (1, 29, 7)
"""The first release in which ``keepalive 0`` turns kept connections off."""
_CONNECTIONS = 512
"""nginx's default of ``worker_connections``."""
_WHOLE = 100
_GEO_WORDS = frozenset({"default", "ranges", "include", "proxy_recursive", "volatile"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Each kind of line or block that nginx rejects."""
    if context.tree.is_template or not judges_names(context):
        return
    for kind in (_patterns, _maps, _splits, _networks, _tls, _connections, _no_connections):
        yield from kind(context)


def _blocks(context: Context, name: str) -> Iterator[tuple[Directive, list[Directive]]]:
    """Each block of that name with its lines."""
    for block in context.lines_by_name.get(name, ()):
        if block.block is not None and block.args:
            yield block, list(block.block)


def _patterns(context: Context) -> Iterator[Hit]:
    """Regular expressions that no PCRE compiles. Source: ngx_regex_compile."""
    found = [
        (line, pattern)
        for kind, lines in context.kinds.items()
        if kind.context in HTTP_CONTEXTS
        for line in lines
        for pattern in patterns_of(kind.name, line.args)
    ]
    found += [
        (line, line.name[1:].removeprefix("*"))
        for _, lines in _blocks(context, "map")
        for line in lines
        if line.name.startswith("~")
    ]
    for line, pattern in found:
        if fault := pattern_fault(pattern):
            yield hit_at(line, f"the regular expression has {fault}")


def _maps(context: Context) -> Iterator[Hit]:
    """Second defaults of a map. Source: ngx_http_map."""
    for _, lines in _blocks(context, "map"):
        defaults = [line for line in lines if line.name == "default" and line.args]
        for line in defaults[1:]:
            first = defaults[0]
            message = f"this map already has a default at {first.file}:{first.line}"
            yield Hit(line, message, [written(first)])


def _splits(context: Context) -> Iterator[Hit]:
    """Shares of split_clients that add up to more than the whole.

    Source: ngx_conf_split_clients_block.
    """
    for block, lines in _blocks(context, "split_clients"):
        shares = [_share(line.name) for line in lines if line.name.endswith("%")]
        total = sum((share for share in shares if share is not None), Decimal())
        if None not in shares and total > _WHOLE:
            message = "the shares of this split add up to more than the whole"
            yield Hit(
                block, message, [counted("sum of the shares", float(total / _WHOLE), "ratio")]
            )


def _share(text: str) -> Decimal | None:
    try:
        return Decimal(text.removesuffix("%"))
    except InvalidOperation:
        return None


def _networks(context: Context) -> Iterator[Hit]:
    """Lines of a geo block that are no network. Source: ngx_http_geo_cidr_value."""
    for block, lines in _blocks(context, "geo"):
        if any(line.name == "ranges" for line in lines) or is_open(block.args[-1].lstrip("$")):
            continue
        for line in lines:
            text = line.value if line.name in {"proxy", "delete"} else line.name
            if line.name not in _GEO_WORDS and not is_open(text) and not is_network(text):
                yield hit_at(line, f'"{text}" is no address or network, such as 10.0.0.0/8')


def _tls(context: Context) -> Iterator[Hit]:
    """Servers of a TLS address without a certificate. Source: ngx_http_ssl_init."""
    reported: set[Directive] = set()
    for listener in context.tls_listeners:
        first = listener.default
        if first.effective("ssl_certificate") is not None:
            continue
        rejects = _rejects(first)
        without = [first] if not rejects else [
            scope for scope in listener.servers
            if scope.effective("ssl_certificate") is None and not _rejects(scope)
        ]  # fmt: skip
        for scope in without:
            places = zip(listener.listener.lines, listener.listener.servers, strict=True)
            place = next((line for line, server in places if server is scope.server), None)
            if place is not None and place not in reported:
                reported.add(place)
                message = f"{listener.listener.address} has TLS, and this server no certificate"
                yield Hit(place, message, [written(place), default("ssl_certificate", "none")])


def _rejects(scope: Scope) -> bool:
    return scope.value("ssl_reject_handshake") == "on"


def _connections(context: Context) -> Iterator[Hit]:
    """Fewer connections than listening sockets. Source: ngx_event_init_conf."""
    named = [found.socket for found in context.listeners if not is_open(found.address)]
    named = [one for one in named if one.family in {"inet", "inet6", "unix"}]
    covering = Wildcards(named)
    sockets = sum(len(one.ports) or 1 for one in set(named) if not covering.cover(one))
    events = context.tree.main.first("events")
    if events is None or events.block is None:
        return
    line = events.block.first("worker_connections")
    limit = _CONNECTIONS if line is None else parse_count(line.value)
    if limit is not None and limit <= sockets:
        evidence = default("worker_connections", f"{limit}") if line is None else written(line)
        yield Hit(
            line or events,
            f"{limit} connections for a worker are not enough for {sockets} listening sockets",
            [evidence, counted("listening sockets", sockets)],
            fix=f"Set worker_connections above {sockets}; thousands are usual.",
        )


def _no_connections(context: Context) -> Iterator[Hit | MissingFacts]:
    """``keepalive 0``. Source: ngx_http_upstream_keepalive."""
    for upstream in context.upstreams.values():
        line = upstream.block.first("keepalive")
        if line is None or parse_count(line.value) != 0:
            continue
        if context.version is None:
            yield MissingFacts(("nginx.nginx_version",))
        elif context.version < _KEEPALIVE_OFF:
            yield Hit(
                line,
                "nginx takes keepalive 0 from 1.29.7 on",
                [written(line)],
                fix="Remove the line: without it no connection is kept.",
            )


_CONF = "events {} http { server { location ~ %s { } } }"

RULE = Rule(
    id="cf-lines-refused",
    severity="error",
    title="lines that nginx rejects for their content",
    why='nginx does not start: emerg "pcre2_compile() failed", "duplicate default map parameter", '
    '"percent total is greater", "invalid network", "no ssl_certificate is defined", '
    '"worker_connections are not enough" or "invalid value" of keepalive.',
    fix="Correct the line that the finding names.",
    sources=(
        "nginx: src/core/ngx_regex.c, ngx_regex_compile; pcre2pattern(3)",
        "nginx: src/http/modules/ngx_http_map_module.c, ngx_http_map",
        "nginx: src/http/modules/ngx_http_split_clients_module.c, ngx_conf_split_clients_block",
        "nginx: src/http/modules/ngx_http_geo_module.c, ngx_http_geo_cidr_value",
        "nginx: src/http/modules/ngx_http_ssl_module.c, ngx_http_ssl_init",
        "nginx: src/event/ngx_event.c, ngx_event_init_conf",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A regular expression is judged by what PCRE and PCRE2 both reject: a group or class "
    "that does not end, a quantifier with nothing before it, an invalid group name. Patterns with "
    "quoted parts, verbs, comments, conditions or free spacing are not judged. Of the listening "
    "sockets, only those of http with an address count.",
    bad=Example(_CONF % r"^/(a|b\.png$"),
    good=Example(_CONF % r"^/(a|b)\.png$"),
    check=check,
)
