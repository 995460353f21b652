"""Where requests are answered, and what holds there.

A scope is a server, a location (nested ones too) or an ``if`` in a location; nginx makes a
location configuration of its own for each. A directive set further in replaces the outer one,
and a level that sets an array directive at all replaces the whole outer set
(ngx_conf_merge_value, ngx_conf_merge_ptr_value).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.tree import ConfTree

Kind = Literal["server", "location", "if"]


@dataclass(frozen=True, eq=False)
class Scope:
    """One place where requests are answered."""

    tree: ConfTree
    kind: Kind
    chain: tuple[Directive, ...]
    """The blocks around it, from http to its own."""

    @property
    def own(self) -> Directive:
        """The block that makes this scope."""
        return self.chain[-1]

    @property
    def server(self) -> Directive:
        """The server block it belongs to."""
        return next(block for block in self.chain if block.name == "server")

    def effective_all(self, name: str) -> list[Directive]:
        """The directives of that name that hold here: those of the innermost level with any."""
        if name not in self.tree.names:
            return []
        for around in reversed(self.chain):
            if around.block is not None and (found := around.block.all(name)):
                return found
        return []

    def effective(self, name: str) -> Directive | None:
        """The directive of that name that holds here; null leaves nginx's default."""
        found = self.effective_all(name)
        return found[-1] if found else None

    def value(self, name: str, default: str = "") -> str:
        """The first argument of the directive that holds here, in lower case."""
        directive = self.effective(name)
        return default if directive is None else directive.value.lower()

    def sets(self, name: str) -> Directive | None:
        """The directive of that name in this very block."""
        return _body(self.own).first(name) if name in self.tree.names else None

    def __str__(self) -> str:
        return " > ".join(
            str(block) for block in self.chain if block.name in {"server", "location", "if"}
        )


def http_blocks(tree: ConfTree) -> list[Directive]:
    """The http blocks of a tree (nginx allows one); a part of one stands for itself."""
    if tree.is_part:
        return [_around("http", tree)]
    return [block for block in tree.main.all("http") if block.block is not None]


def http_directives(tree: ConfTree) -> Iterator[Directive]:
    """Every directive inside http, at any depth."""
    for block in http_blocks(tree):
        yield from _body(block).walk()


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
    """The block that a part of a configuration is included in."""
    block = Directive(name, (), (), Source(tree.path, ""), (0, 0))
    block.block = tree.main
    return block


def scopes(tree: ConfTree) -> list[Scope]:
    """Every scope of a tree, outer before inner."""
    found: list[Scope] = []
    for http, server in servers(tree):
        found.append(Scope(tree, "server", (http, server)))
        found += _inside(tree, (http, server))
    return found


def _inside(tree: ConfTree, chain: tuple[Directive, ...]) -> Iterator[Scope]:
    body = _body(chain[-1])
    for location in body.all("location"):
        if location.block is not None:
            inner = (*chain, location)
            yield Scope(tree, "location", inner)
            yield from _inside(tree, inner)
    if chain[-1].name == "location":  # an "if" in a server only rewrites
        for condition in body.all("if"):
            if condition.block is not None:
                yield Scope(tree, "if", (*chain, condition))


def _body(directive: Directive) -> Block:
    return directive.block if directive.block is not None else _NOTHING


_NOTHING = Block([])
