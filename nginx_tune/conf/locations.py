"""Locations: selection for a request by nginx's rules, and hints from their paths.

Source: ngx_http_core_find_location and ngx_http_core_find_static_location in
        src/http/ngx_http_core_module.c; ngx_http_find_virtual_server in ngx_http_request.c;
        ngx_http_parse_complex_uri in ngx_http_parse.c.

A path may suggest that its clients are programs or monitors, or that files are replaced while
clients read them. Such a hint is no proof, so it only decides whether a finding is reported. A
location with ``stub_status`` certainly responds with the page of nginx's counters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import is_named_default, socket_name
from nginx_tune.conf.scopes import Scope, scopes, servers
from nginx_tune.conf.tree import ConfTree

_LONGEST_PATH = 2048
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


class LocationMatcher:
    """Finds the server for a host and the location for a path."""

    def __init__(self, tree: ConfTree) -> None:
        self.servers = [server for _, server in servers(tree)]
        self._levels: dict[Directive, _Level] = {}
        self.unreadable: list[Directive] = []
        """Locations whose regular expression Python cannot compile; assumed not to match."""

    def server_of(self, host: str) -> Directive | None:
        """The server for a host.

        If none names the host, it is the first one with ``default_server``, else the first one.
        """
        if not self.servers:
            return None
        host = host.lower().partition(":")[0].rstrip(".")
        found = max(
            ((score, -at) for at, s in enumerate(self.servers) if (score := _score(s, host))),
            default=None,
        )
        if found is not None:
            return self.servers[-found[1]]
        return next(filter(is_named_default, self.servers), self.servers[0])

    def locations_in(self, around: Directive) -> Iterator[Directive]:
        """The locations inside a server or location, outer ones first."""
        self._level(around)  # fills ``unreadable``
        for location in (around.block or Block([])).all("location"):
            yield location
            yield from self.locations_in(location)

    def location_of(self, server: Directive, path: str) -> Directive | None:
        """The location for a path as the client sends it; None if none matches."""
        return self._find(server, normalised(path[:_LONGEST_PATH]))[1]

    def _find(self, around: Directive, uri: str) -> tuple[bool, Directive | None]:
        """A pair: True if no other location may match, and the location found so far."""
        level = self._level(around)
        if uri in level.exact:
            return True, level.exact[uri]
        prefix = max((p for p in level.prefixes if uri.startswith(p)), key=len, default=None)
        found = None if prefix is None else level.prefixes[prefix]
        if found is not None:
            is_over, inner = self._find(found, uri)
            found = inner or found
            if is_over or "^~" in found.args:
                return is_over, found
        for pattern, location in level.patterns:
            if pattern.search(uri):
                _, inner = self._find(location, uri)
                return True, inner or location
        return False, found

    def _level(self, around: Directive) -> _Level:
        if around not in self._levels:
            self._levels[around] = _Level(around, self.unreadable)
        return self._levels[around]


class _Level:
    """The locations directly inside a server or location."""

    def __init__(self, around: Directive, unreadable: list[Directive]) -> None:
        self.exact: dict[str, Directive] = {}
        self.prefixes: dict[str, Directive] = {}
        self.patterns: list[tuple[re.Pattern[str], Directive]] = []
        for location in (around.block or Block([])).all("location"):
            match location.args:
                case ("=", uri):
                    self.exact.setdefault(uri, location)
                case ("~", text):
                    self._add_pattern(text, location, 0, unreadable)
                case ("~*", text):
                    self._add_pattern(text, location, re.IGNORECASE, unreadable)
                case ("^~", uri):
                    self.prefixes.setdefault(uri, location)
                case (uri,):
                    self._add_joined(uri, location, unreadable)
                case _:
                    pass

    def _add_joined(self, text: str, location: Directive, unreadable: list[Directive]) -> None:
        """Add a location of one word, in which a modifier may directly precede the path."""
        if text.startswith("="):
            self.exact.setdefault(text[1:], location)
        elif text.startswith("^~"):
            self.prefixes.setdefault(text[2:], location)
        elif text.startswith("~*"):
            self._add_pattern(text[2:], location, re.IGNORECASE, unreadable)
        elif text.startswith("~"):
            self._add_pattern(text[1:], location, 0, unreadable)
        elif not text.startswith("@"):
            self.prefixes.setdefault(text, location)

    def _add_pattern(
        self, text: str, location: Directive, flags: int, unreadable: list[Directive]
    ) -> None:
        pattern = compiled_pattern(text, flags)
        if pattern is None:
            unreadable.append(location)
        else:
            self.patterns.append((pattern, location))


@lru_cache(maxsize=1024)
def compiled_pattern(text: str, flags: int) -> re.Pattern[str] | None:
    """A pattern with named groups in PCRE's syntax; None if Python cannot compile it."""
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", text), flags)
    except (re.error, RecursionError, OverflowError):
        return None


