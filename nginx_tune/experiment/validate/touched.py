"""The places that a change touches, by the lines in effect there.

Lines count with everything inherited: the main context, ``events``, ``http``, the server and the
enclosing locations. A definition, such as an ``upstream``, a ``map`` or a zone, counts where a line
in effect names it, directly or through another definition. So do the lines of a location to which
a place hands requests on (``try_files``, ``error_page``, a subrequest).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, http_blocks, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.experiment.validate.successors import Successors

_OTHER_LINES = frozenset({"http", "stream", "mail", "server", "location", "include", "server_name"})
"""Lines that are looked at by themselves, or that change no answer of http."""
_DEFINED_FIRST = frozenset({"upstream", "log_format", "thread_pool"})
"""Definitions whose first argument is their name."""
_DEFINED_LAST = frozenset({"map", "geo", "split_clients"})
"""Definitions whose last argument is their variable."""
_HANDED_ON = ("try_files", "error_page", "auth_request", "mirror", "post_action")
"""Directives whose last argument may be a location that takes part in the answer."""
_ZONE = re.compile(r"(?:keys_)?zone=([^:\s]+)")
_ZONED = re.compile(r"(?:limit_req|limit_conn)_zone|\w+_cache_path")

_Lines = Mapping[str, Sequence[str]]


class TouchedPlaces:
    """The places of a baseline whose lines in effect are different in the candidate."""

    def __init__(self, trees: Sequence[ConfTree], successors: Successors) -> None:
        before, after = ([source.data for source, _ in tree.parsed] for tree in trees)
        self.has_change = before != after
        self._successors = successors
        self._sides = [_Side(tree) for tree in trees] if self.has_change else []

    def take(self, server: Directive, urls: Iterable[str]) -> bool:
        """True if a touched place takes one of the URLs, for a server of the baseline.

        The result is also true for equal configurations (two builds, the noise), and for a server
        without a successor.
        """
        successor = self._successors.servers.get(server)
        if not self.has_change or successor is None:
            return True
        before, after = self._sides
        places = {(before.place(server, url), after.place(successor, url)) for url in urls}
        return any(before.lines(one) != after.lines(other) for one, other in places)

    def reached(
        self, plan: LoadPlan, servers: Mapping[str, Directive], entry: Directive
    ) -> list[str]:
        """The classes of the baseline's plan that reach a touched place, and those without URLs.

        ``servers``: by class; ``entry`` is the server of all other classes.
        """
        return [
            item.name
            for item in plan.classes
            if not item.paths.paths or self.take(servers.get(item.name, entry), item.paths.paths)
        ]


class _Side:
    """The lines in effect at each place of a tree."""

    def __init__(self, tree: ConfTree) -> None:
        self._matcher = LocationMatcher(tree)
        self._scopes = {scope.own: scope for scope in scopes(tree)}
        events = [line.block for line in tree.main.all("events") if line.block is not None]
        main = [tree.main, *events]
        self._everywhere = {
            name: texts for block in main for name, texts in _texts(block.lines).items()
        }
        around = [tree.main, *(block.block or Block([]) for block in http_blocks(tree))]
        self._defined = [
            (pattern, _text(line))
            for block in around
            for lines in block.lines.values()
            for line in lines
            if (pattern := _naming(line)) is not None
        ]
        self._lines: dict[Directive, _Lines] = {}

    def place(self, server: Directive, url: str) -> Directive:
        """The location that takes a URL, or else the server."""
        return self._matcher.location_of(server, url.partition("?")[0]) or server

    def lines(self, place: Directive) -> list[_Lines]:
        """The lines in effect at a place by name, and the definitions that they use.

        They are followed by those of each place to which it hands requests on.
        """
        reached = {place: None}
        pending = [place]
        while pending:
            pending = [
                other
                for one in pending
                for other in self._handed_to(self._scopes[one])
                if other not in reached
            ]
            reached.update(dict.fromkeys(pending))
        for one in reached:
            if one not in self._lines:
                self._lines[one] = self._in_effect(self._scopes[one])
        return [self._lines[one] for one in reached]

    def _handed_to(self, scope: Scope) -> Iterator[Directive]:
        for line in (line for name in _HANDED_ON for line in scope.effective_all(name)):
            target = line.args[-1].partition("?")[0] if line.args else ""
            if target.startswith("@"):
                named = (other for other in self._scopes.values() if other.server is scope.server)
                yield from (other.own for other in named if other.own.args == (target,))
            elif target.startswith("/") and "$" not in target:
                yield self.place(scope.server, target)

    def _in_effect(self, scope: Scope) -> _Lines:
        found = dict(self._everywhere)
        for level in reversed(scope.levels):
            found |= _texts(level)
        used: dict[str, None] = {}
        pending = [text for texts in found.values() for text in texts]
        while pending:
            text = "\n".join(pending)
            pending = [
                other
                for pattern, other in self._defined
                if other not in used and pattern.search(text)
            ]
            used.update(dict.fromkeys(pending))
        return {**found, "": sorted(used)}


def _texts(lines: Mapping[str, Sequence[Directive]]) -> dict[str, list[str]]:
    """The lines of a block by name, with their blocks, without definitions and other places."""
    found = {
        name: [_text(line) for line in own if _naming(line) is None]
        for name, own in lines.items()
        if name not in _OTHER_LINES
    }
    return {name: texts for name, texts in found.items() if texts}


def _text(line: Directive) -> str:
    inside = () if line.block is None else (own.words for own in line.block.walk())
    return "\n".join((line.words, *inside))


def _naming(line: Directive) -> re.Pattern[str] | None:
    """A pattern of the lines that use a definition; None for any other line."""
    if line.name in _DEFINED_LAST and line.args:
        return re.compile(rf"\$\{{?{re.escape(line.args[-1].removeprefix('$'))}\b")
    name = line.value if line.name in _DEFINED_FIRST else ""
    if _ZONED.fullmatch(line.name):
        zone = _ZONE.search(line.words)
        name = "" if zone is None else zone[1]
    if not name:
        return None
    if (line.name, name) == ("thread_pool", "default"):
        return re.compile(r"\bthreads\b(?!=)")
    # A name after a single slash is part of a path; after two it is a host.
    return re.compile(rf"(?<![\w.$-])(?<!(?<!/)/){re.escape(name)}(?![\w.-])")
