"""The load of a validation: recorded requests, a workload, or the default classes.

It covers the first root and the other servers and locations, over the requested protocols.
"""

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
"""Connections of a class, so many that arrivals never wait for a free one."""
_DEFAULT_EXPONENT = 0.8
_LEAST_RATIO = 0.001
"""The share of requests below which a class is left out."""
MOST = 12
"""Bound on the other places that are loaded, each with its own connections."""
MOST_FILES = 500
"""Bound on the files of another place that are loaded."""
_FURTHER_USERS = 2
_FURTHER_CONNECTIONS = 256
_FURTHER_HELD = 8
"""Open connections of each class of another place; there are up to ``MOST`` places."""
_WORDS: dict[MultiplexedVersion | None, str] = {None: "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}

C = TypeVar("C", bound=RequestClass)


def default_load() -> SiteLoad:
    """The default load: a hot file, random files, and two users of every other place."""
    return SiteLoad(classes=default_classes(), primary_metric="hot.requests_per_second", asks="all")


def replay_load(manifest: str, *, speed: float, hashed: bool = False) -> SiteLoad:
    """The load of a manifest, with requests at recorded times, and of the URL without a file."""
    site = ScenarioClass(
        name=SITE,
        source="random",
        manifest=manifest,
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=HELD_CONNECTIONS,
        arrivals=Arrivals(kind="replay", speed=speed),
    )
    pace = "at its recorded pace" if speed == 1 else f"at {speed:g} times its recorded pace"
    return SiteLoad(
        classes=[site, _memory()],
        primary_metric=f"{SITE}.mean",
        notes=[f"requests of a manifest, {pace}"],
        manifest=manifest,
        hashed=hashed,
    )


def workload_load(workload: Workload) -> SiteLoad:
    """The rate and popularity of a workload over the served files.

    The popular files are not known, so the rank of a file is arbitrary.
    Errors: UsageError for a workload without a rate.
    """
    rate = workload.rate.peak_per_second or workload.rate.mean_per_second
    if not rate:
        raise UsageError(
            "the workload has no request rate", hint="learn it from a log, or declare 'rate'"
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
    what = f"{rate:g} requests per second, popularity exponent {site.exponent:g}"
    locations = workload.traffic.locations if workload.traffic else []
    return SiteLoad(
        classes=[site, _memory()],
        primary_metric=f"{SITE}.mean",
        notes=[f"load of the workload: {what}"],
        asks="locations" if locations else "files",
        locations=locations,
        rate_per_second=rate,
    )


def share_of(load: SiteLoad, server: str, location: str) -> float | None:
    """The share of requests of a place; None if the load does not state it."""
    shares = [
        place.requests_ratio
        for place in load.locations
        if (place.server, place.location) == (server, location)
    ]
    return sum(shares) if shares else None


def with_rest(classes: Sequence[ScenarioClass], ratio: float) -> list[ScenarioClass]:
    """The classes, with the site's own at this share of their rate.

    If the share is too small, the site's own classes are left out.
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
    """True for the class of the site's own traffic over any protocol."""
    return item.name == SITE or item.name.startswith(f"{SITE}-http")


def _memory() -> ScenarioClass:
    return next(item for item in default_classes() if item.source == "memory")


def over_protocols(load: SiteLoad, protocols: Sequence[MultiplexedVersion]) -> SiteLoad:
    """The load over each of some protocols, with a class for each; without any, over HTTP/1.1.

    Connections stay open and carry many requests each. A rate is divided evenly.
    Errors: UsageError for recorded requests over several protocols.
    """
    if not protocols:
        return load
    if load.manifest and len(protocols) > 1:
        raise UsageError(
            "recorded requests can be replayed over one protocol only",
            hint="give --http2 or --http3, not both",
        )
    head, _, rest = load.primary_metric.partition(".")
    return msgspec.structs.replace(
        load,
        classes=[
            over_protocol(item, protocol, len(protocols))
            for item in load.classes
            for protocol in protocols
        ],
        primary_metric=f"{class_name(head, protocols[0], len(protocols))}.{rest}",
        protocols=[*protocols],
    )


def class_name(name: str, protocol: MultiplexedVersion | None, count: int) -> str:
    """The name of a class; it ends in the protocol if there are several, as in ``site-http2``."""
    return name if protocol is None or count == 1 else f"{name}-http{protocol}"


def over_protocol(item: C, protocol: MultiplexedVersion | None, count: int) -> C:
    """An HTTP/1.1 class over one of ``count`` protocols, with its share of the rate."""
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
    pair: tuple[SiteRequest, SiteRequest], requested: Sequence[MultiplexedVersion]
) -> list[MultiplexedVersion | None]:
    """The protocols of a place: the requested protocols that both variants offer, else HTTP/1.1."""
    found = [
        protocol
        for protocol in requested
        if all(request.spoken.at(protocol) is not None for request in pair)
    ]
    return [*found] or [None]


def class_names(
    pair: tuple[SiteRequest, SiteRequest], requested: Sequence[MultiplexedVersion]
) -> list[str]:
    """The names of a place's classes."""
    protocols = offered(pair, requested)
    return [class_name(pair[0].name, protocol, len(protocols)) for protocol in protocols]


def at_listeners(plan: LoadPlan, entry: EntryPoint) -> LoadPlan:
    """The plan, with each class at the entry point's listener for its protocol."""
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
        ports=sorted({*plan.permit.ports, *(target.port for target in own if target.unix is None)}),
    )


def protocols_of(load: SiteLoad) -> list[MultiplexedVersion]:
    """The protocols of the load's classes other than HTTP/1.1."""
    found: list[MultiplexedVersion] = []
    if any(item.http2 is not None for item in load.classes):
        found.append("2")
    if any(item.http3 is not None for item in load.classes):
        found.append("3")
    return found


def protocol_note(plan: LoadPlan, requested: Sequence[MultiplexedVersion]) -> list[str]:
    """A note on the protocols of all classes, if any other than HTTP/1.1 was requested."""
    if not requested:
        return []
    by_protocol: dict[str, list[str]] = {}
    for item in plan.classes:
        by_protocol.setdefault(_WORDS[_protocol(item)], []).append(item.name)
    parts = [f"{', '.join(by_protocol[word])} over {word}" for word in sorted(by_protocol)]
    return [f"protocols: {'; '.join(parts)}"]


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
    """The classes of a place, one for each protocol at the listener for it.

    They request its files (by URL) if it has any, else its URL. Two users send the requests if no
    rate is known.
    """
    paths = Paths(kind="fixed", paths=[request.url])
    if files:
        paths = Paths(
            kind="uniform", paths=[file.url for file in files], bytes=[file.bytes for file in files]
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
            over_protocol(item, protocol, len(protocols)),
            target=request.target if protocol is None else request.spoken.at(protocol),
        )
        for protocol in protocols
    ]


def with_extra_classes(plan: LoadPlan, extra: Sequence[LoadClass]) -> LoadPlan:
    """The plan with further classes, and permission for their servers."""
    targets = [plan.target, *(item.target for item in extra if item.target is not None)]
    permit = msgspec.structs.replace(
        plan.permit,
        ports=sorted(
            {*plan.permit.ports, *(target.port for target in targets if target.unix is None)}
        ),
        sockets=sorted({target.unix for target in targets if target.unix is not None}),
    )
    return msgspec.structs.replace(plan, classes=[*plan.classes, *extra], permit=permit)
