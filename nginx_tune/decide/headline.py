"""What binds a host now, and what it cannot do of what is asked, whatever is decided."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.decide.bindings import FACTOR, find_bindings, most_at_best, sent_bytes
from nginx_tune.decide.descriptors import plan_descriptors
from nginx_tune.decide.model.blocking import BOUND_BY_DISKS
from nginx_tune.decide.situation import Situation, effective_cpus
from nginx_tune.documents.decisions import BindingResource, Resource
from nginx_tune.documents.units import bytes_text, number_text, percent_text, plural


class Headline(NamedTuple):
    """The first lines of every report on a host."""

    cannot: str
    """Begins with "This host cannot"; empty for nothing."""
    binding: str
    """A sentence: what binds, with its figure; what is not known of it."""
    bindings: list[BindingResource]
    """Every resource that is known, the least first."""


def headline(s: Situation) -> Headline:
    """The lines for a situation."""
    found = find_bindings(s)
    cannot = [_beyond_disks(s) or _beyond(s, found), _beyond_connections(s)]
    return Headline(" ".join(filter(None, cannot)), _sentence(s, found), found)


_NAMES: dict[Resource, tuple[str, str]] = {
    "link": ("the network link", "binds"),
    "disks": ("the disks", "bind"),
    "cpu": ("the CPUs", "bind"),
    "memory": ("copying from memory", "binds"),
    "clients": ("the clients", "bind"),
    "origin": ("the origin", "binds"),
}
"""Each resource, and its verb."""


def _sentence(s: Situation, found: list[BindingResource]) -> str:
    """What binds first, against what is asked for, and what is not known."""
    missing = _missing(s)
    unknown = f" Not known: {', '.join(missing)}." if missing else ""
    if s.kind == "proxy":
        unknown += " The origin may bind before: what it gives is not known."
    if not found:
        return f"What binds is not known.{unknown}"
    first = found[0]
    name, verb = _NAMES[first.resource]
    subject = name[0].upper() + name[1:]
    figure = f"{number_text(first.requests_per_second)} requests/s"
    figure += f" ({bytes_text(first.bytes_per_second)}/s){_why(s, first)}"
    asked = s.rate.value
    if asked is None:
        return f"{subject} {verb} first, at about {figure}.{unknown}"
    if asked < first.requests_per_second:
        used = percent_text(asked / first.requests_per_second, 2)
        said = f"Nothing binds at {s.rate.text}, {used} of the most: {name} {verb} first, at about"
        return f"{said} {figure}.{unknown}"
    return f"{subject} {verb} now: {s.rate.text} are asked for, of about {figure}.{unknown}"


def _why(s: Situation, first: BindingResource) -> str:
    if first.resource == "cpu":
        cpus = effective_cpus(s.facts).value or 0.0
        return f" on {number_text(cpus)} CPU{'' if cpus == 1 else 's'}"
    if first.resource != "disks" or s.prediction is None:
        return ""
    speed = " of assumed speed" if s.disk.provenance == "assumed" else ""
    memory = f"{percent_text(s.prediction.hit_ratio, 2)} of requests served from memory"
    if s.dataset_bytes.provenance == "assumed":
        memory += f", if there are {s.dataset_bytes.text} of data"
    return f": {plural(max(1, len(s.disk.parts)), 'disk')}{speed}, {memory}"


def _missing(s: Situation) -> list[str]:
    """What a resource's most stands on and nobody said."""
    parts = []
    if s.link_bytes_per_second.value is None:
        parts.append("the link's speed")
    if effective_cpus(s.facts).value is None:
        parts.append("the CPUs")
    if s.kind != "proxy" and not s.dataset_bytes.value:
        parts.append("the size of the data")
    if s.kind != "proxy" and s.page_cache.value is None:
        parts.append("the memory")
    return parts


def _beyond_disks(s: Situation) -> str:
    """The sentence for disks that cannot give what is asked for; empty elsewhere.

    Held against each other are bytes a second of answers, those out of memory among them. Disks
    that nobody measured may be three times as fast as their class.
    """
    i, p = s.blocking_inputs, s.prediction
    if i is None or p is None or s.concurrency.provenance == s.rate.provenance == "assumed":
        return ""
    ceiling = most_at_best(i, p)
    if ceiling.name != BOUND_BY_DISKS:
        return ""
    is_assumed = s.disk.provenance == "assumed"
    most = ceiling.bytes_per_second * (FACTOR if is_assumed else 1.0)
    link = i.link_bytes_per_second
    cannot = []
    if link is not None and link > most:
        cannot.append(f"fill its link of {bytes_text(link)}/s")
    if s.rate.value is not None:
        asked = s.rate.value * sent_bytes(s)
        if asked <= most:
            return ""
        cannot.append(f"give the {s.rate.text} that are asked for ({bytes_text(asked)}/s)")
    if not cannot:
        return ""
    given = f"{bytes_text(ceiling.bytes_per_second)}/s"
    disks = plural(max(1, len(s.disk.parts)), "disk")
    speed = " of typical speed" if is_assumed else ""
    memory = f"{percent_text(p.hit_ratio, 2)} of requests served from memory"
    said = f"{disks}{speed}, with {memory}, can give about {given}"
    return f"This host cannot {' nor '.join(cannot)}: {said}."


def _beyond(s: Situation, found: list[BindingResource]) -> str:
    """The same for link, CPUs and clients."""
    for one in found:
        most = (FACTOR if one.provenance == "assumed" else 1.0) * one.requests_per_second
        if one.resource in {"disks", "memory"} or (s.rate.value or 0.0) <= most:
            continue
        return (
            f"This host cannot give the {s.rate.text} that are asked for: "
            f"{number_text(most)} requests/s is the most that {_NAMES[one.resource][0]} can do."
        )
    return ""


def _beyond_connections(s: Situation) -> str:
    """The same for clients at once that the connections of all workers do not carry."""
    d = plan_descriptors(s)
    if s.concurrency.provenance == "assumed" or d.needed <= d.connections or not d.bound_by:
        return ""
    carried = d.connections // d.slots_per_client * s.workers
    return (
        f"This host cannot carry {number_text(s.concurrency.value)} clients at once: "
        f"{plural(s.workers, 'worker')} of {d.connections:,} connections carry about {carried:,} "
        f"({d.bound_by})."
    )
