"""Thread pools: which are declared, and what an ``aio`` line asks for.

Source: ngx_thread_pool.c, ngx_http_core_set_aio. ``default`` exists when it is declared or when
some line asks for it by its constant name; a name with variables declares nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.tree import ConfTree

DEFAULT = "default"
DEFAULT_THREADS = 32
DEFAULT_QUEUE = 65536


class Pool(NamedTuple):
    """A declared pool; numbers are null when the line does not give a number."""

    name: str
    threads: int | None
    max_queue: int | None
    directive: Directive


def declared_pools(tree: ConfTree) -> dict[str, Pool]:
    """The ``thread_pool`` lines of the main context by name."""
    pools = {}
    for directive in tree.main.all("thread_pool"):
        values = dict(arg.split("=", 1) for arg in directive.args[1:] if "=" in arg)
        pools[directive.value] = Pool(
            directive.value,
            _number(values.get("threads")),
            _number(values.get("max_queue", str(DEFAULT_QUEUE))),
            directive,
        )
    return pools


def asked_pool(aio: Directive | None) -> str | None:
    """The pool name (variables unexpanded) an ``aio`` line asks for; null without ``threads``."""
    if aio is None or not aio.args:
        return None
    kind, equals, name = aio.args[0].partition("=")
    if kind != "threads":
        return None
    return name if equals else DEFAULT


def aio_lines(tree: ConfTree) -> list[tuple[Directive, str]]:
    """Every ``aio threads`` line inside http with the pool name it asks for."""
    return [
        (directive, name)
        for directive in http_directives(tree)
        if directive.name == "aio" and (name := asked_pool(directive)) is not None
    ]


def pool_names(tree: ConfTree) -> set[str]:
    """The pools that exist when nginx runs."""
    names = set(declared_pools(tree))
    if any(name == DEFAULT for _, name in aio_lines(tree)):
        names.add(DEFAULT)
    return names


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None
