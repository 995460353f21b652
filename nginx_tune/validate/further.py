"""The classes of a load beside those of the files of the first root; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.loadplan import (
    Arrivals,
    LoadClass,
    LoadPlan,
    Paths,
)
from nginx_tune.load.classes import THINK_SECONDS, ServedFile
from nginx_tune.validate.asks import Ask

MOST = 12
"""Classes of other places: each has connections of its own."""
MOST_FILES = 500
"""Of one such place."""
_USERS = 2
_CONNECTIONS = 256
"""Of a class with a rate: arrivals are not to wait for the probe."""
_HELD_CONNECTIONS = 8
"""Of them: there are up to ``MOST`` such classes beside each other."""


def plan_class(
    ask: Ask, *, status: int, files: Sequence[ServedFile], rate_per_second: float | None
) -> LoadClass:
    """The class of an ask: its files, or its one URL; two users where no rate is known.

    ``files`` are URLs.
    """
    paths = Paths(kind="fixed", paths=[ask.url])
    if files:
        paths = Paths(
            kind="uniform",
            paths=[file.url for file in files],
            bytes=[file.bytes for file in files],
        )
    arrivals = Arrivals(kind="closed", users=_USERS, think_seconds=THINK_SECONDS)
    if rate_per_second is not None:
        arrivals = Arrivals(kind="poisson", rate_per_second=rate_per_second)
    turns = arrivals.kind != "closed"
    return LoadClass(
        name=ask.name,
        target=ask.target,
        arrivals=arrivals,
        paths=paths,
        connections=_CONNECTIONS if turns else _USERS,
        connection_use="turns" if turns else "latest",
        held_connections=_HELD_CONNECTIONS if turns else None,
        status=[status],
    )


def with_further(plan: LoadPlan, further: Sequence[LoadClass]) -> LoadPlan:
    """The plan with more classes, and leave to ask their servers."""
    targets = [plan.target, *(item.target for item in further if item.target is not None)]
    permit = msgspec.structs.replace(
        plan.permit,
        ports=sorted({*plan.permit.ports, *(one.port for one in targets if one.unix is None)}),
        sockets=sorted({one.unix for one in targets if one.unix is not None}),
    )
    return msgspec.structs.replace(plan, classes=[*plan.classes, *further], permit=permit)
