"""HTTP/2 and HTTP/3 in an existing configuration, and the lines that rule out HTTP/2.

With HTTP/2, all requests of a page come concurrently over one connection. Some lines work as
intended only with HTTP/1.1: those that count connections, read the protocol version, run Lua, route
connections by name, add connection headers or turn off request buffering.

A response of HTTP/2 or HTTP/3 with a connection header is malformed, and clients abort the stream
(RFC 9113, 8.2.2; RFC 9114, 4.2). nginx sends such headers if configured
(ngx_http_v2_header_filter, ngx_http_v2_create_trailers_frame); with nginx 1.22.1, curl ends each
such stream with PROTOCOL_ERROR.

HTTP/2 must not reject headers that HTTP/1.1 accepts, such as a session or token of more than 4 KiB.
All servers get the limits of the server that allows most, since a browser reuses a connection for
other names of its certificate.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from nginx_tune.change.plan.kept import version_in
from nginx_tune.change.plan.naming import line_of
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.http2 import (
    FIELD_SIZE,
    FIRST_BUFFER,
    HEADER_SIZE,
    LARGE_BUFFERS,
    ONE_LIMIT_SINCE,
    PAGE_STREAMS,
    Http2Fault,
    ProtocolVariables,
    counted_limits,
    header_buffers,
    held_uploads,
    http2_fault,
    zone_keys,
)
from nginx_tune.conf.listeners import ListenAddress, listeners, newly_multiplexed, socket_name
from nginx_tune.conf.scopes import Scope, http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.conf.variables import variables_of
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import nginx_size

_OF_ALL = frozenset(
    ("host", "hostname", "http_host", "scheme", "server_addr", "server_name", "server_port")
)
"""Variables whose values are the same for all clients of a server."""
_FAULTS: dict[Http2Fault, str] = {
    "only": "allows only ciphers over TLS 1.2 that HTTP/2 forbids",
    "first": "prefers a cipher that HTTP/2 forbids",
}
_LUA = re.compile(r"(?:server_rewrite|rewrite|access|content)_by_lua(?:_block|_file)?")
_SNI = re.compile(r"\$\{?ssl_preread_server_name\b")
_CHOOSES = ("return", "rewrite")
"""Directives whose text may depend on the protocol version."""
OF_A_CONNECTION = "sends a connection header of HTTP/1.1, which makes clients abort the response"


def without_http2(decision: Decision, tree: ConfTree) -> tuple[str, list[str]]:
    """The reason not to write HTTP/2 (empty if it may be written), and the risks of HTTP/2."""
    found = listeners(tree)
    new = newly_multiplexed(tree)
    for limit in _limits(new, tree):
        return (
            f"{line_of(limit)} counts each concurrent HTTP/2 request as a connection, and a "
            "browser has tens of them (audit: lim-conn-h2)"
        ), []
    if (line := _lua(new)) is not None:
        return f"{line_of(line)}: Lua cannot make subrequests over HTTP/2", []
    if (line := _asks_version(new, tree)) is not None:
        return f"{line_of(line)} treats HTTP/2 differently from HTTP/1.1", []
    if (line := connection_header(new)) is not None:
        return f"{line_of(line)} {OF_A_CONNECTION} (RFC 9113, 8.2.2)", []
    for held in held_uploads(new):
        return (
            f"{line_of(held.line)}: HTTP/2 limits the upload to {nginx_size(held.window_bytes)} "
            "per round trip, unlike HTTP/1.1 (client_body_buffer_size 1m there opens the window; "
            "audit: px-upload-window)"
        ), []
    if refused := why_headers_refused(new, version_in(decision.evidence)):
        return refused, []
    servers = {place.server for place in new}
    behind = [listener for listener in found if listener.is_tls and servers & set(listener.servers)]
    if (line := _chosen_by_name(tree, behind)) is not None:
        return (
            f"{line_of(line)} routes connections by name, but a browser reuses an HTTP/2 "
            "connection for other names of the same certificate (RFC 9113, 9.1.1)"
        ), []
    reason, risks = _ciphers(new)
    return reason, [*risks, *_bursts(new, tree), *_upgrades(new, decision)]


def _limits(found: list[Scope], tree: ConfTree) -> Iterator[Directive]:
    """The connection limits that the requests of a page would reach.

    The key may be a cookie, an address from a header, or a ``map`` of such a value. A limit that
    all clients share is too low at any number, since each client makes more concurrent requests.
    """
    keys = zone_keys(tree, "limit_conn_zone")
    for _, line, most in counted_limits(found):
        key = keys.get(line.value)
        is_shared = key is not None and variables_of(key) <= _OF_ALL
        if most < PAGE_STREAMS or is_shared:
            yield line


def _bursts(found: list[Scope], tree: ConfTree) -> Iterator[str]:
    """Notes on request limits whose burst is smaller than a page may need."""
    keys = zone_keys(tree, "limit_req_zone")
    lines: dict[Directive, None] = {}
    for scope in found:
        if scope.value("limit_req_dry_run") == "on":
            continue
        for line in scope.effective_all("limit_req"):
            words = dict(arg.partition("=")[::2] for arg in line.args)
            burst = parse_count(words.get("burst", "0"))
            is_counted = bool(variables_of(keys.get(words.get("zone", ""), "")))
            if is_counted and burst is not None and burst < PAGE_STREAMS:
                lines[line] = None
    for line in lines:
        yield (
            f"{line_of(line)}: over HTTP/2 a browser requests all files of a page at once, not six "
            "at a time, and requests beyond the burst are rejected"
        )


def _lua(found: list[Scope]) -> Directive | None:
    """A Lua line in a phase that may make subrequests.

    Source: ngx_http_lua_subrequest.c, ngx_http_lua_ngx_location_capture_multi ("http2 requests
    not supported yet", the client gets 500); ngx.req.raw_header fails likewise.
    """
    blocks = dict.fromkeys(block for scope in found for block in scope.chain)
    lines = (line for block in blocks for line in block.block or Block([]))
    return next((line for line in lines if _LUA.fullmatch(line.name)), None)


def _asks_version(found: list[Scope], tree: ConfTree) -> Directive | None:
    """A line that behaves differently with HTTP/2, by itself or through a ``map``."""
    variables = ProtocolVariables(tree)
    zones = zone_keys(tree, "limit_conn_zone") | zone_keys(tree, "limit_req_zone")
    for scope in found:
        for line in _run_in(scope):
            is_other = line.name == "if" and variables.answers_differ(line.args, scope)
            texts = line.args if line.name in _CHOOSES else ()
            if is_other or any(variables.made_differs(text, scope) for text in texts):
                return line
        for name in ("limit_conn", "limit_req"):
            is_dry = scope.value(f"{name}_dry_run") == "on"
            for line in [] if is_dry else scope.effective_all(name):
                keys = (zones.get(word.removeprefix("zone="), "") for word in line.args)
                if any(variables.made_differs(key, scope) for key in keys):
                    return line
    return None


def _run_in(scope: Scope) -> Iterator[Directive]:
    """The lines of a scope that run for a request, including those in an ``if`` of a server."""
    for line in scope.own.block or ():
        yield line
        if scope.kind == "server" and line.name == "if":
            yield from line.block or ()


def _chosen_by_name(tree: ConfTree, behind: list[ListenAddress]) -> Directive | None:
    """The line in ``stream`` that routes TLS connections by name to one of the listeners."""
    lines = [line for part in tree.main.all("stream") for line in (part.block or Block([])).walk()]
    by_name = next((line for line in lines if any(map(_SNI.search, line.args))), None)
    if by_name is None:
        return None
    names = {
        socket_name(word)
        for line in lines
        for word in (line.name, *line.args)
        if ":" in word or word.isdigit()
    }
    is_meant = any(
        listener.socket == name or listener.socket.meets(name)
        for listener in behind
        for name in names
    )
    return by_name if is_meant else None


def _ciphers(new: list[Scope]) -> tuple[str, list[str]]:
    risks = []
    for scope in new:
        if scope.kind != "server" or (line := scope.effective("ssl_ciphers")) is None:
            continue
        protocols = scope.effective("ssl_protocols")
        words = set() if protocols is None else {word.lower() for word in protocols.args}
        if words and "tlsv1.2" not in words:
            continue
        chooses = scope.value("ssl_prefer_server_ciphers", "off") == "on"
        fault = http2_fault(line.value, server_chooses=chooses)
        if fault is None:
            continue
        text = f"{line_of(line)} {_FAULTS[fault]} (RFC 9113, appendix A)"
        if "tlsv1.3" not in words:
            return f"{text}, and browsers close such connections", []
        risks.append(f"{text}: browsers with TLS 1.2 close the connection")
    return "", list(dict.fromkeys(risks))


def _upgrades(new: list[Scope], decision: Decision) -> Iterator[str]:
    """A note on a location that may pass the ``Upgrade`` header of an origin to clients.

    With nginx 1.22.1 and 1.30.6 the HTTP/2 response has the origin's header, and curl ends the
    stream with PROTOCOL_ERROR. Source: RFC 9113, 8.2.2.
    """
    if not decision.settings:
        return
    for scope in new:
        line = scope.sets("proxy_pass")
        hidden = {line.value.lower() for line in scope.effective_all("proxy_hide_header")}
        if line is not None and "upgrade" not in hidden:
            yield (
                f"{line_of(line)}: nginx passes on an Upgrade header of the origin (Apache with "
                "mod_http2 sends one over HTTP/1.1), which makes browsers abort the HTTP/2 "
                "response: add proxy_hide_header Upgrade"
            )
            return


_HEADER = "add_header"
_BY_HAND = "add a quic listener yourself, to the server that should have it"


def with_own_quic(decision: Decision, tree: ConfTree) -> Decision:
    """The decision for the existing ``quic`` listeners of a tree.

    The operator chooses the server that gets a listener, and the place of the header: in http, any
    ``add_header`` in an inner block would undo it (ngx_http_headers_config).
    """
    if not decision.settings:
        return decision
    found = listeners(tree)
    if not any(listener.is_quic for listener in found):
        secure = {server for listener in found if listener.is_tls for server in listener.servers}
        line = connection_header(scope for scope in scopes(tree) if scope.server in secure)
        if line is not None:
            reason = f"{line.file}:{line.line} {line} {OF_A_CONNECTION} (RFC 9114, 4.2)"
            return replace(
                decision,
                verdict="keep",
                summary=f"Not written: {reason}. {decision.summary}",
                blocked_by=reason,
                settings=[],
                risks=[],
            )
        return replace(
            decision,
            verdict="not_enough_evidence",
            summary=f"Not written: {_BY_HAND}. {decision.summary}",
            blocked_by=_BY_HAND,
            settings=[],
            proposed=decision.settings,
            confidence="low",
        )
    risks = list(decision.risks)
    if not _is_announced(tree):
        risks.append(
            "there is no Alt-Svc header, so browsers discover QUIC only by DNS (audit: "
            "ls-quic-not-announced)"
        )
    settings = [setting for setting in decision.settings if setting.directive != _HEADER]
    return replace(decision, settings=settings, risks=risks)


def _is_announced(tree: ConfTree) -> bool:
    return any(
        line.name == _HEADER and line.value.lower() == "alt-svc" for line in http_directives(tree)
    )


_FORBIDDEN = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
_PASSED = frozenset({"proxy-connection", "te", "upgrade"})
"""Header fields of an upstream that nginx passes on. nginx never passes on any other field, even
with ``proxy_pass_header``. Source: ngx_http_upstream_headers_in, whose copy handler for the other
fields is ngx_http_upstream_ignore_header_line."""
_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi", "grpc")
_MEANT_TO_BE_ASKED = frozenset(f"$http_{name.replace('-', '_')}" for name in _FORBIDDEN)
"""Variables of request headers that HTTP/2 clients must not send. They are empty over HTTP/2."""


def connection_header(found: Iterable[Scope]) -> Directive | None:
    """The first line that adds a connection header to responses."""
    return next((line for scope in found for line in _lines(scope)), None)


def _lines(scope: Scope) -> Iterator[Directive]:
    for line in (*_added(scope, "add_header"), *_added(scope, "add_trailer")):
        if len(line.args) > 1 and _is_sent(line.value, line.args[1]):
            yield line
    for line in _of_all_levels(scope, "more_set_headers"):
        fields = (arg.partition(":") for arg in line.args)
        if any(_is_sent(name, value) for name, _, value in fields):
            yield line
    for module in _MODULES:
        if scope.sets(f"{module}_pass") is not None:
            for line in scope.effective_all(f"{module}_pass_header"):
                if line.value.lower() in _PASSED:
                    yield line


def _is_sent(name: str, value: str) -> bool:
    """True for a header that nginx sends and HTTP/2 forbids.

    nginx sends no empty headers, and HTTP/2 allows ``TE: trailers``. Source: ngx_http_add_header().
    """
    name, value = name.strip().lower(), value.strip().lower()
    if name not in _FORBIDDEN or not value or value in _MEANT_TO_BE_ASKED:
        return False
    return (name, value) != ("te", "trailers")


def _added(scope: Scope, name: str) -> list[Directive]:
    """The lines in effect: those of the innermost level that has any.

    With ``merge`` (1.29.3), the lines of all levels.
    """
    if scope.value(f"{name}_inherit") == "merge":
        return _of_all_levels(scope, name)
    return scope.effective_all(name)


def _of_all_levels(scope: Scope, name: str) -> list[Directive]:
    """The lines of all levels. Source: ngx_http_headers_more_merge_loc_conf()."""
    return [line for block in scope.chain for line in (block.block or Block([])).all(name)]


def why_headers_refused(new: Sequence[Scope], version: tuple[int, ...] | None) -> str:
    """The reason why HTTP/2 would reject headers that HTTP/1.1 accepts; empty if there is none.

    nginx's default limits do not count, since ``with_sizes`` raises them.
    """
    for scope in _servers(new):
        buffers = header_buffers(scope)
        if version is None or version >= ONE_LIMIT_SINCE:
            first = scope.effective(FIRST_BUFFER)
            if first is not None and buffers.first_bytes > buffers.large_bytes:
                size = nginx_size(buffers.first_bytes)
                return (
                    f"{first.file}:{first.line} {first} allows longer headers over HTTP/1.1 than "
                    f"over HTTP/2, where {LARGE_BUFFERS} applies (set it to 4 {size})"
                )
            continue
        for name, wanted in buffers.as_http2_sizes.items():
            line = scope.effective(name)
            have = None if line is None else parse_bytes(line.value)
            if line is not None and have is not None and have < wanted:
                return (
                    f"{line.file}:{line.line} {line} makes HTTP/2 close connections on request "
                    f"headers that HTTP/1.1 accepts (set it to {nginx_size(wanted)})"
                )
    return ""


def with_sizes(decision: Decision, new: Sequence[Scope]) -> Decision:
    """The decision with header limits only for servers that set none themselves."""
    settings = []
    for setting in decision.settings:
        if setting.directive not in (FIELD_SIZE, HEADER_SIZE):
            settings.append(setting)
            continue
        lacking = [scope for scope in _servers(new) if scope.effective(setting.directive) is None]
        if lacking:
            sizes = [header_buffers(s).as_http2_sizes[setting.directive] for s in lacking]
            settings.append(replace(setting, args=[nginx_size(max(sizes))]))
    return replace(decision, settings=settings)


def _servers(new: Sequence[Scope]) -> list[Scope]:
    return [scope for scope in new if scope.kind == "server"]
