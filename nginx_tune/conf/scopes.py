"""Scopes: the places where requests are handled, and the directives in effect there.

A scope is a server, a location (also nested) or an ``if`` in a location; nginx creates a location
configuration for each. An inner directive overrides the outer one. For a directive that may be
repeated, a single inner line replaces all outer lines (ngx_conf_merge_value,
ngx_conf_merge_ptr_value).

``placed`` gives the context of each directive of a tree, as nginx's command tables name it. A
file included from two contexts is visited in each. Blocks whose lines are not directives (``map``,
``types``) and unknown blocks are skipped.

``Absence`` tells which unread files may have a line that is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from nginx_tune.conf.directive import Block, Directive, Source, as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.units import listed

ScopeKind = Literal["server", "location", "if"]
_SERVER = 1
"""The place of the server in a scope's chain, below http."""


class Scope:
    """One place where requests are handled."""

    __slots__ = ("chain", "kind", "levels", "own", "server", "tree")

    def __init__(
        self,
        tree: ConfTree,
        kind: ScopeKind,
        chain: tuple[Directive, ...],
        outer: Scope | None = None,
    ) -> None:
        self.tree = tree
        self.kind: ScopeKind = kind
        self.chain = chain
        """The enclosing blocks, from http to its own."""
        self.own = chain[-1]
        """The block of this scope."""
        self.server = chain[_SERVER]
        """The server block that the scope belongs to."""
        if outer is None:
            own = [
                directive.block.lines
                for directive in reversed(chain)
                if directive.block is not None
            ]
        else:
            own = [] if self.own.block is None else [self.own.block.lines]
        self.levels: list[dict[str, list[Directive]]] = own if outer is None else own + outer.levels
        """The lines of each enclosing block by name, innermost block first."""

    def effective_all(self, name: str) -> list[Directive]:
        """The directives of a name in effect, those of the innermost block that has any."""
        if name in self.tree.names:
            for level in self.levels:
                if name in level:
                    return level[name]
        return []

    def effective(self, name: str) -> Directive | None:
        """The directive of a name in effect; None if nginx's default applies."""
        if name in self.tree.names:
            for level in self.levels:
                if name in level:
                    return level[name][-1]
        return None

    def value(self, name: str, default: str = "") -> str:
        """The first argument of the directive in effect, lowercase."""
        directive = self.effective(name)
        return default if directive is None else directive.value.lower()

    def sets(self, name: str) -> Directive | None:
        """The directive of a name in this scope's own block."""
        return _body(self.own).first(name) if name in self.tree.names else None

    def __str__(self) -> str:
        return " > ".join(
            str(block) for block in self.chain if block.name in {"server", "location", "if"}
        )


def http_blocks(tree: ConfTree) -> list[Directive]:
    """The http blocks of a tree (nginx allows one); for a part, a made-up block around it."""
    if tree.is_part:
        return [_around("http", tree)]
    return [block for block in tree.main.all("http") if block.block is not None]


def http_directives(tree: ConfTree) -> Iterator[Directive]:
    """Every directive inside http, at any depth."""
    for block in http_blocks(tree):
        yield from _body(block).walk()


def http_lines(tree: ConfTree, name: str) -> Sequence[Directive]:
    """The directives of a name inside http, at any depth, in order."""
    if name not in tree.names:
        return ()
    return [line for block in http_blocks(tree) for line in _body(block).within(name)]


def servers(tree: ConfTree) -> list[tuple[Directive, Directive]]:
    """The http servers as (http, server)."""
    found = [
        (http, server)
        for http in http_blocks(tree)
        for server in _body(http).all("server")
        if server.block is not None
    ]
    if tree.is_part and (tree.main.all("location") or tree.main.all("listen")):
        found.append((_around("http", tree), _around("server", tree)))
    return found


def _around(name: str, tree: ConfTree) -> Directive:
    """A made-up block around a part of a configuration, instead of the block that includes it."""
    block = Directive(name, (), (), Source(tree.path, ""), (0, 0))
    block.block = tree.main
    return block


def scopes(tree: ConfTree) -> list[Scope]:
    """Every scope of a tree, outer before inner."""
    found: list[Scope] = []
    for http, server in servers(tree):
        scope = Scope(tree, "server", (http, server))
        found.append(scope)
        _add_inside(scope, found)
    return found


def _add_inside(outer: Scope, found: list[Scope]) -> None:
    lines = _body(outer.own).lines
    for location in lines.get("location", ()):
        if location.block is not None:
            scope = Scope(outer.tree, "location", (*outer.chain, location), outer)
            found.append(scope)
            _add_inside(scope, found)
    if outer.kind == "location":  # an "if" in a server only rewrites
        found += [
            Scope(outer.tree, "if", (*outer.chain, condition), outer)
            for condition in lines.get("if", ())
            if condition.block is not None
        ]


def _body(directive: Directive) -> Block:
    return directive.block if directive.block is not None else _NOTHING


_NOTHING = Block([])


