from collections.abc import Collection, Iterable, Iterator, Mapping

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import judges_names
from nginx_tune.audit.hit import Hit, MissingFacts, default, hit_at, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.known_variables import (
    EVALUATED,
    is_fixed_in_stream,
    is_of_http_alone,
    made_variables,
    used_variables,
)
from nginx_tune.conf.request_values import address_fault, is_address
from nginx_tune.conf.upstreams import host_of, is_unix, refused_backup
from nginx_tune.conf.values import is_open, parameter

_HANDLERS = ("proxy_pass", "return", "pass")
_SETTERS = frozenset({"set", "map", "geo", "split_clients"})
_MAIL_PORTS = frozenset({"25", "465", "587", "110", "995", "143", "993"})
"""Ports of smtp, pop3 and imap, which need no ``protocol``."""
_VIRTUAL_SERVERS = (1, 25, 5)
"""The first release in which servers of stream share an address."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers and upstreams of stream, and servers of mail, that nginx rejects."""
    if context.tree.is_template or not judges_names(context):
        return
    for stream in context.tree.main.all("stream"):
        yield from _stream(stream.block or Block([]), context)
    for mail in context.tree.main.all("mail"):
        block = mail.block or Block([])
        first_listens: dict[tuple[str, bool], Directive] = {}
        for server in block.all("server"):
            lines = server.block or Block([])
            yield from _certificate(lines, block)
            yield from (_twice(*pair) for pair in _repeated(lines, first_listens))
            if lines.first("protocol") is None and not any(map(_has_protocol, lines.all("listen"))):
                yield _lacking(server, "protocol")
            if lines.first("auth_http") is None and block.first("auth_http") is None:
                yield _lacking(server, "auth_http")


def _has_protocol(line: Directive) -> bool:
    """True if the port of a listen may name the protocol. Source: ngx_mail_core_listen."""
    port = line.value.rpartition(":")[2]
    return is_open(line.value) or port.partition("-")[0] in _MAIL_PORTS


def _stream(block: Block, context: Context) -> Iterator[Hit | MissingFacts]:
    upstreams: dict[str, Directive] = {}
    for upstream in block.all("upstream"):
        if upstream.block is not None and upstream.args:
            yield from _upstream(upstream, upstreams)
    first_listens: dict[tuple[str, bool], Directive] = {}
    servers = [(server, server.block or Block([])) for server in block.all("server")]
    earlier_lines = {line: earlier for _, lines in servers
                     for line, earlier in _repeated(lines, first_listens)}  # fmt: skip
    needless = _needs_no_certificate(earlier_lines, [lines for _, lines in servers])
    for server, lines in servers:
        if all(any(row.is_own for row in rows_of(line.name)) for line in lines):
            yield from _server(server, lines, block, needless)
            for line in filter(earlier_lines.get, lines.all("listen")):
                if context.version is None:
                    yield MissingFacts(("nginx.nginx_version",))
                elif context.version < _VIRTUAL_SERVERS:
                    yield _twice(line, earlier_lines[line])
        for line in lines.all("proxy_pass"):
            yield from _address(line, upstreams)
    yield from _logs(block)
    yield from _variables(block)


def _variables(block: Block) -> Iterator[Hit]:
    """Variables that http alone has, and lines that set one of nginx.

    Source: ngx_stream_get_variable_index, ngx_stream_add_variable.
    """
    made = {name for line in block.walk() for name in made_variables(line)}
    for line in block.walk():
        if line.name in _SETTERS:
            name = next(filter(is_fixed_in_stream, made_variables(line)), None)
            if name is not None:
                yield hit_at(line, f'"${name}" is a variable of nginx, which no line may set')
                continue
        if line.name in EVALUATED:
            name = next(filter(is_of_http_alone, used_variables(line)), None)
            if name is not None and name not in made:
                yield hit_at(line, f'"${name}" is a variable of http, which stream does not have')


def _lacking(place: Directive, name: str) -> Hit:
    return Hit(place, f"this server has no {name}", [default(name, "none")])


def _upstream(upstream: Directive, known: dict[str, Directive]) -> Iterator[Hit]:
    lines = upstream.block or Block([])
    earlier = known.setdefault(upstream.value.lower(), upstream)
    if earlier is not upstream:
        message = f'upstream "{upstream.value}" is already defined at {earlier.file}:{earlier.line}'
        yield Hit(upstream, message, [written(earlier)])
    servers = lines.all("server")
    if not servers and lines.first("zone") is None:
        message = f'upstream "{upstream.value}" has no server'
        yield Hit(upstream, message, [default("server", "none")])
    for server in servers:
        is_service = any(arg.startswith("service=") for arg in server.args)
        if server.args and not (is_service or is_open(server.value) or _has_port(server.value)):
            yield hit_at(server, "a server in stream takes ADDRESS:PORT or unix:PATH")
    if pair := refused_backup(lines):
        message = f'"{pair[1].name}" does not allow backup servers'
        yield Hit(pair[0], message, [written(line) for line in pair])


def _has_port(address: str) -> bool:
    return is_address(address) and (is_unix(address) or address.lower() != host_of(address))


