"""What the tables of known directives say of a configuration, for the rules about them.

They are silent about a fork, whose directives may differ, and where a module is loaded that
nobody here knows: it may bring directives of any name. A configuration of thousands of servers
has a few hundred kinds of directives (by name, context and number of arguments), each of which is
judged once.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import (
    DirectiveRow,
    is_known,
    is_listed,
    is_outside_history,
    known_modules,
    lacks_a_version,
    nearest,
    rows_of,
    slip_of,
)
from nginx_tune.conf.placement import placed
from nginx_tune.conf.templates import is_cut, is_template_line
from nginx_tune.conf.tree import ConfTree

if TYPE_CHECKING:
    from nginx_tune.audit.context import Context

CONTEXT_NAMES = {
    "main": "the main context",
    "server-if": "an if in server",
    "location-if": "an if in location",
    "mail-server": "a server of mail",
    "stream-server": "a server of stream",
    "stream-upstream": "an upstream of stream",
}


class Kind(NamedTuple):
    """What the tables can tell directives by."""

    name: str
    context: str
    arguments: int
    is_block: bool

    @property
    def where(self) -> str:
        """The context in words."""
        return CONTEXT_NAMES.get(self.context, self.context)


def kinds_of(tree: ConfTree) -> dict[Kind, list[Directive]]:
    """The directives of a tree by their kind, in the order met, without what a template cut up."""
    found: dict[tuple[str, str, int, bool], list[Directive]] = {}
    for one, where in placed(tree):
        if is_cut((one.name, *one.args)) or is_template_line(one.name):
            continue
        key = (one.name, where, len(one.args), one.block is not None)
        found.setdefault(key, []).append(one)
    return {Kind(*key): directives for key, directives in found.items()}


def known_here(
    context: Context,
) -> Iterator[tuple[Kind, tuple[DirectiveRow, ...], list[Directive]]]:
    """Directives whose name is known, with the rows that this nginx may have."""
    for kind, directives in _judged(context).items():
        rows = rows_of(kind.name)
        if context.version is not None:
            rows = tuple(
                row.as_in(context.version)
                for row in rows
                if not row.is_surely_absent(context.version)
            )
        if rows:
            yield kind, rows, directives


def not_in_version(context: Context) -> Iterator[tuple[tuple[DirectiveRow, ...], list[Directive]]]:
    """Directives that this version surely lacks, or might lack while it is not known."""
    version = context.version
    for kind, directives in _judged(context).items():
        rows = rows_of(kind.name)
        if (not rows and version is not None and is_outside_history(kind.name, version)) or (
            lacks_a_version(kind.name)
            if version is None
            else rows and all(row.is_surely_absent(version) for row in rows)
        ):
            yield rows, directives


class UnknownNames(NamedTuple):
    """Directives whose name nobody knows."""

    directives: list[Directive]
    meant: str | None
    """The known name that it is probably a slip of."""
    doubt: str
    """Why some nginx may know it all the same; empty where it is surely refused."""


def unknown(context: Context) -> Iterator[UnknownNames]:
    """Directives whose name nobody knows, and how sure it is that nginx refuses them.

    Only what looks misspelt of a part of a configuration, which does not say which modules are
    loaded, and beside a module that is not known here.
    """
    foreign = _foreign_module(context) or _module_built(context)
    if _is_fork(context):
        return
    for kind, directives in context.kinds.items():
        if is_known(kind.name):
            continue
        slip = slip_of(kind.name)
        meant = slip or nearest(kind.name)
        if foreign is not None:
            if slip is not None:
                yield UnknownNames(directives, meant, f"{foreign}, which is not known here, has it")
        elif slip is not None:
            yield UnknownNames(directives, meant, "")
        elif meant is not None or not context.tree.is_part:
            is_listed = bool(context.flags) and context.tree.is_whole
            doubt = "" if is_listed else "a module that nginx is built with or loads has it"
            yield UnknownNames(directives, meant, doubt)


def judges_names(context: Context) -> bool:
    """Whether all names of this nginx are known: it is no fork and loads no foreign module."""
    return not _is_fork(context) and _foreign_module(context) is None


def _is_fork(context: Context) -> bool:
    return context.facts.nginx.product not in {None, "nginx"}


def _foreign_module(context: Context) -> str | None:
    """A module that this nginx has and whose directives are not known here, in words."""
    if context.flags is not None and "--add-module" in context.flags:
        return "a module built into it"
    known = known_modules()
    for line in context.tree.main.all("load_module"):
        name = posixpath.basename(line.value)
        if name.removesuffix(".so") not in known:
            return name
    return None


def _module_built(context: Context) -> str | None:
    """The module of a name that only the list of names has, in words: others may be built too."""
    names = (kind.name for kind in context.kinds)
    name = next((one for one in names if is_listed(one) and not rows_of(one)), None)
    return None if name is None else f'a module beside that of "{name}"'


def _judged(context: Context) -> dict[Kind, list[Directive]]:
    return context.kinds if judges_names(context) else {}
