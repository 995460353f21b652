"""Which places of a configuration may get a cache that they have not: those that answer all alike.

A cache tells requests apart by server and address. Where what is answered depends on who asks, or
on anything else that the lines themselves show, nobody has said that it may be kept for others; an
answer of ``auth_request`` would let the next one in. Such a place is left as it is, and one around
it too, since it would inherit the cache.

Source: ngx_http_upstream_cache() in ngx_http_upstream.c; ngx_http_auth_request_module.c, whose
        subrequest has the client's own ``$request_uri``, as those of SSI and of ``error_page``
        have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from nginx_tune.change.plan.cache_refusals import line_that_says_no, signed
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.event_streams import stream_sign
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, http_directives, scopes, servers
from nginx_tune.conf.sockets import USUAL_PORT
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.variables import Variables, variables_of

_IN_THE_KEY = frozenset({
    "scheme", "host", "http_host", "server_name", "server_port", "proxy_port", "request_uri", "uri",
    "document_uri", "args", "query_string", "is_args", "https", "proxy_host", "request_method",
    "request_filename", "document_root", "http_accept_encoding",
})  # fmt: skip
"""Variables that are the same wherever the key is (``cache_key.KEY_AMONG_OTHERS``); of methods a
cache knows GET, and HEAD as GET."""
_OF_THE_REQUEST = frozenset({
    "remote_addr", "realip_remote_addr", "remote_port", "proxy_protocol_addr", "http_upgrade",
    "proxy_add_x_forwarded_for", "request_id", "msec", "time_local", "time_iso8601", "connection",
})  # fmt: skip
"""What servers are told of each request for their logs."""
_SENT_ALONG = frozenset({
    "user-agent", "referer", "accept", "accept-encoding", "accept-language", "origin",
    "authorization", "x-request-id",
})  # fmt: skip
"""Headers that clients send to servers in any case: to name one of them as it came adds nothing."""
_FORBIDS = frozenset({"cache-control", "set-cookie", "vary"})
"""Headers by which a server forbids, or tells apart, what a cache keeps."""
_HARMLESS = frozenset({"return", "access_log", "limit_rate", "expires", "add_header", "set"})
"""Of an ``if``: what ends a request without asking a server, or does not change which is asked."""
_AS_WHOM = ("proxy_bind", "proxy_ssl_certificate", "proxy_ssl_name")
_CAPTURE = re.compile(r"\(\?P?<(\w+)>")


class SharedAnswers:
    """Where a configuration answers all who ask alike."""

    def __init__(self, tree: ConfTree) -> None:
        self._variables = Variables(tree)
        every = scopes(tree)
        self._asked = dict(_asked_beside(tree, every))
        self._alike = _servers_alike(tree)
        self._maps: dict[str, list[Directive]] = {}
        for line in http_directives(tree):
            if line.name == "map" and len(line.args) > 1:
                self._maps.setdefault(line.args[1].lstrip("$").lower(), []).append(line)
        self._passing = [
            scope for scope in every if scope.own.block and scope.own.block.first("proxy_pass")
        ]

    def hindrance(self, scope: Scope) -> Directive | None:
        """The line because of which a place gets no cache; of those inside it too."""
        return self._hindered.get(scope.own)

    @cached_property
    def _hindered(self) -> dict[Directive, Directive]:
        """The blocks around a place that gets no cache, each with the first line that says so."""
        found: dict[Directive, Directive] = {}
        for scope in self._passing:
            line = self._own(scope)
            if line is not None:
                for around in scope.chain:
                    found.setdefault(around, line)
        return found

    def _own(self, scope: Scope) -> Directive | None:
        led = (self._asked.get(around) for around in scope.chain)
        return (
            next(filter(None, led), None)
            or _by_name(scope)
            or line_that_says_no(scope)
            or stream_sign(scope)
            or self._by_conditions(scope)
            or self._told_apart(scope)
            or signed(scope)
            or (scope.server if scope.server in self._alike else None)
        )

    def _by_conditions(self, scope: Scope) -> Directive | None:
        """The ``if`` or ``rewrite`` by which one address leads to several places."""
        for level in scope.chain:
            if level.name == "if" and not self._is_in_key(level.args, scope):
                return level
            if level.name not in ("server", "location"):
                continue
            for line in level.block or Block([]):
                words: Sequence[str] = ()
                if line.name == "rewrite":
                    words = line.args[1:2]
                elif line.name == "try_files" or (line.name == "if" and _leads_elsewhere(line)):
                    words = line.args
                if not self._is_in_key(words, scope):
                    return line
        return None

    def _told_apart(self, scope: Scope) -> Directive | None:
        """The line by which a server, or what it is sent, depends on more than the key."""
        for name in ("proxy_pass", *_AS_WHOM):
            line = scope.effective(name) if name != "proxy_pass" else scope.sets(name)
            if line is not None and not self._is_in_key(line.args[:1], scope):
                return line
        for line in scope.effective_all("proxy_set_header"):
            if not self._tells_nothing(line, scope):
                return line
        ignored = scope.effective("proxy_ignore_headers")
        if ignored is not None and _FORBIDS & {arg.lower() for arg in ignored.args}:
            return ignored
        return None

    def _tells_nothing(self, line: Directive, scope: Scope) -> bool:
        """Whether a header that a server is sent says no more than the key, or what it logs."""
        name = line.value.lower()
        if name.startswith(("if-", "range")):
            return False  # what is kept would be a part of the page, or none
        if name == "connection":  # an upgrade would be answered by a page that is kept
            return " ".join(line.args[1:]).lower() in ("", "close", "keep-alive")
        same = f"http_{name.replace('-', '_')}" if name in _SENT_ALONG else ""
        return all(
            one in _OF_THE_REQUEST or one == same or self._is_one(one, scope)
            for one in variables_of(" ".join(line.args[1:]))
        )

    def _is_in_key(self, words: Sequence[str], scope: Scope) -> bool:
        """Whether a text is one thing for all who ask for one address of one host."""
        return all(self._is_one(name, scope) for name in variables_of(" ".join(words)))

    def _is_one(self, name: str, scope: Scope, seen: frozenset[str] = frozenset()) -> bool:
        if name in _IN_THE_KEY or name.isdigit() or name in _captures(scope):
            return True
        values = self._variables.possible(f"${name}", scope)
        if values.complete and len(values.known) == 1:
            return True
        tables = self._maps.get(name, [])
        if name in seen or len(tables) != 1 or _is_set(name, scope):
            return False
        words = [tables[0].args[0], *(" ".join(one.args) for one in tables[0].block or ())]
        used = variables_of(" ".join(words))
        return all(self._is_one(one, scope, seen | {name}) for one in used)


def _by_name(scope: Scope) -> Directive | None:
    """A place that nginx goes to by itself, with the address of the request that led to it.

    Source: ngx_http_named_location(), by error_page, try_files, X-Accel-Redirect and scripts.
    """
    is_named = any(level.args[-1:] and level.args[-1].startswith("@") for level in scope.chain)
    return scope.own if is_named else scope.sets("internal")


def _captures(scope: Scope) -> set[str]:
    """Names that regular expressions of the server's name and of the locations give."""
    texts = [arg for level in scope.chain if level.name == "location" for arg in level.args]
    names = scope.server.block.all("server_name") if scope.server.block else ()
    texts += [arg for line in names for arg in line.args]
    return {found.lower() for text in texts for found in _CAPTURE.findall(text)}


