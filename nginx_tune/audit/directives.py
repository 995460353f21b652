"""What the tables of known directives say of a configuration, for the rules about them.

They are silent about a fork, whose directives may differ, and where a module is loaded that
nobody here knows: it may bring directives of any name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import (
    Row,
    is_known,
    known_modules,
    lacks_a_version,
    nearest,
    rows_of,
)
from nginx_tune.conf.placement import placed

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


class Placed(NamedTuple):
    """A directive of a known name where it stands."""

    directive: Directive
    context: str
    rows: tuple[Row, ...]
    """What the versions that this may be have under its name."""

    @property
    def where(self) -> str:
        """The context in words."""
        return CONTEXT_NAMES.get(self.context, self.context)


def known_here(context: Context) -> Iterator[Placed]:
    """Directives whose name is known, with the rows that this nginx may have."""
    if not _is_judged(context):
        return
    for directive, where in placed(context.tree):
        rows = rows_of(directive.name)
        if context.version is not None:
            rows = tuple(row for row in rows if not row.is_surely_absent(context.version))
        if rows:
            yield Placed(directive, where, rows)


def not_in_version(context: Context) -> Iterator[Placed]:
    """Directives that this version surely lacks, or might lack while it is not known."""
    if not _is_judged(context):
        return
    version = context.version
    for directive, where in placed(context.tree):
        rows = rows_of(directive.name)
        if (
            lacks_a_version(directive.name)
            if version is None
            else rows and all(row.is_surely_absent(version) for row in rows)
        ):
            yield Placed(directive, where, rows)


def unknown(context: Context) -> Iterator[tuple[Directive, str | None]]:
    """Directives whose name nobody knows, with the name that was probably meant."""
    if not _is_judged(context):
        return
    for directive, _ in placed(context.tree):
        if not is_known(directive.name):
            yield directive, nearest(directive.name)


def _is_judged(context: Context) -> bool:
    if context.facts.nginx.product not in {None, "nginx"}:
        return False
    if context.flags is not None and "--add-module" in context.flags:
        return False
    known = known_modules()
    return all(
        posixpath.basename(line.value).removesuffix(".so") in known
        for line in context.tree.main.all("load_module")
    )
