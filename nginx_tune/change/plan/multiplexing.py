"""HTTP/2 and HTTP/3 in a configuration that stands, and the lines that keep HTTP/2 off.

All requests of a page come over one connection, at once; a line that counts connections, reads the
version of the protocol, runs Lua or sends connections on by their name was made for HTTP/1.1; so
were headers that speak of the connection, and bodies that are passed on as they come.

An answer of HTTP/2 or HTTP/3 with a header field of HTTP/1.1's connections is malformed: clients
end the stream, and see no page. Source: RFC 9113, 8.2.2; RFC 9114, 4.2. nginx writes what it is
told to (ngx_http_v2_header_filter, ngx_http_v2_create_trailers_frame). Seen with 1.22.1 and curl,
which ends each with PROTOCOL_ERROR.

No header that HTTP/1.1 takes is to be refused. A session, a token or a search may need a header of
more than 4 KiB, which ``conf.header_sizes`` says how HTTP/2 meets. The limits written are those of
the server that takes most: a browser sends requests for other names of a certificate over the
connection that it has, under that one's limits.
"""

from __future__ import annotations

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
from nginx_tune.conf.listeners import (
    ListenAddress,
    listeners,
    newly_multiplexed,
    socket_name,
)
from nginx_tune.conf.scopes import Scope, http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.conf.variables import variables_of
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import nginx_size

_OF_ALL = frozenset(
    ("host", "hostname", "http_host", "scheme", "server_addr", "server_name", "server_port")
)
"""Variables that are the same for all clients of a server."""
_FAULTS: dict[Http2Fault, str] = {
    "only": "allows over TLS 1.2 only ciphers that HTTP/2 forbids",
    "first": "has the server choose first what HTTP/2 forbids",
}
_LUA = re.compile(r"(?:server_rewrite|rewrite|access|content)_by_lua(?:_block|_file)?")
_SNI = re.compile(r"\$\{?ssl_preread_server_name\b")
_CHOOSES = ("return", "rewrite")
"""Directives that answer by a text."""
OF_A_CONNECTION = "sends what is of a connection of HTTP/1.1, and clients end such an answer"
"""Counts of connections, in HTTP/2 and in HTTP/3 as well."""


def without_http2(decision: Decision, tree: ConfTree) -> tuple[str, list[str]]:
    """The reason against HTTP/2, empty if it may be written, and what else is to be known of it."""
    found = listeners(tree)
    new = newly_multiplexed(tree)
    for limit in _limits(new, tree):
        return (
            f"{line_of(limit)} counts each request of HTTP/2 in flight as a connection, and a "
            "browser has tens at once (audit: lim-conn-h2)"
        ), []
    if (line := _lua(new)) is not None:
        return f"{line_of(line)}: Lua makes no subrequests of requests that came over HTTP/2", []
    if (line := _asks_version(new, tree)) is not None:
        return f"{line_of(line)} tells HTTP/2 from HTTP/1.1", []
    if (line := connection_header(new)) is not None:
        return f"{line_of(line)} {OF_A_CONNECTION} (RFC 9113, 8.2.2)", []
    for held in held_uploads(new):
        return (
            f"{line_of(held.line)}: of such an upload HTTP/2 lets {nginx_size(held.window_bytes)} "
            "come in a round trip, and HTTP/1.1 as much as TCP does (client_body_buffer_size 1m "
            "there opens the window; audit: px-upload-window)"
        ), []
    if refused := why_headers_refused(new, version_in(decision.evidence)):
        return refused, []
    servers = {one.server for one in new}
    behind = [one for one in found if one.is_tls and servers & set(one.servers)]
    if (line := _chosen_by_name(tree, behind)) is not None:
        return (
            f"{line_of(line)} sends connections on by their name, and over one of HTTP/2 a browser "
            "asks for other names of the same certificate (RFC 9113, 9.1.1)"
        ), []
    reason, risks = _ciphers(new)
    return reason, [*risks, *_bursts(new, tree), *_upgrades(new, decision)]


def _limits(found: list[Scope], tree: ConfTree) -> Iterator[Directive]:
    """The limits of connections that requests of a page would reach, whatever is counted by.

    A cookie, an address out of a header or what a ``map`` makes of one may be each client's own.
    What is the same for all of them has no number that is enough: each brings more at once.
    """
    keys = zone_keys(tree, "limit_conn_zone")
    for _, line, most in counted_limits(found):
        key = keys.get(line.value)
        is_shared = key is not None and variables_of(key) <= _OF_ALL
        if most < PAGE_STREAMS or is_shared:
            yield line