def _is_set(name: str, scope: Scope) -> bool:
    lines = (line for level in scope.chain for line in (level.block or Block([])).walk())
    return any(line.name == "set" and line.value.lstrip("$").lower() == name for line in lines)


def _leads_elsewhere(condition: Directive) -> bool:
    """Whether an ``if`` may have another place or server answer."""
    return any(line.name not in _HARMLESS for line in condition.block or ())


def _asked_beside(tree: ConfTree, every: Sequence[Scope]) -> Iterator[tuple[Directive, Directive]]:
    """The locations that nginx itself asks beside a request, each with the line."""
    matcher = LocationMatcher(tree)
    for scope in every:
        for line in [*scope.effective_all("auth_request"), *scope.effective_all("mirror")]:
            path = line.value.partition("?")[0]
            if path.startswith("/") and "$" not in path:
                found = matcher.location_of(scope.server, path)
                if found is not None:
                    yield found, line


_UNSAID = frozenset({(USUAL_PORT, USUAL_PORT)})


def _servers_alike(tree: ConfTree) -> set[Directive]:
    """Servers of one name and port, on different addresses: the key has no address."""
    ports = _ports(tree)
    names = {
        server: {(_first_name(server), port) for port in ports.get(server, _UNSAID)}
        for _, server in servers(tree)
    }
    counted = Counter(pair for pairs in names.values() for pair in pairs)
    return {server for server, pairs in names.items() if any(counted[one] > 1 for one in pairs)}


def _first_name(server: Directive) -> str:
    """``$server_name``. Source: ngx_http_core_server_name(), the first of them."""
    line = server.block.first("server_name") if server.block else None
    return "" if line is None else line.value.lower()


def _ports(tree: ConfTree) -> dict[Directive, set[tuple[int, int]]]:
    """``$server_port`` of each listener, as a range of them; 0 for a socket of the file system."""
    found: dict[Directive, set[tuple[int, int]]] = {}
    for one in listeners(tree):
        for server in one.servers:
            found.setdefault(server, set()).add((one.socket.first, one.socket.last))
    return found
