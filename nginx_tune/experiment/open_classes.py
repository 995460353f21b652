"""The load under which an objective's capacity is searched; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.loadplan import Arrivals, LoadClass
from nginx_tune.load.classes import HELD_CONNECTIONS
from nginx_tune.prove.objective import Objectives

_FIRST_PER_SECOND = 100.0
_CONNECTIONS = 512
"""Of an open class: arrivals are not to wait for the probe."""


def open_classes(classes: Sequence[LoadClass], objective: Objectives) -> list[LoadClass]:
    """The classes of the objective at a rate, the others of the same load as they are.

    Other open classes are left out: the search would change their rate too.
    """
    names = {item.name for item in classes}
    heads = {expression.name.partition(".")[0] for expression in objective.expressions}
    named = heads & names or names
    return [
        msgspec.structs.replace(
            item,
            arrivals=Arrivals(kind="poisson", rate_per_second=_FIRST_PER_SECOND / len(named)),
            connections=max(item.connections, _CONNECTIONS),
            connection_use="turns" if item.keepalive else "latest",
            held_connections=min(item.connections, HELD_CONNECTIONS) if item.keepalive else None,
        )
        if item.name in named
        else item
        for item in classes
        if item.name in named or item.arrivals.kind == "closed"
    ]