def _score(server: Directive, host: str) -> tuple[int, int] | None:
    """The rank of a server's best name: exact, then ``*.name``, then ``name.*``, then a pattern."""
    best: tuple[int, int] | None = None
    for line in (server.block or Block([])).all("server_name"):
        for name in line.args:
            score = name_score(name.lower(), host, name)
            if score is not None and (best is None or score > best):
                best = score
    return best


def name_score(name: str, host: str, raw: str) -> tuple[int, int] | None:
    """The rank of a name in lower case for a host; None for no match. ``raw`` is as written."""
    if name == host:
        return 4, 0
    if name.startswith(".") and (host == name[1:] or host.endswith(name)):
        return (4, 0) if host == name[1:] else (3, len(name))
    if name.startswith("*.") and host.endswith(name[1:]):
        return 3, len(name) - 1
    if name.endswith(".*") and host.startswith(name[:-1]):
        return 2, len(name)
    if name.startswith("~"):
        pattern = compiled_pattern(raw[1:], re.IGNORECASE)
        return (1, 0) if pattern is not None and pattern.search(host) else None
    return None


def normalised(path: str) -> str:
    """A path as nginx matches it: decoded, slashes merged, ``.`` and ``..`` resolved."""
    text = path
    if "%" in path:
        raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), path.encode().decode("latin-1"))
        text = raw.encode("latin-1").decode(errors="replace")
    parts: list[str] = []
    words = text.split("/")
    for word in words[1:]:
        if word == "..":
            del parts[-1:]
        elif word not in {"", "."}:
            parts.append(word)
    is_directory = words[-1] in {"", ".", ".."} and bool(parts)
    return "/" + "/".join(parts) + ("/" if is_directory else "")


_Test = Callable[[list[str]], bool]


def path_of(scope: Scope) -> str:
    """The path of the innermost location; empty in a server's own scope."""
    location = _location(scope)
    return "" if location is None else location.args[-1]


def is_front(scope: Scope) -> bool:
    """True for a server's own scope or its ``/``, which most clients of a host request first."""
    return path_of(scope) in {"", "/"}


def is_for_programs(scope: Scope) -> bool:
    """True if scripts and programs request the scope, so that no response is shown as a page."""
    return _each(scope, _is_for_programs)


def is_for_websockets(scope: Scope) -> bool:
    """True if a location's path ends in a word for WebSockets or streams of events."""
    return _each(scope, lambda words: words[-1] in _WEBSOCKETS)


def is_for_own_files(scope: Scope) -> bool:
    """True if only a site's own scripts, styles, images and fonts are served here."""
    location = _location(scope)
    if location is not None and location.args[0] in {"~", "~*"}:
        found = _GROUP_OF_KINDS.search(location.args[-1])
        if found is not None and _KINDS.issuperset(found[1].split("|")):
            return True
    return _each(scope, lambda words: not _OWN_FILES.isdisjoint(words[-2:]))


def _location(scope: Scope) -> Directive | None:
    around = [
        directive for directive in scope.chain if directive.name == "location" and directive.args
    ]
    return around[-1] if around else None


def _each(scope: Scope, holds: _Test) -> bool:
    """True if ``holds`` is true for the words of each path that a location covers."""
    location = _location(scope)
    if location is None:
        return False
    is_pattern = location.args[0] in {"~", "~*"}
    paths = _alternatives(location.args[-1]) if is_pattern else [location.args[-1]]
    words = [_words(path) for path in paths]
    return bool(words) and all(one and holds(one) for one in words)


def _alternatives(pattern: str) -> list[str]:
    """The paths of a pattern that has one group of words; empty for any other pattern."""
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
_WEBSOCKETS = frozenset({
    "ws", "wss", "websocket", "websockets", "sockjs-node", "cable", "xmpp-websocket", "streaming",
})  # fmt: skip
"""The clients of ``socket.io``, ``sockjs`` and ``signalr`` may poll instead."""
_SHOWN = frozenset({
    "doc", "docs", "documentation", "swagger", "swagger-ui", "redoc", "explorer", "playground",
    "graphiql", "admin", "api-docs", "ui",
})  # fmt: skip
"""Pages for people beneath the path of an API."""
_OWN_FILES = frozenset({
    "static", "assets", "css", "js", "img", "images", "fonts", "icons", "javascripts",
    "stylesheets", "bundles", "_nuxt", "webfonts", "favicon.ico",
})  # fmt: skip


