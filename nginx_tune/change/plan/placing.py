"""Where a setting goes in a configuration: the lines to change, the blocks to put it into.

A line further out is changed only where all that it holds for wants the change; elsewhere the
setting goes into the block that wants it, and the line outside stays. What many places want goes
into the block around them, once (``Standing.further_out``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from nginx_tune.change.plan.listen_options import listen_options
from nginx_tune.change.plan.standing import (
    PREDICATES,
    Standing,
    effective,
    holds,
    is_named,
)
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.tree import COMMAND_LINE
from nginx_tune.documents.decisions import Setting

_ALL_OR_NONE = ("proxy_set_header", "ssl_conf_command", *PREDICATES)
"""Directives of which a level has its own lines or the outer level's, never both."""
How = Literal["change", "into", "before", "option"]


class SettingPlace(NamedTuple):
    """One place of a setting."""

    directive: Directive
    how: How
    """Its arguments are changed; it goes into the block; it goes before the block (main); it is
    one more argument, or another value of one (``listen``)."""


class UnplacedError(Exception):
    """A setting that has no place that is its alone."""

    def __init__(self, reason: str, directive: Directive | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.directive = directive


def find_places(standing: Standing, wanted: Setting, apart: Sequence[str]) -> list[SettingPlace]:
    """Every place of a setting that does not hold yet.

    Errors: UnplacedError where there is none, or one in a file that several others include.
    """
    found = list(_places(standing, wanted, apart))
    if not found:
        raise UnplacedError("there is no place for it")
    edges = include_edges(standing.tree.main)
    for place in found:
        if place.directive.file == COMMAND_LINE:
            raise UnplacedError(
                f"{COMMAND_LINE} sets {place.directive.name}, which nginx takes once",
                place.directive,
            )
        if edges[place.directive.file] > 1:
            raise UnplacedError(
                f"{place.directive.file} is included {edges[place.directive.file]} times, and "
                "the change would hold in all of them",
                place.directive,
            )
    return found


def include_edges(main: Block) -> Counter[str]:
    """How often each included file is included, itself or by what includes it."""
    found: Counter[str] = Counter()

    def walk(block: Block) -> None:
        for directive in block.directives:
            for inner in directive.included or ():
                for file in {one.file for one in inner.directives}:
                    found[file] += 1
                walk(inner)
            if directive.block is not None and directive.included is None:
                walk(directive.block)

    walk(main)
    return found


def _places(standing: Standing, wanted: Setting, apart: Sequence[str]) -> Iterator[SettingPlace]:
    if wanted.directive == "listen":
        yield from _listen_places(standing, wanted)
        return
    if wanted.context == "upstream":
        for group in standing.blocks(wanted):
            line = group.block.first(wanted.directive) if group.block else None
            if not holds(line, wanted):
                yield SettingPlace(group, "into") if line is None else SettingPlace(line, "change")
        return
    if wanted.context in ("main", "events") or is_named(wanted):
        lines = [one for one in standing.lines(wanted, apart) if one is not None]
        differing = [one for one in lines if not holds(one, wanted)]
        if differing or lines:
            yield from (SettingPlace(one, "change") for one in differing)
        elif wanted.context == "main":
            yield _before_the_blocks(standing)
        else:
            yield from (SettingPlace(one, "into") for one in standing.blocks(wanted))
        return
    if wanted.context == "http":
        yield from _http_places(standing, wanted, apart)
        return
    yield from _scope_places(standing, wanted, apart)


def _before_the_blocks(standing: Standing) -> SettingPlace:
    """A directive of main goes before the first block that the main file itself has."""
    first = next((one for one in standing.tree.main.directives if one.block is not None), None)
    if first is None or first.file != standing.tree.path:
        raise UnplacedError(f"{standing.tree.path} has no block to put it before")
    return SettingPlace(first, "before")


def _listen_places(standing: Standing, wanted: Setting) -> Iterator[SettingPlace]:
    """An option of a listener stands in one of its lines: nginx wants it once for an address."""
    for line in listen_options(wanted, standing.tree).lines:
        yield SettingPlace(line, "option")


def _http_places(
    standing: Standing, wanted: Setting, apart: Sequence[str]
) -> Iterator[SettingPlace]:
    seen: set[int] = set()
    needs_line = False
    concerned = standing.concerned(wanted, apart)
    if not standing.answering:  # no server yet: for those to come
        for http in standing.tree.main.all("http"):
            line = None if http.block is None else http.block.first(wanted.directive)
            if not holds(line, wanted):
                yield SettingPlace(http, "into") if line is None else SettingPlace(line, "change")
        return
    for scope in concerned:
        line = effective(scope, wanted)
        needs_line |= line is None
        if line is not None and not holds(line, wanted) and id(line) not in seen:
            seen.add(id(line))
            yield SettingPlace(line, "change")
    if needs_line:
        yield from (SettingPlace(one, "into") for one in standing.tree.main.all("http"))


def _scope_places(
    standing: Standing, wanted: Setting, apart: Sequence[str]
) -> Iterator[SettingPlace]:
    concerned = standing.concerned(wanted, apart)
    names = {id(scope.own) for scope in concerned}
    around = standing.further_out(wanted, apart)
    seen: set[int] = set()
    for scope in concerned:
        line = effective(scope, wanted)
        if holds(line, wanted):
            continue
        outer = around.get(id(scope.own)) if line is None else None
        place = (
            SettingPlace(outer, "into")
            if outer
            else _of_scope(standing, scope, line, wanted, names)
        )
        if id(place.directive) not in seen:
            seen.add(id(place.directive))
            yield place


def _of_scope(
    standing: Standing, scope: Scope, line: Directive | None, wanted: Setting, concerned: set[int]
) -> SettingPlace:
    own = next((one for one in reversed(scope.chain) if wanted.context == one.name), scope.own)
    if line is None:
        return SettingPlace(_beside_others(scope, wanted) or own, "into")
    inside = scope.own.block is not None and line in scope.own.block.all(line.name)
    users = [one for one in standing.answering if effective(one, wanted) is line]
    if inside or all(id(one.own) in concerned for one in users):
        return SettingPlace(line, "change")
    return SettingPlace(own, "into")


def _beside_others(scope: Scope, wanted: Setting) -> Directive | None:
    """The block whose lines of that name hold in a scope, where a line further in undoes them all.

    Source: ngx_http_proxy_merge_loc_conf() (headers_source), ngx_conf_merge_ptr_value().
    """
    if wanted.directive not in _ALL_OR_NONE:
        return None
    around = (one for one in reversed(scope.chain) if one.block is not None)
    return next((one for one in around if one.block and one.block.all(wanted.directive)), None)
