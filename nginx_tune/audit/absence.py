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
        if self._lost or self._is_part:
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

    def is_doubtful(self, place: Directive, within: frozenset[str] = frozenset()) -> bool:
        """Whether lines that were not read may hold at a place or in its block.

        ``within`` names the blocks outside of which no line matters; without it the blocks around
        a part of a configuration matter, and those are never read.
        """
        if not self._lost and not self._is_part:
            return False
        chains = self._places.get(place)
        if chains is None:
            return True
        return any(self._is_open(place, chain, within) for chain in chains)

    def _is_open(self, place: Directive, chain: _Chain, within: frozenset[str]) -> bool:
        whole = (*chain, place)
        depths = [depth for depth, block in enumerate(whole, 1) if block.name in within]
        if not depths and self._is_part:
            return True
        base = whole[: depths[-1]] if depths else ()
        return any(
            level[: len(base)] == base and (place in level or _holds_for(level, chain))
            for level in self._levels
        )


def _holds_for(level: _Chain, chain: _Chain) -> bool:
    """Whether a line of a level holds inside a chain of blocks; main's hold in no other block."""
    return chain[: len(level)] == level if level else not chain
