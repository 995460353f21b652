"""Which directories a scope serves files from: its root or alias, or its cache."""

from __future__ import annotations

import posixpath
import re
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_blocks, scopes
from nginx_tune.conf.tree import ConfTree
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
"""Directives whose presence means that the scope's answers are no files of its root."""


_EVERYTHING = frozenset({"^", "^/", ".*", "^.*", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$", "^.*$"})
_URL = re.compile(r"https?://|\$scheme://")


class Served(NamedTuple):
    """A directory that a scope serves from."""

    scope: Scope
    path: str
    """Its root or alias with what the location's URI adds."""
    root: str
    """Its root, alias or cache directory alone."""
    via: Literal["root", "alias", "cache"]
    place: Directive
    """The line that names the directory to this scope."""
    is_whole: bool
    """False when the location's URI narrows it to one file."""


def served_paths(tree: ConfTree) -> list[Served]:
    """Every (scope, directory) of a tree whose path is a constant or has known values."""
    variables = Variables(tree)
    zones = _cache_zones(tree)
    found: list[Served] = []
    for scope in scopes(tree):
        if _is_hidden(scope) or _changes_nothing(scope):
            continue
        cache = _cache(scope)
        if cache is not None:
            found += _cached(scope, cache, zones, variables)
        elif not _answers_without_files(scope):
            found += _static(scope, variables)
    return found


def has_handler(scope: Scope) -> bool:
    """Whether the scope passes requests on or makes its own answers."""
    return any(_is_handler(directive.name) for block in _handlers_of(scope) for directive in block)


def sends_no_files(scope: Scope) -> bool:
    """Whether all that a scope answers is made up: no file, and nothing of another server."""
    passes = any(line.name.endswith("_pass") for block in _handlers_of(scope) for line in block)
    return _is_hidden(scope) or (not passes and _answers_without_files(scope))


def _handlers_of(scope: Scope) -> list[Block]:
    """Where a handler of this scope can stand: its own block, and for an ``if`` the location."""
    levels = [scope.own] if scope.kind != "if" else list(scope.chain[-2:])
    return [level.block for level in levels if level.block is not None]


def _is_handler(name: str) -> bool:
    return name in _ANSWERS or name.endswith("_pass") or name.startswith("content_by_")


def _answers_without_files(scope: Scope) -> bool:
    if has_handler(scope):
        return True
    server = scope.server.block
    if server is not None and (server.first("return") is not None or _sends_all_away(server)):
        return True
    denies = scope.sets("deny")
    return denies is not None and denies.value == "all" and scope.sets("allow") is None


def _sends_all_away(server: Block) -> bool:
    """Whether a rewrite of the server redirects every request."""
    return any(
        len(line.args) > 1
        and line.value in _EVERYTHING
        and (line.args[-1] in {"permanent", "redirect"} or _URL.match(line.args[1]))
        for line in server.all("rewrite")
    )


def _is_hidden(scope: Scope) -> bool:
    """A server whose ``location /`` takes every request never answers by itself."""
    block = scope.own.block
    return (
        scope.kind == "server"
        and block is not None
        and any(location.args[-1:] == ("/",) for location in block.all("location"))
    )


def _changes_nothing(scope: Scope) -> bool:
    """An ``if`` that serves just as the location around it."""
    return scope.kind == "if" and not (scope.sets("root") or scope.sets("sendfile"))


def _cache(scope: Scope) -> Directive | None:
    passes = {d.name for block in _handlers_of(scope) for d in block if d.name.endswith("_pass")}
    for name in _CACHES:
        directive = scope.effective(name)
        if directive is not None and directive.value != "off" and f"{name[:-6]}_pass" in passes:
            return directive
    return None


def _cache_zones(tree: ConfTree) -> dict[str, Directive]:
    """Cache directories by the name of their keys zone."""
    zones = {}
    for http in http_blocks(tree):
        for name in _CACHES:
            for line in (http.block or Block([])).all(f"{name}_path"):
                for arg in line.args:
                    if arg.startswith("keys_zone="):
                        zones[arg[len("keys_zone=") :].partition(":")[0]] = line
    return zones


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
    values = variables.possible(place.value, scope)
    if not values.complete:
        return []
    uri, is_whole = _uri(scope.chain) if place.name == "root" else ("", True)
    found = []
    for value in sorted(values.known):
        path = scope.tree.full_path(value)
        if path is not None:
            full = posixpath.normpath(posixpath.join(path, uri.lstrip("/")))
            via: Literal["root", "alias"] = "root" if place.name == "root" else "alias"
            found.append(Served(scope, full, path, via, place, is_whole))
    return found


def _document_root(scope: Scope) -> Directive | None:
    """The root or alias that holds; the two replace each other (ngx_http_core_merge_loc_conf)."""
    for level in reversed(scope.chain):
        block = level.block or Block([])
        place = block.first("alias") or block.first("root")
        if place is not None and place.args:
            return place
    return None


def _uri(chain: tuple[Directive, ...]) -> tuple[str, bool]:
    """The directory that a location's URI adds to its root, and whether it is not one file."""
    for location in reversed(chain):
        if location.name != "location":
            continue
        match location.args:
            case ("=", _):
                return "", False
            case ("^~", uri) | (uri,) if not uri.startswith(("@", "~", "=")):
                return (uri if uri.endswith("/") else posixpath.dirname(uri)), True
    return "", True
