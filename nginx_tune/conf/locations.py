"""Which location answers a request: nginx's own rules, over the text of a configuration.

Source: ngx_http_core_find_location and ngx_http_core_find_static_location in
        src/http/ngx_http_core_module.c; ngx_http_find_virtual_server in ngx_http_request.c;
        ngx_http_parse_complex_uri in ngx_http_parse.c.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import is_named_default
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree

_LONGEST_PATH = 2048
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


class LocationMatcher:
    """The servers and locations of a tree, asked by host and path."""

    def __init__(self, tree: ConfTree) -> None:
        self._servers = [server for _, server in servers(tree)]
        self._levels: dict[Directive, _Level] = {}
        self.unreadable: list[Directive] = []
        """Locations whose regular expression only nginx can read; taken not to match."""

    @property
    def server_count(self) -> int:
        """How many servers there are to choose from."""
        return len(self._servers)

    def server_of(self, host: str) -> Directive | None:
        """The server that answers for a host.

        When none names it, the first that is some address's default server by name, else the first.
        """
        if not self._servers:
            return None
        host = host.lower().partition(":")[0].rstrip(".")
        found = max(
            ((score, -at) for at, s in enumerate(self._servers) if (score := _score(s, host))),
            default=None,
        )
        if found is not None:
            return self._servers[-found[1]]
        return next(filter(is_named_default, self._servers), self._servers[0])

    def location_of(self, server: Directive, path: str) -> Directive | None:
        """The location that answers for a path as it was asked for; None when none matches."""
        return self._find(server, normalised(path[:_LONGEST_PATH]))[1]

    def _find(self, around: Directive, uri: str) -> tuple[bool, Directive | None]:
        """Whether the search is over, and the location."""
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
        """A location of one word, whose modifier may stand before the name without a space."""
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
    """The pattern, read as PCRE writes groups with names."""
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", text), flags)
    except (re.error, RecursionError, OverflowError):
        return None


def _score(server: Directive, host: str) -> tuple[int, int] | None:
    """How well a server's names match: exact, then ``*.name``, then ``name.*``, then a pattern."""
    best: tuple[int, int] | None = None
    for line in (server.block or Block([])).all("server_name"):
        for name in line.args:
            score = name_score(name.lower(), host, name)
            if score is not None and (best is None or score > best):
                best = score
    return best


def name_score(name: str, host: str, raw: str) -> tuple[int, int] | None:
    """How well a name in lower case matches a host; None for not at all. ``raw`` is as written."""
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
    """A path as nginx compares it: decoded, slashes merged, ``.`` and ``..`` resolved."""
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
