"""What a location's path says about who asks there: programs, or pages for their own files.

A path is a word of its author, not a proof: it decides only whether something is worth saying.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

_Test = Callable[[list[str]], bool]


def path_of(scope: Scope) -> str:
    """The path of the innermost location; empty in a server's own scope."""
    location = _location(scope)
    return "" if location is None else location.args[-1]


def is_front(scope: Scope) -> bool:
    """Whether most clients of a host come here: to the server as a whole, or to its ``/``."""
    return path_of(scope) in {"", "/"}


def is_for_programs(scope: Scope) -> bool:
    """Whether scripts and programs ask here, so that no answer is shown as a page."""
    return _each(scope, _is_for_programs)


def is_for_own_files(scope: Scope) -> bool:
    """Whether a site's own scripts, styles, pictures and fonts are all that is had here."""
    location = _location(scope)
    if location is not None and location.args[0] in {"~", "~*"}:
        found = _GROUP_OF_KINDS.search(location.args[-1])
        if found is not None and _KINDS.issuperset(found[1].split("|")):
            return True
    return _each(scope, lambda words: not _OWN_FILES.isdisjoint(words[-2:]))


def _location(scope: Scope) -> Directive | None:
    around = [one for one in scope.chain if one.name == "location" and one.args]
    return around[-1] if around else None


def _each(scope: Scope, holds: _Test) -> bool:
    """Whether it holds of each path that a location is for."""
    location = _location(scope)
    if location is None:
        return False
    is_pattern = location.args[0] in {"~", "~*"}
    paths = _alternatives(location.args[-1]) if is_pattern else [location.args[-1]]
    words = [_words(path) for path in paths]
    return bool(words) and all(one and holds(one) for one in words)


def _alternatives(pattern: str) -> list[str]:
    """The paths that a pattern's only group of words stands for; none where it is not so plain."""
    if not pattern.startswith("^"):
        return []
    found = _GROUP.search(pattern)
    if found is None:
        return [] if "(" in pattern.removesuffix("(.*)$").removesuffix("(.*)") else [pattern]
    return [
        pattern[: found.start()] + word + pattern[found.end() :] for word in found[1].split("|")
    ]


def _words(path: str) -> list[str]:
    plain = re.sub(r"\(?\.[*+]\)?|[\\^$?()]", "", path).lower()
    return [word for word in plain.split("/") if word]


def _is_for_programs(words: list[str]) -> bool:
    found = set(words)
    return not found & _SHOWN and any(
        word in _PROGRAMS or _VERSION.fullmatch(word) for word in found
    )


_GROUP = re.compile(r"\((?:\?:)?([\w./|-]+)\)", re.ASCII)
_GROUP_OF_KINDS = re.compile(r"\((?:\?:)?([\w|]+)\)/", re.ASCII)
_KINDS = frozenset({"css", "js", "img", "images", "fonts", "icons"})
_VERSION = re.compile(r"v[0-9]{1,2}")
_PROGRAMS = frozenset({
    "ws", "wss", "websocket", "websockets", "socket.io", "sockjs", "sockjs-node", "cable",
    "signalr", "mqtt", "xmpp-websocket", "api", "apis", "rest", "rpc", "jsonrpc", "json-rpc",
    "trpc", "grpc", "graphql", "webhook", "webhooks", "ajax", "sse", "longpolling", "http-bind",
    "xmlrpc", "xmlrpc.php", ".well-known", "_matrix", "_synapse", "remote.php", "webdav",
    "caldav", "carddav", "livereload",
})  # fmt: skip
_SHOWN = frozenset({
    "doc", "docs", "documentation", "swagger", "swagger-ui", "redoc", "explorer", "playground",
    "graphiql", "admin", "api-docs", "ui",
})  # fmt: skip
"""Pages beneath the path of an interface."""
_OWN_FILES = frozenset({
    "static", "assets", "css", "js", "img", "images", "fonts", "icons", "javascripts",
    "stylesheets", "bundles", "_nuxt", "webfonts", "favicon.ico",
})  # fmt: skip
