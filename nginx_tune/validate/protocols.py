"""Over which protocols a validation asks: what is wanted, and what a place offers; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.experiment import Protocol, SiteLoad
from nginx_tune.documents.loadplan import Http2, Http3, LoadClass, LoadPlan, Permit, Target
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.errors import UsageError
from nginx_tune.experiment.target import EntryPoint, Spoken
from nginx_tune.validate.asks import Ask

_WORDS: dict[Protocol | None, str] = {None: "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}


def over_protocols(load: SiteLoad, protocols: Sequence[Protocol]) -> SiteLoad:
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
        classes=[_over(item, one, len(protocols)) for item in load.classes for one in protocols],
        primary_metric=f"{class_name(head, protocols[0], len(protocols))}.{rest}",
        protocols=[*protocols],
    )


def class_name(name: str, protocol: Protocol | None, count: int) -> str:
    """The name of a class over one of so many protocols."""
    return name if protocol is None or count == 1 else f"{name}-http{protocol}"


def _over(item: ScenarioClass, protocol: Protocol, count: int) -> ScenarioClass:
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


def offered(pair: tuple[Ask, Ask], wanted: Sequence[Protocol]) -> list[Protocol | None]:
    """Over what a place is asked: the wanted protocols that both arms offer, else HTTP/1.1."""
    found = [one for one in wanted if all(ask.spoken.at(one) is not None for ask in pair)]
    return [*found] or [None]


def class_names(pair: tuple[Ask, Ask], wanted: Sequence[Protocol]) -> list[str]:
    """The names of its classes."""
    protocols = offered(pair, wanted)
    return [class_name(pair[0].name, one, len(protocols)) for one in protocols]


def with_protocol(
    item: LoadClass, spoken: Spoken, protocol: Protocol | None, count: int
) -> LoadClass:
    """A class of HTTP/1.1 over one of so many protocols, at the listener that speaks it."""
    if protocol is None:
        return item
    rate = item.arrivals.rate_per_second
    return msgspec.structs.replace(
        item,
        name=class_name(item.name, protocol, count),
        target=spoken.at(protocol),
        http2=Http2() if protocol == "2" else None,
        http3=Http3() if protocol == "3" else None,
        arrivals=msgspec.structs.replace(
            item.arrivals, rate_per_second=None if rate is None else rate / count
        ),
        connections=item.held_connections or item.connections,
        connection_use="latest",
        held_connections=None,
    )


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


def wanted_protocols(load: SiteLoad) -> list[Protocol]:
    """What the classes of the entry speak beside HTTP/1.1."""
    found: list[Protocol] = []
    if any(item.http2 is not None for item in load.classes):
        found.append("2")
    if any(item.http3 is not None for item in load.classes):
        found.append("3")
    return found


def protocol_note(plan: LoadPlan, wanted: Sequence[Protocol]) -> list[str]:
    """Which class asks over what, where any but HTTP/1.1 was wanted."""
    if not wanted:
        return []
    by_protocol: dict[str, list[str]] = {}
    for item in plan.classes:
        by_protocol.setdefault(_WORDS[_protocol(item)], []).append(item.name)
    said = "; ".join(f"{', '.join(by_protocol[word])} over {word}" for word in sorted(by_protocol))
    return [f"asked: {said}"]


def _protocol(item: LoadClass) -> Protocol | None:
    if item.http3 is not None:
        return "3"
    return None if item.http2 is None else "2"