def _address(line: Directive, upstreams: dict[str, Directive]) -> Iterator[Hit]:
    """Source: ngx_stream_proxy_pass, ngx_stream_upstream_add."""
    if not line.args or is_open(line.value) or line.value.lower() in upstreams:
        return
    host = host_of(line.value)
    if host in upstreams and is_address(line.value):
        message = f'upstream "{host}" has its ports in its server lines'
        yield Hit(line, message, [written(upstreams[host])])
    elif fault := address_fault(line.value):
        yield hit_at(line, f"proxy_pass in stream takes {fault}")
    elif not _has_port(line.value):
        message = f'no upstream is named "{host}", and an address needs a port'
        yield Hit(line, message, [default("upstream", "none of that name")])


def _server(
    server: Directive, lines: Block, outer: Block, needless: Collection[Directive]
) -> Iterator[Hit]:
    if not any(lines.first(name) for name in _HANDLERS):
        yield _lacking(server, "proxy_pass")
    yield from _certificate(lines, outer, needless)
    for line in lines.all("listen"):
        if {"udp", "ssl"} <= {*line.args}:
            yield hit_at(line, "ssl does not work with udp")


def _needs_no_certificate(
    earlier_lines: Mapping[Directive, Directive], servers: Iterable[Block]
) -> set[Directive]:
    """Lines of servers that are not the default of their address, unless that rejects handshakes.

    Source: ngx_stream_ssl_init.
    """
    rejecting = {
        line
        for lines in servers
        if any(one.value == "on" for one in lines.all("ssl_reject_handshake"))
        for line in lines.all("listen")
    }
    ordered = ((earlier, line) if "default_server" in line.args else (line, earlier)
               for line, earlier in earlier_lines.items())  # fmt: skip
    return {line for line, first in ordered if first not in rejecting}


def _certificate(lines: Block, outer: Block, needless: Collection[Directive] = ()) -> Iterator[Hit]:
    """TLS without a certificate. Source: ngx_stream_ssl_init, ngx_mail_ssl_merge_conf."""
    names = ("ssl_certificate", "ssl_reject_handshake")
    if any(lines.first(name) or outer.first(name) for name in names):
        return
    starts = [line for line in lines.all("starttls") if line.value in {"on", "only"}]
    listens = [line for line in lines.all("listen") if "ssl" in line.args[1:]]
    for line in [*starts, *(line for line in listens if line not in needless)][:1]:
        yield Hit(line, "this server has TLS and no certificate", [default(names[0], "none")])


def _repeated(
    lines: Block, known: dict[tuple[str, bool], Directive]
) -> Iterator[tuple[Directive, Directive]]:
    """Addresses on which an earlier server listens: (the line, the earlier one)."""
    for line in lines.all("listen"):
        if not line.args or is_open(line.value):
            continue
        address = line.value.lower().removeprefix("*:").removeprefix("0.0.0.0:")
        earlier = known.setdefault((address, "udp" in line.args[1:]), line)
        if earlier is not line:
            yield line, earlier


def _twice(line: Directive, earlier: Directive) -> Hit:
    message = f"another server listens on this address, at {earlier.file}:{earlier.line}"
    return Hit(line, message, [written(earlier)])


def _logs(block: Block) -> Iterator[Hit]:
    """Formats and zones that stream does not define. Source: ngx_stream_log_set_log."""
    formats = {line.value for line in block.all("log_format")}
    zones = {(parameter(line.args, "zone") or "").partition(":")[0]
             for line in block.all("limit_conn_zone")}  # fmt: skip
    for line in block.walk():
        if line.name == "access_log" and line.value != "off":
            name = line.args[1] if len(line.args) > 1 else ""
            if not name:
                yield hit_at(line, "an access_log of stream needs a format")
            elif name not in formats and not is_open(name):
                yield Hit(line, f'the format "{name}" is not defined in stream', [
                    default("log_format", "none of that name")
                ])  # fmt: skip
        elif line.name == "limit_conn" and line.value not in zones and not is_open(line.value):
            yield Hit(line, f'the zone "{line.value}" is not defined in stream', [
                default("limit_conn_zone", "none of that name")
            ])  # fmt: skip


RULE = Rule(
    id="cf-stream-refused",
    severity="error",
    title="a server of stream or mail that nginx rejects",
    why='nginx does not start: emerg "no handler for server", "no port in upstream", "no servers '
    'are inside upstream", "duplicate address and port pair", "log format is not specified", '
    '"unknown variable", "the duplicate variable", "no ssl_certificate is defined", "unknown mail '
    'protocol" or "no auth_http is defined".',
    fix="Give each server of stream an address with a port and a proxy_pass, and each of mail a "
    "protocol and an auth_http. Formats and zones of http do not count in stream.",
    sources=(
        "nginx: src/stream/ngx_stream_core_module.c, ngx_stream_core_server",
        "nginx: src/stream/ngx_stream_proxy_module.c, ngx_stream_proxy_pass",
        "nginx: src/stream/ngx_stream_upstream.c, ngx_stream_upstream_server",
        "nginx: src/stream/ngx_stream_log_module.c, ngx_stream_log_set_log",
        "nginx: src/mail/ngx_mail_auth_http_module.c, ngx_mail_auth_http_merge_conf",
    ),
    proof="proven",
    proven_on=("1.22",),
    bad=Example("events {} stream { server { listen 53; proxy_pass 10.0.0.1; } }"),
    good=Example("events {}"),
    check=check,
)
