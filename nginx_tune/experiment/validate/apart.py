"""Files of the baseline for which either configuration has a place of its own; pure.

A location may share the root of the one around it, and a root may lie below another's: what either
arm does with a file is told by asking for one of each pair of locations that files fall into.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher, normalised
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.served import Served, has_handler, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.experiment.site_files import as_url
from nginx_tune.experiment.target import can_load, target_of, url_prefix
from nginx_tune.experiment.validate.asks import Ask, location_text, server_name
from nginx_tune.experiment.validate.lost import Kind
from nginx_tune.experiment.validate.successors import Successors
from nginx_tune.measure.load.classes import ServedFile

_HIDDEN = re.compile(r"/\.(?!well-known/)")


class PlaceApart(NamedTuple):
    """A file of the baseline, asked of both arms."""

    ask: Ask
    file: ServedFile
    """By its URL."""


class Kinds:
    """What the answers of a tree are made of."""

    def __init__(self, tree: ConfTree) -> None:
        self._matcher = LocationMatcher(tree)
        self._scopes = {scope.own: scope for scope in scopes(tree)}
        self._served = {one.scope.own: one for one in served_paths(tree) if one.via != "cache"}

    def of(self, server: Directive, url: str) -> Kind:
        """What a server answers for a URL is made of, where nothing is rewritten."""
        own = self._matcher.location_of(server, url) or server
        scope = self._scopes.get(own)
        if (server.block or Block([])).first("return") is not None:
            return "own"
        if scope is None or not has_handler(scope):
            return "files"
        return "passed" if _passes(scope) else "own"

    def file_at(self, server: Directive, url: str) -> str | None:
        """The file that a URL names there; None where that is not known."""
        served = self._served.get(self._matcher.location_of(server, url) or server)
        path = normalised(url)
        if served is None or "\ufffd" in path:
            return None
        if served.via == "root":
            return posixpath.join(served.root, path.lstrip("/"))
        if not can_load(served):
            return None
        return posixpath.join(served.path, path.removeprefix(url_prefix(served)).lstrip("/"))


def _passes(scope: Scope) -> bool:
    return any(line.name.endswith("_pass") for line in scope.own.block or Block([]))


def places_apart(
    trees: Sequence[ConfTree],
    successors: Successors,
    files_of: Callable[[str], Sequence[ServedFile]],
) -> list[PlaceApart]:
    """One file of each pair of locations; ``files_of`` lists those below a directory."""
    matchers = [LocationMatcher(tree) for tree in trees]
    served = [one for one in served_paths(trees[0]) if one.via != "cache"]
    by_scope = {one.scope.own: one for one in served}
    found: dict[tuple[Directive, Directive | None, Directive | None], PlaceApart] = {}
    for one in filter(can_load, served):
        server = one.scope.server
        other = successors.servers.get(server)
        target = target_of(trees[0], server)
        if other is None or target is None or server in successors.gone:
            continue
        host = successors.hosts.get(server, target.host)
        for path, url in _urls(one, files_of):
            own = matchers[0].location_of(server, url.url)
            if not _is_served(path, url.url, own or server, one, by_scope):
                continue
            there = matchers[1].location_of(other, url.url)
            if (server, own, there) not in found:
                location = _called(own, there)
                ask = Ask("", server_name(server), location, target, url.url, block=server)
                found[server, own, there] = PlaceApart(ask.of_host(host), url)
    return list(found.values())


def _urls(
    served: Served, files_of: Callable[[str], Sequence[ServedFile]]
) -> Iterator[tuple[str, ServedFile]]:
    prefix = url_prefix(served)
    for file in files_of(served.path):
        if _HIDDEN.search(file.url, len(served.path)):
            continue  # whoever closes a repository that lies there takes nothing from anybody
        yield file.url, as_url(file, root=served.path, url_prefix=prefix)


def _is_served(
    path: str, url: str, own: Directive, one: Served, by_scope: dict[Directive, Served]
) -> bool:
    """Whether the place that takes the URL serves this very file."""
    if own is one.scope.own:
        return True
    theirs = by_scope.get(own)
    if theirs is None or theirs.via != "root":
        return False
    return posixpath.join(theirs.root, normalised(url).lstrip("/")) == path


def _called(own: Directive | None, there: Directive | None) -> str:
    """The location that makes the difference."""
    said = [location_text(one) for one in (own, there) if one is not None]
    return said[-1] if said else ""
