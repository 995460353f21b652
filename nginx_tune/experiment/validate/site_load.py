"""The load of a validation, over its protocols, at the first root and in other places; pure.

Recorded requests, a learnt workload, or the loads of the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from nginx_tune.documents.loadplan import (
    Arrivals,
    Http2,
    Http3,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    RequestClass,
    Target,
)
from nginx_tune.documents.scenario import MultiplexedVersion, ScenarioClass, SiteLoad
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UsageError
from nginx_tune.experiment.target import EntryPoint
from nginx_tune.experiment.validate.site_requests import SiteRequest
from nginx_tune.measure.load.classes import (
    HELD_CONNECTIONS,
    THINK_SECONDS,
    ServedFile,
    default_classes,
)

SITE = "site"
"""The class of the site's own traffic."""
_CONNECTIONS = 512
"""Arrivals are not to wait for the probe."""
_DEFAULT_EXPONENT = 0.8
_LEAST_RATIO = 0.001
"""The least share of all requests; below, a class of its own tells nothing."""
MOST = 12
"""Classes of other places: each has connections of its own."""
MOST_FILES = 500
"""The most files of one such place."""
_FURTHER_USERS = 2
_FURTHER_CONNECTIONS = 256
_FURTHER_HELD = 8
"""Held connections of such a class: there are up to ``MOST`` of them beside each other."""
_WORDS: dict[MultiplexedVersion | None, str] = {None: "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}

C = TypeVar("C", bound=RequestClass)


def default_load() -> SiteLoad:
    """A hot file and random ones, and two users of every other place."""
    return SiteLoad(classes=default_classes(), primary_metric="hot.requests_per_second", asks="all")


def replay_load(manifest: str, *, speed: float, hashed: bool = False) -> SiteLoad:
    """The requests of a manifest at the times they came, beside a location without a file."""
    site = ScenarioClass(
        name=SITE,
        source="random",
        manifest=manifest,
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=HELD_CONNECTIONS,
        arrivals=Arrivals(kind="replay", speed=speed),
    )
    pace = "as recorded" if speed == 1 else f"{speed:g} times as fast as recorded"
    return SiteLoad(
        classes=[site, _memory()],
        primary_metric=f"{SITE}.mean",
        notes=[f"requests of a manifest, {pace}"],
        manifest=manifest,
        hashed=hashed,
    )


def workload_load(workload: Workload) -> SiteLoad:
    """The rate and popularity of a workload over the files that are served.

    Which file is popular is not known, so the files stand in an order of their own.
    Errors: UsageError for a workload without a rate.
    """
    rate = workload.rate.peak_per_second or workload.rate.mean_per_second
    if not rate:
        raise UsageError(
            "the workload has no request rate", hint="learn it from a log, or declare rate"
        )
    exponent = workload.popularity.exponent
    site = ScenarioClass(
        name=SITE,
        source="random",
        exponent=_DEFAULT_EXPONENT if exponent is None else exponent,
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=HELD_CONNECTIONS,
        arrivals=Arrivals(kind="poisson", rate_per_second=rate),
    )
    said = f"{rate:g} requests a second, popularity exponent {site.exponent:g}"
    locations = workload.traffic.locations if workload.traffic else []
    return SiteLoad(
        classes=[site, _memory()],
        primary_metric=f"{SITE}.mean",
        notes=[f"load of the workload: {said}"],
        asks="locations" if locations else "files",
        locations=locations,
        rate_per_second=rate,
    )


def share_of(load: SiteLoad, server: str, location: str) -> float | None:
    """The share of the requests that a place has; None where none is told."""
    shares = [
        one.requests_ratio
        for one in load.locations
        if (one.server, one.location) == (server, location)
    ]
    return sum(shares) if shares else None


def with_rest(classes: Sequence[ScenarioClass], ratio: float) -> list[ScenarioClass]:
    """The classes with this share of the site's own rate: what is asked elsewhere is not here.

    Without any of it the class is left out.
    """
    return [
        msgspec.structs.replace(
            item,
            arrivals=msgspec.structs.replace(
                item.arrivals, rate_per_second=(item.arrivals.rate_per_second or 0.0) * ratio
            ),
        )
        if _is_site(item) and item.arrivals.kind == "poisson"
        else item
        for item in classes
        if not _is_site(item) or ratio > _LEAST_RATIO
    ]


def _is_site(item: ScenarioClass) -> bool:
    """Over whatever protocol."""
    return item.name == SITE or item.name.startswith(f"{SITE}-http")


def _memory() -> ScenarioClass:
    return next(item for item in default_classes() if item.source == "memory")


def over_protocols(load: SiteLoad, protocols: Sequence[MultiplexedVersion]) -> SiteLoad:
    """The same load over each of some protocols, a class for each; none leaves it HTTP/1.1.

    Connections are held, and each carries many requests. A rate is shared out evenly.
    Errors: UsageError for recorded requests over several.
    """
    if not protocols:
        return load
    if load.manifest and len(protocols) > 1:
        raise UsageError(
            "recorded requests came once, and are asked over one protocol",
            hint="give --http2 or --http3, not both",
        )
    head, _, rest = load.primary_metric.partition(".")
    return msgspec.structs.replace(
        load,
        classes=[
            over_protocol(item, one, len(protocols)) for item in load.classes for one in protocols
        ],
        primary_metric=f"{class_name(head, protocols[0], len(protocols))}.{rest}",
        protocols=[*protocols],
    )


def class_name(name: str, protocol: MultiplexedVersion | None, count: int) -> str:
    """The name of a class over one of so many protocols."""
    return name if protocol is None or count == 1 else f"{name}-http{protocol}"


def over_protocol(item: C, protocol: MultiplexedVersion | None, count: int) -> C:
    """A class of HTTP/1.1 over one of so many protocols."""
    if protocol is None:
        return item
    rate = item.arrivals.rate_per_second
    return msgspec.structs.replace(
        item,
        name=class_name(item.name, protocol, count),
        http2=Http2() if protocol == "2" else None,
        http3=Http3() if protocol == "3" else None,
        arrivals=msgspec.structs.replace(
            item.arrivals, rate_per_second=None if rate is None else rate / count
        ),
        connections=item.held_connections or item.connections,
        connection_use="latest",
        held_connections=None,
    )


def offered(
    pair: tuple[SiteRequest, SiteRequest], wanted: Sequence[MultiplexedVersion]
) -> list[MultiplexedVersion | None]:
    """Over what a place is asked: the wanted protocols that both variants offer, else HTTP/1.1."""
    found = [one for one in wanted if all(request.spoken.at(one) is not None for request in pair)]
    return [*found] or [None]


def class_names(
    pair: tuple[SiteRequest, SiteRequest], wanted: Sequence[MultiplexedVersion]
) -> list[str]:
    """The names of its classes."""
    protocols = offered(pair, wanted)
    return [class_name(pair[0].name, one, len(protocols)) for one in protocols]


def at_listeners(plan: LoadPlan, entry: EntryPoint) -> LoadPlan:
    """The plan with each class aimed at the listener of the entry that speaks its protocol."""
    classes = []
    for item in plan.classes:
        protocol = _protocol(item)
        target = None if protocol is None else entry.spoken.at(protocol)
        aimed = None if target == plan.target else target
        classes.append(msgspec.structs.replace(item, target=aimed))
    return msgspec.structs.replace(plan, classes=classes, permit=_permit(plan, classes))


def _permit(plan: LoadPlan, classes: Sequence[LoadClass]) -> Permit:
    own: list[Target] = [item.target for item in classes if item.target is not None]
    return msgspec.structs.replace(
        plan.permit,
        ports=sorted({*plan.permit.ports, *(one.port for one in own if one.unix is None)}),
    )


def wanted_protocols(load: SiteLoad) -> list[MultiplexedVersion]:
    """The protocols of the entry's classes beside HTTP/1.1."""
    found: list[MultiplexedVersion] = []
    if any(item.http2 is not None for item in load.classes):
        found.append("2")
    if any(item.http3 is not None for item in load.classes):
        found.append("3")
    return found


def protocol_note(plan: LoadPlan, wanted: Sequence[MultiplexedVersion]) -> list[str]:
    """The protocols of all classes, where any but HTTP/1.1 was wanted."""
    if not wanted:
        return []
    by_protocol: dict[str, list[str]] = {}
    for item in plan.classes:
        by_protocol.setdefault(_WORDS[_protocol(item)], []).append(item.name)
    said = "; ".join(f"{', '.join(by_protocol[word])} over {word}" for word in sorted(by_protocol))
    return [f"asked: {said}"]


def _protocol(item: LoadClass) -> MultiplexedVersion | None:
    if item.http3 is not None:
        return "3"
    return None if item.http2 is None else "2"


def plan_classes(
    request: SiteRequest,
    protocols: Sequence[MultiplexedVersion | None],
    *,
    status: int,
    files: Sequence[ServedFile],
    rate_per_second: float | None,
) -> list[LoadClass]:
    """The classes of an ask, one over each protocol at the listener that speaks it.

    Its files are asked for, or its one URL; by two users where no rate is known. ``files`` are
    URLs.
    """
    paths = Paths(kind="fixed", paths=[request.url])
    if files:
        paths = Paths(
            kind="uniform",
            paths=[file.url for file in files],
            bytes=[file.bytes for file in files],
        )
    arrivals = Arrivals(kind="closed", users=_FURTHER_USERS, think_seconds=THINK_SECONDS)
    if rate_per_second is not None:
        arrivals = Arrivals(kind="poisson", rate_per_second=rate_per_second)
    turns = arrivals.kind != "closed"
    item = LoadClass(
        name=request.name,
        target=request.target,
        arrivals=arrivals,
        paths=paths,
        connections=_FURTHER_CONNECTIONS if turns else _FURTHER_USERS,
        connection_use="turns" if turns else "latest",
        held_connections=_FURTHER_HELD if turns else None,
        status=[status],
    )
    return [
        msgspec.structs.replace(
            over_protocol(item, one, len(protocols)),
            target=request.target if one is None else request.spoken.at(one),
        )
        for one in protocols
    ]


def with_extra_classes(plan: LoadPlan, extra: Sequence[LoadClass]) -> LoadPlan:
    """The plan with more classes, and leave to ask their servers."""
    targets = [plan.target, *(item.target for item in extra if item.target is not None)]
    permit = msgspec.structs.replace(
        plan.permit,
        ports=sorted({*plan.permit.ports, *(one.port for one in targets if one.unix is None)}),
        sockets=sorted({one.unix for one in targets if one.unix is not None}),
    )
    return msgspec.structs.replace(plan, classes=[*plan.classes, *extra], permit=permit)
