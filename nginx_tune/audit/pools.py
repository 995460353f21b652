"""Which directories a thread pool reads."""

from __future__ import annotations

from nginx_tune.audit.context import Context
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.thread_pools import asked_pool


def paths_by_pool(context: Context) -> dict[str, tuple[Directive, set[str]]]:
    """Directories by the pool that reads them; a name of several values is a pool per disk."""
    found: dict[str, tuple[Directive, set[str]]] = {}
    for served in context.served:
        aio = served.scope.effective("aio")
        name = asked_pool(aio)
        if aio is None or name is None:
            continue
        values = context.variables.possible(name, served.scope)
        if values.complete and len(values.known) == 1:
            for value in values.known:
                found.setdefault(value, (aio, set()))[1].add(served.path)
    return found
