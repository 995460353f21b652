"""Whether what is not seen is not there: the one place that judges it for every rule.

A finding that stands on something being absent says nothing where that may stand in a file that
was not read. What counts is the level: a line of an inner level holds for the finding's place only
when it stands in a block around it, or in the block that the finding is about.
"""

from __future__ import annotations

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.tree import ConfTree

_Chain = tuple[Directive, ...]


class Absence:
    """The levels of a tree into which something was included that was not read."""

    def __init__(self, tree: ConfTree) -> None:
        self._is_part = tree.is_part
        self._lost = frozenset(tree.lost)
        self._levels: list[_Chain] = []
        self._places: dict[Directive, list[_Chain]] = {}
        if self._lost:
            self._walk(tree.main, ())

    def _walk(self, block: Block, chain: _Chain) -> None:
        for directive in block.directives:
            if directive in self._lost:
                self._levels.append(chain)
            if directive.included is not None:
                for file in directive.included:
                    self._walk(file, chain)
                continue
            self._places.setdefault(directive, []).append(chain)
            if directive.block is not None:
                self._walk(directive.block, (*chain, directive))

    def is_doubtful(self, place: Directive) -> bool:
        """Whether lines that were not read may hold at a place or in its block."""
        if not self._lost:
            return False
        chains = self._places.get(place)
        if chains is None:
            return True
        return any(
            place in level or _holds_for(level, chain) for level in self._levels for chain in chains
        )


def _holds_for(level: _Chain, chain: _Chain) -> bool:
    """Whether a line of a level holds inside a chain of blocks; main's hold in no other block."""
    return chain[: len(level)] == level if level else not chain
