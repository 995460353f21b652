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
from collections.abc import Iterator, Sequence

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.event_streams import stream_sign
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.variables import Variables, variables_of

_WHO_ASKS = (
    "auth_request", "auth_basic", "auth_jwt", "auth_digest", "auth_ldap", "auth_pam", "auth_gss",
    "ssl_verify_client", "access_by_lua", "access_by_lua_block", "access_by_lua_file", "js_access",
)  # fmt: skip
"""Directives by which nginx looks at who asks; those of modules of others too."""
_PUT_TOGETHER = ("ssi", "slice")
"""A page of several requests with one ``$request_uri``, or of parts with one key."""
_NO = (
    "proxy_method", "proxy_set_body", "add_before_body", "add_after_body", "proxy_cache", "deny",
)  # fmt: skip
"""What is sent is not what the client asked for, or a line that says no."""
_ON_THE_WAY = ("proxy_buffering", "proxy_pass_request_body")
"""Directives whose ``off`` means a place where answers pass through."""
_IN_THE_KEY = frozenset({
    "scheme", "host", "http_host", "server_name", "server_port", "proxy_port", "request_uri", "uri",
    "document_uri", "args", "query_string", "is_args", "https", "proxy_host", "request_method",
    "request_filename", "document_root",
})  # fmt: skip
"""Variables that are the same wherever the key is; of methods a cache knows GET, and HEAD as GET.
"""
_TOLD_ALWAYS = frozenset({
    "connection", "upgrade", "forwarded", "via", "x-real-ip", "x-request-id", "origin",
    "user-agent", "referer", "accept", "accept-encoding", "accept-language", "authorization",
    "x-client-ip", "x-scheme", "x-url-scheme", "x-original-uri", "x-original-host",
    "front-end-https", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host",
    "x-forwarded-port", "x-forwarded-scheme", "x-forwarded-ssl", "x-forwarded-server",
    "x-forwarded-prefix", "x-forwarded-uri",
})  # fmt: skip
"""Headers that servers are told for their logs and links, or that all clients send them anyway."""
_FORBIDS = frozenset({"cache-control", "set-cookie", "vary"})
"""Headers by which a server forbids, or tells apart, what a cache keeps."""
_HARMLESS = frozenset({"return", "access_log", "limit_rate", "expires", "add_header", "set"})
"""Of an ``if``: what ends a request without asking a server, or does not change which is asked."""
_SIGNED = re.compile(r"amazonaws\.com|storage\.googleapis\.com|\bminio\b", re.IGNORECASE)
"""Servers whose requests are signed, method and headers too, which a cache would change."""


class SharedAnswers:
    """Where a configuration answers all who ask alike."""

    def __init__(self, tree: ConfTree) -> None:
        self._variables = Variables(tree)
        every = scopes(tree)
        self._asked = dict(_led_to(tree, every))
        self._passing = [
            scope for scope in every if scope.own.block and scope.own.block.first("proxy_pass")
        ]

    def hindrance(self, scope: Scope) -> Directive | None:
        """The line because of which a place gets no cache; of those inside it too."""
        inside = (one for one in self._passing if scope.own in one.chain)
        return next((line for one in inside if (line := self._own(one)) is not None), None)

    def _own(self, scope: Scope) -> Directive | None:
        led = (self._asked.get(around) for around in scope.chain)
        return (
            next(filter(None, led), None)
            or scope.sets("internal")
            or _line_that_says_no(scope)
            or stream_sign(scope)
            or self._by_conditions(scope)
            or self._told_apart(scope)
            or _signed(scope)
        )

    def _by_conditions(self, scope: Scope) -> Directive | None:
        """The ``if`` or ``rewrite`` by which one address leads to several places."""
        for level in scope.chain:
            if level.name == "if" and not self._is_in_key(level.args, scope):
                return level
            if level.name not in ("server", "location"):
                continue
            for line in level.block or Block([]):
                if line.name == "rewrite" and not self._is_in_key(line.args[1:2], scope):
                    return line
                if line.name == "try_files" and not self._is_in_key(line.args, scope):
                    return line
                if line.name == "if" and _leads_elsewhere(line) and not self._is_in_key(
                    line.args, scope
                ):  # fmt: skip
                    return line
        return None

    def _told_apart(self, scope: Scope) -> Directive | None:
        """The line by which a server, or what it is sent, depends on more than the key."""
        target = scope.sets("proxy_pass")
        if target is not None and not self._is_in_key(target.args[:1], scope):
            return target
        for line in scope.effective_all("proxy_set_header"):
            name = line.value.lower()
            if name.startswith(("if-", "range")):
                return line  # what is kept would be a part of the page, or none
            if name not in _TOLD_ALWAYS and not self._is_in_key(line.args[1:], scope):
                return line
        ignored = scope.effective("proxy_ignore_headers")
        if ignored is not None and _FORBIDS & {arg.lower() for arg in ignored.args}:
            return ignored
        return None

    def _is_in_key(self, words: Sequence[str], scope: Scope) -> bool:
        """Whether a text is one thing for all who ask for one address of one host."""
        return all(self._is_one(name, scope) for name in variables_of(" ".join(words)))

    def _is_one(self, name: str, scope: Scope) -> bool:
        if name in _IN_THE_KEY or name.isdigit():
            return True
        values = self._variables.possible(f"${name}", scope)
        return values.complete and len(values.known) == 1


def _line_that_says_no(scope: Scope) -> Directive | None:
    for name in _WHO_ASKS + _PUT_TOGETHER:
        line = scope.effective(name)
        if line is not None and line.value.lower() not in ("off", "0"):
            return line
    for name in _ON_THE_WAY:
        line = scope.effective(name)
        if line is not None and line.value.lower() == "off":
            return line
    return next(filter(None, map(scope.effective, _NO)), None)


def _leads_elsewhere(condition: Directive) -> bool:
    """Whether an ``if`` may have another place or server answer."""
    return any(line.name not in _HARMLESS for line in condition.block or ())


def _signed(scope: Scope) -> Directive | None:
    """What shows a store whose clients sign method and headers: S3, a registry of images.

    A cache asks for HEAD as GET, and takes ``Range`` off. Source: ngx_http_upstream_cache(),
    ngx_http_proxy_cache_headers.
    """
    whole = scope.effective("client_max_body_size")
    if whole is not None and whole.value in ("0", "0k", "0m", "0g"):
        return whole
    places = [level for level in scope.chain if level.name == "location" and level.args]
    told = [scope.sets("proxy_pass"), *scope.effective_all("proxy_set_header")]
    names = (line for line in told if line is not None and _SIGNED.search(" ".join(line.args)))
    return next(names, None) or next((p for p in places if p.args[-1].startswith("/v2/")), None)


def _led_to(tree: ConfTree, every: list[Scope]) -> Iterator[tuple[Directive, Directive]]:
    """The locations that nginx itself asks beside a request, or after one, each with the line.

    An ``error_page`` with an address is told apart by it in the key; a named location has none.
    """
    matcher = LocationMatcher(tree)
    named = {
        (scope.server, scope.own.args[-1]): scope.own
        for scope in every
        if scope.own.args[-1:] and scope.own.args[-1].startswith("@")
    }
    for scope in every:
        for line in scope.effective_all("error_page"):
            found = named.get((scope.server, line.args[-1] if line.args else ""))
            if found is not None:
                yield found, line
        for line in [*scope.effective_all("auth_request"), *scope.effective_all("mirror")]:
            path = line.value.partition("?")[0]
            if path.startswith("/") and "$" not in path:
                found = matcher.location_of(scope.server, path)
                if found is not None:
                    yield found, line
