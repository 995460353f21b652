"""The long connections that a site can hold, and the load on a change; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, passes
from nginx_tune.conf.variables import Variables
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Target
from nginx_tune.documents.rehearsal import HeldKind
from nginx_tune.experiment.operations import HeldClient
from nginx_tune.experiment.validate.asks import Ask

_CONNECTIONS = 256
"""Of a class: arrivals are not to wait for the probe."""
_HELD = 8
_TIMEOUT_SECONDS = 10.0
FRESH = "fresh"
"""The class whose requests come on new connections."""
_LEAST_DOWNLOAD_BYTES = 1 << 20
"""A smaller one may fit into the buffers of the kernel: nginx is done with it at once."""
_UPLOAD_BYTES = 512 << 10
_ANSWERED = list(range(200, 400))
"""Statuses of what is served, or sent elsewhere."""


class ClientsToHold(NamedTuple):
    """What is held, and why other kinds are not."""

    clients: list[HeldClient]
    left_out: dict[HeldKind, str]


def at_rate(plan: LoadPlan, rate_per_second: float) -> LoadPlan:
    """The plan's classes at a fixed rate all together, and one that opens connections.

    A class that has a rate of its own keeps it.
    """
    first = plan.classes[0]
    paced = [one for one in plan.classes if one.arrivals.kind in {"replay", "steps"}]
    rest = [one for one in plan.classes if one not in paced]
    share = rate_per_second / (len(rest) + 1)
    fresh = msgspec.structs.replace(
        _paced(first, share),
        name=FRESH,
        keepalive=False,
        connection_use="latest",
        held_connections=None,
    )
    return msgspec.structs.replace(plan, classes=[*paced, *(_paced(o, share) for o in rest), fresh])


def _paced(one: LoadClass, rate_per_second: float) -> LoadClass:
    return msgspec.structs.replace(
        one,
        arrivals=Arrivals(kind="poisson", rate_per_second=rate_per_second),
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=_HELD,
        timeout_seconds=_TIMEOUT_SECONDS,
    )


def answered_by_either(plan: LoadPlan, limited: Mapping[str, Sequence[int]]) -> LoadPlan:
    """The plan with each class content with what either configuration may answer.

    ``limited`` are by class the statuses of limits for each client: the load is no crowd.

    Served otherwise, by another redirect or with another file, is no failure of the change: what
    NEW answers is compared by itself. A body that breaks off still fails.
    """
    return msgspec.structs.replace(
        plan,
        classes=[
            msgspec.structs.replace(
                one,
                status=[*_ANSWERED, *limited.get(one.name, ())],
                paths=msgspec.structs.replace(one.paths, bytes=None, files=None),
            )
            for one in plan.classes
        ],
    )


def held_clients(
    tree: ConfTree, plan: LoadPlan, asks: Sequence[Ask], *, idle: int, active: int
) -> ClientsToHold:
    """``idle`` connections over all servers that are asked, ``active`` of each other kind."""
    found: list[HeldClient] = []
    left_out: dict[HeldKind, str] = {}
    entries = _entries(plan)
    for number in range(idle):
        target, url = entries[number % len(entries)]
        found.append(HeldClient(kind="idle", target=target, url=url))
    kinds: tuple[HeldKind, ...] = ("silent", "keepalive")
    for kind in kinds:
        for number in range(active):
            target, url = entries[number % len(entries)]
            found.append(HeldClient(kind=kind, target=target, url=url))
    largest = _largest(plan)
    if largest is None:
        left_out["download"] = "no file of a MiB or more is served"
    else:
        one = HeldClient(kind="download", target=largest[1], url=largest[2], bytes=largest[0])
        found += [one] * active
    classes = {one.name for one in plan.classes}
    own = [one for one in asks if one.name in classes]
    passed = passes(scopes(tree), Variables(tree))
    upgraded = _asks_of(own, [one for one in passed if _is_upgraded(one)])
    if not upgraded:
        left_out["websocket"] = "no location that is asked passes the header Upgrade on"
    found += _spread("websocket", upgraded, active)
    taking = _asks_of(own, [one for one in passed if one.module != "memcached"])
    if not taking:
        left_out["upload"] = "no location that is asked passes requests on"
    found += _spread("upload", taking, active, _UPLOAD_BYTES)
    return ClientsToHold(found, left_out if active else {})


def _entries(plan: LoadPlan) -> list[tuple[Target, str]]:
    """One small request for each server."""
    found: dict[tuple[str, int, str | None, str], tuple[int, Target, str]] = {}
    for one in plan.classes:
        target = one.target or plan.target
        place = (target.address, target.port, target.unix, target.host)
        sizes = one.paths.bytes or [0] * len(one.paths.paths)
        for size, url in zip(sizes, one.paths.paths, strict=False):
            if place not in found or size < found[place][0]:
                found[place] = (size, target, url)
    return [(target, url) for _, target, url in found.values()]


def _largest(plan: LoadPlan) -> tuple[int, Target, str] | None:
    files = [
        (size, one.target or plan.target, url)
        for one in plan.classes
        for size, url in zip(one.paths.bytes or [], one.paths.paths, strict=False)
        if size >= _LEAST_DOWNLOAD_BYTES
    ]
    return max(files, key=lambda file: file[0], default=None)


def _is_upgraded(one: Pass) -> bool:
    lines = one.scope.effective_all("proxy_set_header")
    return one.module == "proxy" and any(line.value.lower() == "upgrade" for line in lines)


def _asks_of(asks: Sequence[Ask], found: Sequence[Pass]) -> list[Ask]:
    # By the server and not by its name: that on port 80 has it too, and sends all away.
    places = {
        (one.scope.server, " ".join(one.scope.own.args))
        for one in found
        if one.scope.kind == "location"
    }
    return [ask for ask in asks if (ask.block, ask.location) in places]


def _spread(kind: HeldKind, asks: Sequence[Ask], count: int, size: int = 0) -> list[HeldClient]:
    if not asks:
        return []
    chosen = [asks[number % len(asks)] for number in range(count)]
    return [HeldClient(kind=kind, target=one.target, url=one.url, bytes=size) for one in chosen]