def _bursts(found: list[Scope], tree: ConfTree) -> Iterator[str]:
    """The limits of requests whose burst is smaller than a page may be."""
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
            f"{line_of(line)}: over HTTP/2 a page asks for all its files at once, not six by six, "
            "and what is beyond the burst is refused"
        )


def _lua(found: list[Scope]) -> Directive | None:
    """A line of Lua that runs before or as the answer: there it may ask for subrequests.

    Source: ngx_http_lua_subrequest.c, ngx_http_lua_ngx_location_capture_multi ("http2 requests
    not supported yet", the client gets 500); so does ngx.req.raw_header.
    """
    blocks = dict.fromkeys(block for scope in found for block in scope.chain)
    lines = (line for block in blocks for line in block.block or Block([]))
    return next((line for line in lines if _LUA.fullmatch(line.name)), None)


def _asks_version(found: list[Scope], tree: ConfTree) -> Directive | None:
    """A line that does otherwise once a client speaks HTTP/2: by itself, or by a ``map``."""
    variables = ProtocolVariables(tree)
    zones = zone_keys(tree, "limit_conn_zone") | zone_keys(tree, "limit_req_zone")
    for scope in found:
        for line in _run_in(scope):
            is_other = line.name == "if" and variables.answers_differ(line.args, scope)
            texts = line.args if line.name in _CHOOSES else ()
            if is_other or any(variables.made_differs(one, scope) for one in texts):
                return line
        for name in ("limit_conn", "limit_req"):
            is_dry = scope.value(f"{name}_dry_run") == "on"
            for line in [] if is_dry else scope.effective_all(name):
                keys = (zones.get(one.removeprefix("zone="), "") for one in line.args)
                if any(variables.made_differs(one, scope) for one in keys):
                    return line
    return None


def _run_in(scope: Scope) -> Iterator[Directive]:
    """The lines of a place that run for a request; an ``if`` of a server is no place of its own."""
    for line in scope.own.block or ():
        yield line
        if scope.kind == "server" and line.name == "if":
            yield from line.block or ()


def _chosen_by_name(tree: ConfTree, behind: list[ListenAddress]) -> Directive | None:
    """The line of ``stream`` by which a TLS connection's name leads to one of the listeners."""
    lines = [line for part in tree.main.all("stream") for line in (part.block or Block([])).walk()]
    by_name = next((one for one in lines if any(map(_SNI.search, one.args))), None)
    if by_name is None:
        return None
    names = {
        socket_name(word)
        for line in lines
        for word in (line.name, *line.args)
        if ":" in word or word.isdigit()
    }
    is_meant = any(one.socket == name or one.socket.meets(name) for one in behind for name in names)
    return by_name if is_meant else None


def _ciphers(new: list[Scope]) -> tuple[str, list[str]]:
    risks = []
    for scope in new:
        if scope.kind != "server" or (line := scope.effective("ssl_ciphers")) is None:
            continue
        protocols = scope.effective("ssl_protocols")
        words = set() if protocols is None else {one.lower() for one in protocols.args}
        if words and "tlsv1.2" not in words:
            continue
        chooses = scope.value("ssl_prefer_server_ciphers", "off") == "on"
        fault = http2_fault(line.value, server_chooses=chooses)
        if fault is None:
            continue
        said = f"{line_of(line)} {_FAULTS[fault]} (RFC 9113, appendix A)"
        if "tlsv1.3" not in words:
            return f"{said}, and browsers end such connections", []
        risks.append(f"{said}: browsers that come with TLS 1.2 end the connection")
    return "", list(dict.fromkeys(risks))


def _upgrades(new: list[Scope], decision: Decision) -> Iterator[str]:
    """The places where an origin's ``Upgrade`` would go on to clients, who end such an answer.

    Seen with 1.22.1 and 1.30.6: an answer of HTTP/2 has the line that the origin sent, and curl
    ends the stream with PROTOCOL_ERROR. Source: RFC 9113, 8.2.2.
    """
    if not decision.settings:
        return
    for scope in new:
        line = scope.sets("proxy_pass")
        hidden = {one.value.lower() for one in scope.effective_all("proxy_hide_header")}
        if line is not None and "upgrade" not in hidden:
            yield (
                f"{line_of(line)}: an Upgrade header of the origin (Apache with mod_http2 sends "
                "one over HTTP/1.1) goes on to clients, and browsers end such an answer of "
                "HTTP/2: proxy_hide_header Upgrade"
            )
            return