_INSIDE = {
    ("main", "events"): "events",
    ("main", "http"): "http",
    ("main", "mail"): "mail",
    ("main", "stream"): "stream",
    ("main", "rtmp"): "rtmp",
    ("http", "server"): "server",
    ("http", "upstream"): "upstream",
    ("server", "location"): "location",
    ("server", "if"): "server-if",
    ("location", "location"): "location",
    ("location", "if"): "location-if",
    ("location", "limit_except"): "limit_except",
    ("mail", "server"): "mail-server",
    ("stream", "server"): "stream-server",
    ("stream", "upstream"): "stream-upstream",
    ("rtmp", "server"): "rtmp-server",
    ("rtmp-server", "application"): "rtmp-application",
    ("rtmp-application", "recorder"): "rtmp-recorder",
}

_HTTP_ALONE = ("location", "root", "index", "try_files", "rewrite", "error_page")
"""Directives that only http servers contain."""


def placed(tree: ConfTree) -> list[tuple[Directive, str]]:
    """Every directive with its context.

    For a part of a configuration, the contents determine the context. Sites belong in ``http``. Of
    a snippet, only directives inside its locations are returned: those outside may be anywhere.
    """
    found: list[tuple[Directive, str]] = []
    if not tree.is_part:
        _place(tree.main, "main", set(), found)
    elif any(map(_is_of_http, tree.main.all("server"))):
        _place(tree.main, "http", set(), found)
    else:
        for location in tree.main.all("location"):
            if location.block is not None:
                _place(location.block, "location", set(), found)
    return found


def _is_of_http(server: Directive) -> bool:
    """True for a server of http; mail and stream have blocks of the same name."""
    return server.block is not None and any(map(server.block.all, _HTTP_ALONE))


def _place(
    block: Block, context: str, seen: set[tuple[int, str]], found: list[tuple[Directive, str]]
) -> None:
    for directive in block.directives:
        if directive.included is not None:
            for file in directive.included:
                if (id(file), context) not in seen:
                    seen.add((id(file), context))
                    _place(file, context, seen, found)
            continue
        found.append((directive, context))
        if directive.block is not None:
            inside = _INSIDE.get((context, directive.name))
            if inside is not None:
                _place(directive.block, inside, seen, found)


_Chain = tuple[Directive, ...]
_NAMES_SHOWN = 3


class Absence:
    """The include lines of files that could not be read, and the blocks around them."""

    def __init__(self, tree: ConfTree) -> None:
        self._is_part = tree.is_part
        self._lost = frozenset(tree.lost)
        self._levels: list[tuple[_Chain, Directive]] = []
        self._places: dict[Directive, list[_Chain]] = {}
        if self._lost or self._is_part:
            self._walk(tree.main, ())

    def _walk(self, block: Block, chain: _Chain) -> None:
        for directive in block.directives:
            if directive in self._lost:
                self._levels.append((chain, directive))
            if directive.included is not None:
                for file in directive.included:
                    self._walk(file, chain)
                continue
            self._places.setdefault(directive, []).append(chain)
            if directive.block is not None:
                self._walk(directive.block, (*chain, directive))

    def doubts(
        self, place: Directive, within: frozenset[str] = frozenset()
    ) -> list[Directive] | None:
        """Unread include lines that may affect a place or its block; None if there is no doubt.

        ``within`` names the blocks that confine a finding. In a part of a configuration, a place
        outside of such blocks depends on outer blocks, which are never read.
        """
        if not self._lost and not self._is_part:
            return None
        chains = self._places.get(place)
        if chains is None:
            return [line for _, line in self._levels]
        found: dict[Directive, None] = {}
        is_open = False
        for chain in chains:
            whole = (*chain, place)
            depths = [depth for depth, block in enumerate(whole, 1) if block.name in within]
            is_open |= not depths and self._is_part
            base = whole[: depths[-1]] if depths else ()
            for level, line in self._levels:
                if level[: len(base)] == base and (place in level or _holds_for(level, chain)):
                    found[line] = None
        return list(found) if found or is_open else None

    def doubts_new_line(self, block: Directive | None) -> list[Directive] | None:
        """Unread include lines that may already have a line that is to be added to a block.

        None if there is no doubt. The block is main if ``block`` is None.
        """
        if not self._lost and not self._is_part:
            return None
        outer = [()] if block is None else self._places.get(block, [()])
        chains = [one if block is None else (*one, block) for one in outer]
        found = [
            line
            for level, line in self._levels
            if any(_holds_for(level, chain) or block in level for chain in chains)
        ]
        return found if found or self._is_part else None


def _holds_for(level: _Chain, chain: _Chain) -> bool:
    """True if lines of a block apply inside a chain of blocks; lines of main apply only in main."""
    return chain[: len(level)] == level if level else not chain


def names_of_unread(lines: Iterable[Directive]) -> list[str]:
    """The files that include lines name, each once."""
    return list(dict.fromkeys(as_utf8(line.value or str(line)) for line in lines))


def not_read(names: Sequence[str]) -> str:
    """A clause that names the files that were not read."""
    more = len(names) - _NAMES_SHOWN
    shown = [*names[:_NAMES_SHOWN], *([f"{more} more"] if more > 0 else [])]
    return f"{listed(shown)} {'was' if len(names) == 1 else 'were'} not read"
