"""The load under which an objective's capacity is searched; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

from nginx_tune.documents.loadplan import Arrivals, LoadClass
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.measure.plan_load import HELD_CONNECTIONS
from nginx_tune.prove.objective import Objective

_FIRST_PER_SECOND = 100.0
_CONNECTIONS = 512
"""Of an open class: arrivals are not to wait for the probe."""


Class = TypeVar("Class", ScenarioClass, LoadClass)


def open_classes(
    classes: Sequence[Class], objective: Objective, *, others: Collection[str] = ()
) -> list[Class]:
    """The classes of the objective at a rate, the others of the same load as they are.

    ``others`` are classes beside these that the objective may name instead. Other open classes
    are left out: the search would change their rate too.
    """
    names: set[str] = {item.name for item in classes}
    heads = {expression.name.partition(".")[0] for expression in objective.expressions}
    named = heads & {*names, *others} or {*names, *others}
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
