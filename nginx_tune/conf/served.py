"""Directories of files: served by a scope (root or alias), or used by a cache.

nginx's cache loader deletes any other file in a cache directory, so a cache needs a directory of
its own. Names of shared memory zones are global: the first module to use a name owns it.

Source: ngx_http_file_cache.c (ngx_http_file_cache_set_slot, ngx_http_file_cache_loader,
ngx_http_file_cache_manage_file). ngx_shared_memory_add() rejects a second use of a name ("already
bound to another key", "already declared for a different use"), and nginx does not start.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_blocks, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass
from nginx_tune.conf.values import parse_bytes
from nginx_tune.conf.variables import Variables

_CACHES = ("proxy_cache", "fastcgi_cache", "uwsgi_cache", "scgi_cache")
_ANSWERS = frozenset(
    {
        "return", "stub_status", "empty_gif", "js_content", "perl", "status", "api", "echo",
        "echo_exec", "passenger_enabled", "vhost_traffic_status_display", "nchan_publisher",
        "nchan_subscriber", "nchan_pubsub", "rtmp_stat", "rtmp_control", "push_stream_publisher",
        "push_stream_subscriber", "prometheus",
    }
)  # fmt: skip
"""Directives that respond without files of the scope's root."""


_EVERYTHING = frozenset({"^", "^/", ".*", "^.*", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$", "^.*$"})
_URL = re.compile(r"https?://|\$scheme://")


class Served(NamedTuple):
    """A directory that a scope serves from."""

    scope: Scope
    path: str
    """The scope's root or alias, extended by the location's URI."""
    root: str
    """The scope's root, alias or cache directory alone."""
    via: Literal["root", "alias", "cache"]
    place: Directive
    """The line that sets the directory for this scope."""
    is_whole: bool
    """False if the location's URI narrows the directory to one file."""


def served_paths(
    tree: ConfTree, every: Iterable[Scope] | None = None, variables: Variables | None = None
) -> list[Served]:
    """Every (scope, directory) of a tree with a constant path or known values.

    ``every`` (all scopes) and ``variables`` are the tree's, if they were computed already.
    """
    variables = variables or Variables(tree)
    zones = {cache.zone: cache.place for cache in caches(tree) if cache.zone}
    has_caches = not tree.names.isdisjoint(_CACHES)
    found: list[Served] = []
    for scope in scopes(tree) if every is None else every:
        if _is_hidden(scope) or _changes_nothing(scope):
            continue
        cache = _cache(scope) if has_caches else None
        if cache is not None:
            found += _cached(scope, cache, zones, variables)
        elif not _answers_without_files(scope):
            found += _static(scope, variables)
    return found


def searches_roots(tree: ConfTree) -> bool:
    """True if a location passes on missing files to a named location with another root."""
    files = [served for served in served_paths(tree) if served.via != "cache"]
    roots = {
        (served.scope.server, served.scope.own.args[-1]): served.root
        for served in files
        if served.scope.own.args
    }
    for scope, _, root, *_ in files:
        for line in (*scope.effective_all("try_files"), *scope.effective_all("error_page")):
            named = line.args[-1] if line.args else ""
            if named.startswith("@") and roots.get((scope.server, named), root) != root:
                return True
    return False


def served_directories(tree: ConfTree) -> list[str]:
    """The directories that a tree serves files or cached responses from, sorted."""
    return sorted({served.path for served in served_paths(tree)})


def file_servers(tree: ConfTree) -> set[Directive]:
    """The servers that send files or cached responses, also from nginx's default root."""
    return {
        scope.server
        for scope in scopes(tree)
        if not (_is_hidden(scope) or _changes_nothing(scope))
        and (_cache(scope) is not None or not _answers_without_files(scope))
    }


def has_handler(scope: Scope) -> bool:
    """True if the scope proxies requests or generates its own responses."""
    handlers = _handlers(scope.tree.names)
    return not all(handlers.isdisjoint(block.lines) for block in _handlers_of(scope))


def sends_no_files(scope: Scope) -> bool:
    """True if a scope only generates responses: no files and no upstream."""
    passes = any(name.endswith("_pass") for block in _handlers_of(scope) for name in block.lines)
    return _is_hidden(scope) or (not passes and _answers_without_files(scope))


def _handlers_of(scope: Scope) -> list[Block]:
    """The blocks that can hold a scope's handler: its own, and for an ``if`` the location."""
    levels = [scope.own] if scope.kind != "if" else list(scope.chain[-2:])
    return [level.block for level in levels if level.block is not None]


@lru_cache(maxsize=16)
def _handlers(names: frozenset[str]) -> frozenset[str]:
    """The given names whose directives handle requests themselves."""
    return frozenset(
        name
        for name in names
        if name in _ANSWERS or name.endswith("_pass") or name.startswith("content_by_")
    )


def _answers_without_files(scope: Scope) -> bool:
    if has_handler(scope):
        return True
    server = scope.server.block
    if server is not None and (server.first("return") is not None or _sends_all_away(server)):
        return True
    denies = scope.sets("deny")
    return denies is not None and denies.value == "all" and scope.sets("allow") is None


def _sends_all_away(server: Block) -> bool:
    """True if a rewrite of the server redirects every request."""
    return any(
        len(line.args) > 1
        and line.value in _EVERYTHING
        and (line.args[-1] in {"permanent", "redirect"} or _URL.match(line.args[1]))
        for line in server.all("rewrite")
    )


def _is_hidden(scope: Scope) -> bool:
    """True for a server whose ``location /`` handles every request instead."""
    block = scope.own.block
    return (
        scope.kind == "server"
        and block is not None
        and any(location.args[-1:] == ("/",) for location in block.all("location"))
    )


def _changes_nothing(scope: Scope) -> bool:
    """True for an ``if`` that does not change how its location serves files."""
    return scope.kind == "if" and not (scope.sets("root") or scope.sets("sendfile"))


def _cache(scope: Scope) -> Directive | None:
    passes = {
        line for block in _handlers_of(scope) for line in block.lines if line.endswith("_pass")
    }
    for name in _CACHES:
        directive = scope.effective(name)
        if directive is not None and directive.value != "off" and f"{name[:-6]}_pass" in passes:
            return directive
    return None


def _cached(
    scope: Scope, cache: Directive, zones: dict[str, Directive], variables: Variables
) -> list[Served]:
    values = variables.possible(cache.value, scope)
    lines = {zones[name].start: zones[name] for name in sorted(values.known) if name in zones}
    paths = ((line, scope.tree.full_path(line.value)) for line in lines.values())
    return [Served(scope, path, path, "cache", line, True) for line, path in paths if path]


def _static(scope: Scope, variables: Variables) -> list[Served]:
    place = _document_root(scope)
    if place is None:
        return []
    known: Collection[str] = (place.value,)
    if "$" in place.value:
        values = variables.possible(place.value, scope)
        if not values.complete:
            return []
        known = values.known
    uri, is_whole = _uri(scope.chain) if place.name == "root" else ("", True)
    found = []
    below = uri.lstrip("/")
    for value in sorted(known):
        path = scope.tree.full_path(value)
        if path is not None:
            full = posixpath.normpath(posixpath.join(path, below)) if below else path
            via: Literal["root", "alias"] = "root" if place.name == "root" else "alias"
            found.append(Served(scope, full, path, via, place, is_whole))
    return found


def _document_root(scope: Scope) -> Directive | None:
    """The root or alias in effect; each replaces the other (ngx_http_core_merge_loc_conf)."""
    for level in scope.levels:
        lines = level.get("alias") or level.get("root")
        if lines and lines[0].args:
            return lines[0]
    return None


def _uri(chain: tuple[Directive, ...]) -> tuple[str, bool]:
    """The directory that a location's URI adds to its root, and False for a single file."""
    for location in reversed(chain):
        if location.name != "location":
            continue
        match location.args:
            case ("=", _):
                return "", False
            case ("^~", uri) | (uri,) if not uri.startswith(("@", "~", "=")):
                return (uri if uri.endswith("/") else posixpath.dirname(uri)), True
    return "", True


MODULES = ("proxy", "fastcgi", "uwsgi", "scgi")
KEYS_PER_MEBIBYTE = 7000
"""Entries that a keys zone keeps. Measured: 8095 fit into 1m (documented: about 8000), and the
cache manager leaves 7083 of them, because it removes entries until an eighth of the zone is
free."""


class Cache(NamedTuple):
    """One ``*_cache_path`` line."""

    place: Directive
    module: str
    zone: str
    keys_bytes: int | None
    max_bytes: int | None
    """``max_size`` in bytes; None if the cache has none."""
    min_free_bytes: int | None
    has_own_temp: bool
    """True with ``use_temp_path=off``: responses are written next to their final place."""

    @property
    def directory(self) -> str:
        """The cache directory, as written."""
        return self.place.value


class Caching(NamedTuple):
    """A scope that proxies requests and caches the responses."""

    passed: Pass
    place: Directive
    """The ``*_cache`` line in effect."""
    caches: tuple[Cache, ...]
    """The known caches that the line can select."""


def caches(tree: ConfTree) -> list[Cache]:
    """The caches of the http block (``*_cache_path``), by module and then in file order."""
    return [
        _read(module, line)
        for http in http_blocks(tree)
        for module in MODULES
        for line in (http.block or Block([])).all(f"{module}_cache_path")
        if line.args
    ]


def caching(passed: list[Pass], found: list[Cache], variables: Variables) -> list[Caching]:
    """The scopes among ``passed`` whose responses are cached."""
    by_zone = {cache.zone: cache for cache in found}
    result = []
    for one in passed:
        place = one.effective("cache")
        if one.module not in MODULES or place is None or place.value in {"", "off"}:
            continue
        if _stores_nothing(one):
            continue
        names = variables.possible(place.value, one.scope).known
        result.append(
            Caching(one, place, tuple(by_zone[name] for name in sorted(names) if name in by_zone))
        )
    return result


def _stores_nothing(passed: Pass) -> bool:
    """True if ``*_no_cache`` holds for every request: a text other than ``0``, no variable."""
    line = passed.effective("no_cache")
    words = () if line is None else line.args
    return any(word not in {"", "0"} and "$" not in word for word in words)


def _read(module: str, line: Directive) -> Cache:
    given = dict(arg.split("=", 1) for arg in line.args[1:] if "=" in arg)
    zone, _, size = given.get("keys_zone", "").partition(":")
    return Cache(
        place=line,
        module=module,
        zone=zone,
        keys_bytes=parse_bytes(size),
        max_bytes=parse_bytes(given.get("max_size", "")),
        min_free_bytes=parse_bytes(given.get("min_free", "")),
        has_own_temp=given.get("use_temp_path") == "off",
    )


_OF_THE_SYSTEM = frozenset(
    f"/{name}"
    for name in (
        "", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root", "run",
        "sbin", "sys", "tmp", "usr", "usr/lib", "usr/local", "usr/share", "var", "var/cache",
        "var/lib", "var/log", "var/spool", "var/tmp", "var/www",
    )
)  # fmt: skip
"""Directories of the system, which cannot be caches. Source: hier(7)."""
_SERVED = ("root", "alias")
_KEPT = ("access_log", "error_log", "pid", "ssl_certificate", "ssl_certificate_key",
         "auth_basic_user_file")  # fmt: skip
_NO_FILE = ("off", "stderr")


def why_no_place(
    path: str, *, served: Iterable[str] = (), kept: Iterable[str] = (), caches: Sequence[str] = ()
) -> str:
    """The reason why a path cannot be a cache directory; empty if it can.

    ``served`` are directories of files and ``kept`` files that must stay: a cache must not contain
    them. ``caches`` are all cache directories, which must not contain each other.
    """
    place = _pure(path)
    if not path.startswith("/"):
        return "is not an absolute path: nginx would use it below its prefix"
    if str(place) in _OF_THE_SYSTEM:
        return "belongs to the system: nginx would delete the files there"
    for other in served:
        if _pure(other).is_relative_to(place):
            return f"contains {other}, which is served: nginx would delete it"
    for other in kept:
        if _pure(other).is_relative_to(place):
            return f"contains {other}, which nginx would delete"
    for other in caches:
        if other != path and _pure(other).is_relative_to(place):
            return f"contains {other}, another cache: each would delete the other's files"
    return ""


def places_of(tree: ConfTree) -> tuple[list[str], list[str]]:
    """The directories of files that a configuration serves, and files that must stay.

    Paths with variables and logs that are not files are left out.
    """
    served: list[str] = []
    kept = [*tree.files]
    for line in tree.main.walk():
        if line.name not in (*_SERVED, *_KEPT) or not line.args or line.value in _NO_FILE:
            continue
        path = None if "$" in line.value or ":" in line.value else tree.full_path(line.value)
        if path is not None:
            (served if line.name in _SERVED else kept).append(path)
    return served, kept


def _pure(path: str) -> PurePosixPath:
    # Linux treats two leading slashes as one; PurePosixPath keeps both.
    return PurePosixPath(posixpath.normpath(f"/{path.lstrip('/')}"))


_NAMED = re.compile(r"(?:\w*zone=|shared[:=])([^:]+)")
"""``keys_zone=NAME:SIZE``, ``zone=NAME:SIZE``, ``shared:NAME:SIZE``."""
_FIRST = frozenset({"zone", "lua_shared_dict", "status_zone"})
"""Directives whose first argument is the name; ``zone`` of stream is a different one."""


def zone_names(tree: ConfTree) -> set[str]:
    """Every shared memory name of a configuration, in http, stream and other modules."""
    found: set[str] = set()
    for line in tree.main.walk():
        found.update(match[1] for arg in line.args if (match := _NAMED.match(arg)))
        if line.name in _FIRST and line.args:
            found.add(line.value)
    return found