_EVERY = {"*": "127.0.0.1", "[::]": "::1"}


class StatusLocation(NamedTuple):
    """One address and path of a ``stub_status`` page."""

    address: str
    port: int
    path: str
    host: str
    tls: bool


def status_locations(tree: ConfTree) -> list[StatusLocation]:
    """Every location with stub_status that is reachable over TCP, cleartext ones first."""
    found = []
    for scope in scopes(tree):
        if scope.kind != "location" or scope.sets("stub_status") is None:
            continue
        path = _path(scope.own)
        server = scope.server.block or Block([])
        if path is None:
            continue
        names = [name for line in server.all("server_name") for name in line.args]
        host = next((n for n in names if n and not set(n) & set("*~^$")), "localhost")
        lines = server.all("listen")
        places = [_listen(line) for line in lines] if lines else [("127.0.0.1", 80, False)]
        found += [
            StatusLocation(place[0], place[1], path, host, place[2])
            for place in places
            if place is not None
        ]
    return sorted(found, key=lambda status_location: status_location.tls)


def is_for_monitors(scope: Scope) -> bool:
    """True if the last word of a location's path suggests monitoring (a few requests a minute)."""
    return names_monitors(scope.own)


def names_monitors(block: Directive) -> bool:
    """True if the last word of a location block's path suggests monitoring."""
    path = block.args[-1] if block.name == "location" and block.args else ""
    words = re.sub(r"[\\^$()?:]", "", path).strip("/").lower().rpartition("/")[2]
    return all(re.sub(r"[-_.]", "", word) in _MONITORED for word in words.split("|"))


_MONITORED = frozenset(
    {
        "health", "healthz", "healthcheck", "healthy", "ping", "ready", "readyz", "readiness",
        "live", "livez", "liveness", "metrics", "status", "nginxstatus", "heartbeat",
        "fpmstatus", "fpmping",
    }
)  # fmt: skip


def _path(location: Directive) -> str | None:
    match location.args:
        case ("=" | "^~", uri) | (uri,) if uri.startswith("/"):
            return uri
    return None


def _listen(line: Directive) -> tuple[str, int, bool] | None:
    """Address, port and TLS of a ``listen``; None if the address is not TCP."""
    name = socket_name(line.value)
    if not name.first or {"quic", "proxy_protocol"} & {*line.args[1:]}:
        return None
    host = _EVERY.get(name.host, name.host.strip("[]"))
    return host, name.first, "ssl" in line.args[1:]


_WRITES = frozenset(
    {
        "dav_methods", "dav_ext_methods", "create_full_put_path", "proxy_store", "fastcgi_store",
        "uwsgi_store", "scgi_store", "upload_store", "upload_pass", "hls", "dash", "hls_path",
        "dash_path", "record_path", "push_stream_store_messages",
    }
)  # fmt: skip
"""Directives that make nginx itself write files or playlists. Some are from nginx-rtmp-module and
nginx-upload-module."""
_OWN_TYPES = 20
"""Maximum length of a ``types`` block written by hand; nginx's own list always has playlists."""
_PLAYLISTS = frozenset({"m3u8", "mpd"})
_PATH = re.compile(r"m3u8|\bmpd\b|(^|[/^(|])(hls|dash|live|dav|webdav)([/$)|]|$)", re.IGNORECASE)
"""Names of live stream playlists and WebDAV shares."""


def is_live_path(path: str) -> bool:
    """True if a directory or location is named like live streams or shares."""
    return _PATH.search(path) is not None


def live_signs(tree: ConfTree) -> list[str]:
    """The lines that suggest live content, each with its place; empty if there are none.

    Shape: ``/etc/nginx/nginx.conf:12 dav_methods PUT DELETE``.
    """
    found = (f"{line.file}:{line.line} {line}" for line in _lines(tree))
    return list(dict.fromkeys(found))


def _lines(tree: ConfTree) -> Iterator[Directive]:
    for line in tree.main.walk():
        if line.name in _WRITES:
            if line.value.lower() != "off":
                yield line
        elif line.name == "location" and line.args and is_live_path(line.args[-1]):
            yield line
        elif line.name == "types" and line.block is not None:
            inner = line.block.directives
            if len(inner) <= _OWN_TYPES:
                yield from (directive for directive in inner if _PLAYLISTS & {*directive.args})
