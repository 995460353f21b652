"""Where a configuration and HTTP/2 do not go together: then it stays off, with the reason.

All requests of a page come over one connection, at once; what counts connections, reads the
version of the protocol, runs Lua or sends connections on by their name was made for HTTP/1.1;
so were headers that speak of the connection, and bodies that are passed on as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.change.plan.connection_headers import connection_header
from nginx_tune.change.plan.header_sizes import why_headers_refused
from nginx_tune.change.plan.own_connections import version_in
from nginx_tune.conf.ciphers import Fault, http2_fault
from nginx_tune.conf.connection_limits import PAGE_STREAMS, counted_limits, zone_keys
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import (
    ListenAddress,
    listeners,
    newly_multiplexed,
)
from nginx_tune.conf.protocol_variables import ProtocolVariables
from nginx_tune.conf.quantities import parse_count
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.sockets import socket_name
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upload_windows import held_uploads
from nginx_tune.conf.variables import variables_of
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import nginx_size

_OF_ALL = frozenset(
    ("host", "hostname", "http_host", "scheme", "server_addr", "server_name", "server_port")
)
"""What is the same for all clients of a server."""
_FAULTS: dict[Fault, str] = {
    "only": "allows over TLS 1.2 only ciphers that HTTP/2 forbids",
    "first": "has the server choose first what HTTP/2 forbids",
}
_LUA = re.compile(r"(?:server_rewrite|rewrite|access|content)_by_lua(?:_block|_file)?")
_SNI = re.compile(r"\$\{?ssl_preread_server_name\b")
_CHOOSES = ("return", "rewrite")
"""What answers by a text."""
OF_A_CONNECTION = "sends what is of a connection of HTTP/1.1, and clients end such an answer"
"""Of HTTP/2, and of HTTP/3 as well."""


def without_http2(decision: Decision, tree: ConfTree) -> tuple[str, list[str]]:
    """Why HTTP/2 is not to be written, empty if it may be, and what is to be known of it else."""
    found = listeners(tree)
    new = newly_multiplexed(tree)
    for limit in _limits(new, tree):
        return (
            f"{_place(limit)} counts each request of HTTP/2 in flight as a connection, and a "
            "browser has tens at once (audit: lim-conn-h2)"
        ), []
    if (line := _lua(new)) is not None:
        return f"{_place(line)}: Lua makes no subrequests of requests that came over HTTP/2", []
    if (line := _asks_version(new, tree)) is not None:
        return f"{_place(line)} tells HTTP/2 from HTTP/1.1", []
    if (line := connection_header(new)) is not None:
        return f"{_place(line)} {OF_A_CONNECTION} (RFC 9113, 8.2.2)", []
    for held in held_uploads(new):
        return (
            f"{_place(held.line)}: of such an upload HTTP/2 lets {nginx_size(held.window_bytes)} "
            "come in a round trip, and HTTP/1.1 as much as TCP does (client_body_buffer_size 1m "
            "there opens the window; audit: px-upload-window)"
        ), []
    if refused := why_headers_refused(new, version_in(decision.evidence)):
        return refused, []
    servers = {one.server for one in new}
    behind = [one for one in found if one.is_tls and servers & set(one.servers)]
    if (line := _chosen_by_name(tree, behind)) is not None:
        return (
            f"{_place(line)} sends connections on by their name, and over one of HTTP/2 a browser "
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
            f"{_place(line)}: over HTTP/2 a page asks for all its files at once, not six by six, "
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
        said = f"{_place(line)} {_FAULTS[fault]} (RFC 9113, appendix A)"
        if "tlsv1.3" not in words:
            return f"{said}, and browsers end such connections", []
        risks.append(f"{said}: browsers that come with TLS 1.2 end the connection")
    return "", list(dict.fromkeys(risks))


def _upgrades(new: list[Scope], decision: Decision) -> Iterator[str]:
    """Where an origin's ``Upgrade`` would go on to clients, who end such an answer.

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
                f"{_place(line)}: an Upgrade header of the origin (Apache with mod_http2 sends "
                "one over HTTP/1.1) goes on to clients, and browsers end such an answer of "
                "HTTP/2: proxy_hide_header Upgrade"
            )
            return


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"
