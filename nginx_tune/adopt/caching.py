"""Which places of a configuration may get a cache that they have not: those that answer all alike.

A cache tells requests apart by scheme, host and address. Where what is answered depends on who
asks, or on anything else that the lines themselves show, nobody has said that it may be kept for
others; an answer of ``auth_request`` would let the next one in. Such a place is left as it is, and
one around it too, since it would inherit the cache.

Source: ngx_http_upstream_cache() in ngx_http_upstream.c; ngx_http_auth_request_module.c, whose
        subrequest has the client's own ``$request_uri``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.variables import Variables, variables_of

_WHO_ASKS = (
    "auth_request", "auth_basic", "auth_jwt", "auth_digest", "auth_ldap", "auth_pam", "auth_gss",
    "ssl_verify_client", "access_by_lua", "access_by_lua_block", "access_by_lua_file", "js_access",
)  # fmt: skip
"""Directives by which nginx looks at who asks; those of modules of others too."""
_OTHER_REQUEST = ("proxy_method", "proxy_set_body")
"""What is sent is not what the client asked for."""
_IN_THE_KEY = frozenset({
    "scheme", "host", "http_host", "server_name", "server_port", "proxy_port", "request_uri", "uri",
    "document_uri", "args", "query_string", "is_args", "https", "proxy_host",
})  # fmt: skip
"""Variables that are the same wherever the key is."""
_OF_A_CLIENT = re.compile(r"remote_user|ssl_client_.*|cookie_.*|geoip2?_.*|jwt_.*")
_IGNORED = frozenset({"cache-control", "set-cookie", "vary"})
"""Headers by which a server forbids, or tells apart, what a cache keeps."""


class SharedAnswers:
    """Where a configuration answers all who ask alike."""

    def __init__(self, tree: ConfTree) -> None:
        self._variables = Variables(tree)
        every = scopes(tree)
        self._asked = dict(_asked_beside(tree, every))
        self._passing = [
            scope for scope in every if scope.own.block and scope.own.block.first("proxy_pass")
        ]

    def hindrance(self, scope: Scope) -> Directive | None:
        """The line because of which a place gets no cache; of those inside it too."""
        inside = (one for one in self._passing if scope.own in one.chain)
        return next((line for one in inside if (line := self._own(one)) is not None), None)

    def _own(self, scope: Scope) -> Directive | None:
        for around in reversed(scope.chain):
            if around in self._asked:
                return self._asked[around]
        inner = scope.sets("internal")
        if inner is not None:
            return inner
        for name in _WHO_ASKS:
            line = scope.effective(name)
            if line is not None and line.value.lower() != "off":
                return line
        for name in ("proxy_buffering", "proxy_pass_request_body"):
            line = scope.effective(name)
            if line is not None and line.value.lower() == "off":
                return line
        lines = (scope.effective(name) for name in _OTHER_REQUEST)
        return next(filter(None, lines), None) or self._told_apart(scope)

    def _told_apart(self, scope: Scope) -> Directive | None:
        """The line by which a server, or what it is sent, depends on more than the key."""
        target = scope.sets("proxy_pass")
        if target is not None and not all(
            self._is_in_key(name, scope) for name in variables_of(target.value)
        ):
            return target
        for line in scope.effective_all("proxy_set_header"):
            if any(map(_OF_A_CLIENT.fullmatch, variables_of(" ".join(line.args[1:])))):
                return line
        ignored = scope.effective("proxy_ignore_headers")
        if ignored is not None and _IGNORED & {arg.lower() for arg in ignored.args}:
            return ignored
        return None

    def _is_in_key(self, name: str, scope: Scope) -> bool:
        """Whether a variable is one thing for all who ask for one address of one host."""
        if name in _IN_THE_KEY or name.isdigit():
            return True
        values = self._variables.possible(f"${name}", scope)
        return values.complete and len(values.known) == 1


def _asked_beside(tree: ConfTree, every: list[Scope]) -> Iterator[tuple[Directive, Directive]]:
    """The locations that nginx itself asks beside a request, each with the line that has it ask."""
    matcher = LocationMatcher(tree)
    for scope in every:
        for name in ("auth_request", "mirror"):
            for line in scope.effective_all(name):
                path = line.value.partition("?")[0]
                if path.startswith("/") and "$" not in path:
                    found = matcher.location_of(scope.server, path)
                    if found is not None:
                        yield found, line
