"""The load under which an objective's capacity is searched; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.prove.objective import Objective

_FIRST_PER_SECOND = 100.0
_CONNECTIONS = 512
"""Of an open class: arrivals are not to wait for the probe."""


def open_classes(classes: Sequence[ScenarioClass], objective: Objective) -> list[ScenarioClass]:
    """The classes of the objective at a rate, the others of the same load as they are.

    Other open classes are left out: the search would change their rate too.
    """
    heads = {expression.name.partition(".")[0] for expression in objective.expressions}
    named = heads & {item.name for item in classes} or {item.name for item in classes}
    return [
        msgspec.structs.replace(
            item,
            arrivals=Arrivals(kind="poisson", rate_per_second=_FIRST_PER_SECOND / len(named)),
            connections=max(item.connections, _CONNECTIONS),
        )
        if item.name in named
        else item
        for item in classes
        if item.name in named or item.arrivals.kind == "closed"
    ]
