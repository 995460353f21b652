"""Whether classes can share connections as they say, and be as urgent and as slow; pure.

The probe looks once more (``probes/src/plan/family.rs``): a plan may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.documents.loadplan import Priority, RequestClass

_MOST_WEIGHT = 256
_MOST_URGENCY = 7


def family_faults(classes: Sequence[RequestClass]) -> list[str]:
    """What is wrong, each with the field in front; nothing where all can be done."""
    named = {item.name: item for item in classes}
    faults = []
    for item in classes:
        if item.priority is not None:
            faults += [f"classes.priority: {what}" for what in _of_priority(item, item.priority)]
            for name in item.priority.depends_on:
                if name not in named or _family(named[name]) != _family(item):
                    faults.append(
                        f"classes.priority.depends_on: no class on its connections: {name[:60]!a}"
                    )
        if item.read_pace_of == "connection" and (
            item.http2 is None or item.read_bytes_per_second is None
        ):
            faults.append("classes.read_pace_of: of HTTP/2 and read_bytes_per_second")
        if item.connections_of is not None:
            faults += [
                f"classes.connections_of: {what}"
                for what in _of_guest(item, named.get(item.connections_of))
            ]
    return faults


def _family(item: RequestClass) -> str:
    return item.connections_of or item.name


def _of_priority(item: RequestClass, priority: Priority) -> list[str]:
    weight, urgency = priority.weight, priority.urgency
    has_place = bool(priority.depends_on) or priority.exclusive or priority.frame != "headers"
    faults = {
        "neither weight nor urgency": weight is None and urgency is None,
        f"weight: not from 1 to {_MOST_WEIGHT}": weight is not None
        and not 1 <= weight <= _MOST_WEIGHT,
        f"urgency: not from 0 to {_MOST_URGENCY}": urgency is not None
        and not 0 <= urgency <= _MOST_URGENCY,
        "weight: of HTTP/2 alone": weight is not None and item.http2 is None,
        "weight: missing": weight is None and has_place,
        "urgency: missing": urgency is None and priority.incremental,
        "urgency: headers have a priority already": urgency is not None
        and any(name.lower() == "priority" for name in item.headers),
    }
    return [fault for fault, stands in faults.items() if stands]


def _of_guest(item: RequestClass, owner: RequestClass | None) -> list[str]:
    if owner is None or owner is item or owner.connections_of is not None or owner.http2 is None:
        return ["no class of HTTP/2 with connections of its own"]
    both = (item, owner)
    faults = {
        "http2 and connections are those of the other class": item.http2 != owner.http2
        or item.connections != owner.connections,
        "its connections are the other's: read_pace_of stream": item.read_pace_of == "connection",
        "not with events": any(getattr(one, "source", "") == "events" for one in both),
    }
    return [fault for fault, stands in faults.items() if stands]