_HEADER = "add_header"
_BY_HAND = "a listener of QUIC goes in by hand, in the server that is to have it"


def with_own_quic(decision: Decision, tree: ConfTree) -> Decision:
    """The decision as it may be held against a tree.

    Which server gets a listener is the operator's choice, and so is where a header goes: one in
    http is undone by any ``add_header`` further in (ngx_http_headers_config).
    """
    if not decision.settings:
        return decision
    found = listeners(tree)
    if not any(one.is_quic for one in found):
        secure = {server for one in found if one.is_tls for server in one.servers}
        line = connection_header(one for one in scopes(tree) if one.server in secure)
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
            "nothing here says Alt-Svc, so that browsers come over QUIC by DNS alone (audit: "
            "ls-quic-not-announced)"
        )
    settings = [one for one in decision.settings if one.directive != _HEADER]
    return replace(decision, settings=settings, risks=risks)


def _is_announced(tree: ConfTree) -> bool:
    return any(
        line.name == _HEADER and line.value.lower() == "alt-svc" for line in http_directives(tree)
    )


_FORBIDDEN = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
_PASSED = frozenset({"proxy-connection", "te", "upgrade"})
"""Fields that nginx passes on of an upstream's answer; the others it keeps for itself, whatever
``proxy_pass_header`` says. Source: ngx_http_upstream_headers_in, whose copy handler for them is
ngx_http_upstream_ignore_header_line."""
_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi", "grpc")
_MEANT_TO_BE_ASKED = frozenset(f"$http_{name.replace('-', '_')}" for name in _FORBIDDEN)
"""Fields of the request; no client of HTTP/2 may send them, so that these variables are empty."""


def connection_header(found: Iterable[Scope]) -> Directive | None:
    """The first line that has an answer carry a header of a connection."""
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
    """An empty value sends nothing (ngx_http_add_header), and ``TE: trailers`` is allowed."""
    name, value = name.strip().lower(), value.strip().lower()
    if name not in _FORBIDDEN or not value or value in _MEANT_TO_BE_ASKED:
        return False
    return (name, value) != ("te", "trailers")


def _added(scope: Scope, name: str) -> list[Directive]:
    """Those of the innermost level with any; of all levels where they are merged (1.29.3)."""
    if scope.value(f"{name}_inherit") == "merge":
        return _of_all_levels(scope, name)
    return scope.effective_all(name)


def _of_all_levels(scope: Scope, name: str) -> list[Directive]:
    """As headers-more has it. Source: ngx_http_headers_more_merge_loc_conf."""
    return [line for block in scope.chain for line in (block.block or Block([])).all(name)]


def why_headers_refused(new: Sequence[Scope], version: tuple[int, ...] | None) -> str:
    """The line that has HTTP/2 refuse what HTTP/1.1 takes, in servers that are to speak it.

    Empty for none. Limits that are only nginx's own are none: they are written (``with_sizes``).
    """
    for scope in _servers(new):
        buffers = header_buffers(scope)
        if version is None or version >= ONE_LIMIT_SINCE:
            first = scope.effective(FIRST_BUFFER)
            if first is not None and buffers.first_bytes > buffers.large_bytes:
                size = nginx_size(buffers.first_bytes)
                return (
                    f"{first.file}:{first.line} {first} lets longer headers pass over HTTP/1.1 "
                    f"than HTTP/2 takes, which goes by {LARGE_BUFFERS} (4 {size} there would do)"
                )
            continue
        for name, wanted in buffers.as_http2_sizes.items():
            line = scope.effective(name)
            have = None if line is None else parse_bytes(line.value)
            if line is not None and have is not None and have < wanted:
                return (
                    f"{line.file}:{line.line} {line} has HTTP/2 end connections whose request "
                    f"headers HTTP/1.1 takes ({nginx_size(wanted)} there would do)"
                )
    return ""


def with_sizes(decision: Decision, new: Sequence[Scope]) -> Decision:
    """The decision with the limits that its servers need, where they have none of their own."""
    settings = []
    for one in decision.settings:
        if one.directive not in (FIELD_SIZE, HEADER_SIZE):
            settings.append(one)
            continue
        lacking = [scope for scope in _servers(new) if scope.effective(one.directive) is None]
        if lacking:
            sizes = [header_buffers(s).as_http2_sizes[one.directive] for s in lacking]
            settings.append(replace(one, args=[nginx_size(max(sizes))]))
    return replace(decision, settings=settings)


def _servers(new: Sequence[Scope]) -> list[Scope]:
    return [scope for scope in new if scope.kind == "server"]
