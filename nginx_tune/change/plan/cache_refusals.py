"""Lines that say, by standing where they stand, that answers are not to be kept for others."""

from __future__ import annotations

import re

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

_WHO_ASKS = re.compile(
    r"auth_(?!basic_user_file|request_set|jwt_key_\w+)\w+|ssl_verify_client|js_access|testcookie"
    r"|\w*_by_lua\w*|more_(?:set|clear)_input_headers"
)
"""Directives by which nginx looks at who asks, or a script does; those of modules of others too."""
_PUT_TOGETHER = ("ssi", "slice")
"""A page of several requests with one ``$request_uri``, or of parts with one key."""
_NO = ("proxy_method", "proxy_set_body", "add_before_body", "add_after_body", "proxy_store")
"""What is sent is not what the client asked for, or is kept already."""
_ON_THE_WAY = ("proxy_buffering", "proxy_pass_request_body")
"""Directives whose ``off`` means a place where answers pass through."""
_NOT_KEPT = re.compile(r"private|no-store|no-cache", re.IGNORECASE)
_SIGNED = re.compile(r"amazonaws\.com|storage\.googleapis\.com|\bminio\b", re.IGNORECASE)
"""Servers whose requests are signed, method and headers too, which a cache would change."""


def line_that_says_no(scope: Scope) -> Directive | None:
    """A directive in effect that rules a cache out.

    What stands of a cache, without one, was written for another: its key, its times, its ``off``.
    """
    for name in sorted(scope.tree.names):
        is_asking = _WHO_ASKS.fullmatch(name) is not None
        line = scope.effective(name) if is_asking or name in _PUT_TOGETHER else None
        if line is not None and line.value.lower() not in ("off", "0"):
            return line
        if name.startswith(("proxy_cache", "proxy_no_cache")) and name != "proxy_cache_path":
            line = scope.effective(name)
            if line is not None:
                return line
    for name in _ON_THE_WAY:
        line = scope.effective(name)
        if line is not None and line.value.lower() == "off":
            return line
    return next(filter(None, map(scope.effective, _NO)), None) or _told_to_clients(scope)


def _told_to_clients(scope: Scope) -> Directive | None:
    """The line by which clients are told not to keep an answer."""
    for line in scope.effective_all("add_header"):
        if line.value.lower() == "cache-control" and _NOT_KEPT.search(" ".join(line.args[1:])):
            return line
    expires = scope.effective("expires")
    if expires is not None and expires.value.lower().startswith(("epoch", "-")):
        return expires
    return None


def signed(scope: Scope) -> Directive | None:
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
