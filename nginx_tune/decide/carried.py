"""The request rate that a host carries, the times of its answers, and what limits it, in words.

Each figure is computed three times: with the expected inputs, and with all assumed inputs at their
worse and at their better ends. The model's own errors widen the range. The headline names the
limiting resource, and demand that the host cannot meet with any settings.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from nginx_tune.decide.answer import effective_cpus
from nginx_tune.decide.bindings import FACTOR, find_bindings, most_at_best, sent_bytes
from nginx_tune.decide.descriptors import plan_descriptors
from nginx_tune.decide.model.answers import AnswerGoal, Server, best_server
from nginx_tune.decide.model.blocking import BOUND_BY_DISKS
from nginx_tune.decide.model.inputs import BlockingInputs, room_range
from nginx_tune.decide.objectives import time_goal
from nginx_tune.decide.pool_judgement import corners
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import BindingResource, Resource
from nginx_tune.documents.sizing import SizeRange
from nginx_tune.documents.units import (
    bytes_text,
    listed,
    number_text,
    percent_text,
    plural,
    seconds_text,
    speed_text,
)

WIDEST = 10.0
"""Largest ratio of a range's ends with which it counts as a prediction."""
_TIME_FACTOR = 1.4
"""Error of a predicted response time, as a factor (as ``pool_forecast`` has for reads)."""
_DISK_FACTOR = 1.2
"""Assumed error in the reads per second of a measured or declared disk, as a factor."""
_CPU_FACTOR = 1.5
"""Assumed error of an unmeasured CPU time per request, as a factor."""


P99 = AnswerGoal("p99", math.inf)
"""The statistic of answers where there is no objective."""


class RangeEnd(enum.Enum):
    """An end of the range of assumed inputs and model errors."""

    EXPECTED = enum.auto()
    WORSE = enum.auto()
    BETTER = enum.auto()


Servers = Mapping[RangeEnd, Server]
"""A host's model at each end of its range of inputs."""


def sent_ratio(s: Situation, object_bytes: float) -> float:
    """Ratio of the bytes sent to the sizes of the requested objects."""
    sizes = s.workload.sizes
    if sizes.sent_mean_bytes is not None:
        return min(1.0, sizes.sent_mean_bytes / object_bytes) or 1.0
    return sizes.sent_ratio or 1.0


def servers(s: Situation, i: BlockingInputs) -> Servers:
    """The host of a situation with these model inputs, at each end of its range."""
    return {end: server_at(s, i, end) for end in RangeEnd}


def server_at(s: Situation, i: BlockingInputs, end: RangeEnd) -> Server:
    """The host of a situation with these model inputs, at one end of its range."""
    if end is RangeEnd.EXPECTED:
        return _server(s, i)
    easier, harder = corners(_with_inputs(s, i), i) or (i, i)
    moved = room_range(easier)[1] if end is RangeEnd.BETTER else room_range(harder)[0]
    factor = 1.0 if end is RangeEnd.WORSE else -1.0
    if s.disk.provenance != "assumed":
        moved = replace(moved, disk=moved.disk.scaled(_DISK_FACTOR**factor))
    usual = _server(s, moved)
    if usual.cpu_seconds is not None:
        return usual
    return replace(usual, cpu_seconds=usual.request_cpu_seconds * _CPU_FACTOR**factor)


def _server(s: Situation, i: BlockingInputs) -> Server:
    measured = s.workload.cpu_per_request.mean_seconds
    return Server(i, pools=True, cpu_seconds=measured, sent_ratio=sent_ratio(s, i.object_bytes))


def _with_inputs(s: Situation, i: BlockingInputs) -> Situation:
    """The situation with these model inputs."""
    moved = replace(s)
    moved.__dict__.update(s.__dict__)
    moved.__dict__["blocking_inputs"] = i
    return moved


def goal_at(goal: AnswerGoal | None, end: RangeEnd) -> AnswerGoal | None:
    """The goal, with a limit made stricter or looser by the model's error."""
    if goal is None or end is RangeEnd.EXPECTED:
        return goal
    factor = _TIME_FACTOR if end is RangeEnd.BETTER else 1 / _TIME_FACTOR
    return goal._replace(seconds=goal.seconds * factor)


class Carried(NamedTuple):
    """The highest rate, in requests a second, at which a host keeps up and meets a goal."""

    server: Server
    """The host, with thread pools or without, whichever carries more."""
    worst: tuple[Server, float]
    """The host at the worse end of its range, and its rate."""
    per_second: float
    range: SizeRange


def carried(host: Servers, goal: AnswerGoal | None) -> Carried:
    """The highest rate of a host."""
    found = {end: best_server(server, goal_at(goal, end)) for end, server in host.items()}
    server, expected = found[RangeEnd.EXPECTED]
    low = min(expected, found[RangeEnd.WORSE][1])
    high = max(expected, found[RangeEnd.BETTER][1])
    return Carried(server, found[RangeEnd.WORSE], expected, _rounded(low, expected, high))


def seconds_at(host: Servers, goal: AnswerGoal, rate: float) -> SizeRange | None:
    """The goal's statistic at a rate; None where the host may not keep up with it."""
    found = {}
    for end, server in host.items():
        times = [
            answers.seconds(goal.statistic, hits=goal.hits)
            for pools in (True, False)
            if (answers := replace(server, pools=pools).answers_at(rate)) is not None
        ]
        if not times or not math.isfinite(min(times)):
            return None
        found[end] = min(times)
    expected = found[RangeEnd.EXPECTED]
    return _rounded(
        min(found[RangeEnd.BETTER] / _TIME_FACTOR, expected),
        expected,
        max(found[RangeEnd.WORSE] * _TIME_FACTOR, expected),
    )


def _rounded(low: float, expected: float, high: float) -> SizeRange:
    low, expected, high = (float(f"{value:.4g}") for value in (low, expected, high))
    return SizeRange(low=low, expected=expected, high=high)


def is_prediction(found: SizeRange) -> bool:
    """True unless the range is too wide (``WIDEST``); a rate of 0 is a prediction."""
    return found.high <= WIDEST * found.low


class Headline(NamedTuple):
    """The first lines of every report on a host."""

    cannot: str
    """A sentence that begins with "This host cannot"; empty if the host meets the demand."""
    binding: str
    """A sentence with the limiting resource, its figure, and the unknowns."""
    bindings: list[BindingResource]
    """Every resource with a known ceiling, the lowest first."""


def headline(s: Situation) -> Headline:
    """The headline for a situation."""
    found = find_bindings(s)
    cannot = [_beyond_disks(s) or _beyond(s, found), _beyond_connections(s)]
    return Headline(" ".join(filter(None, cannot)), _sentence(s, found), found)


_NAMES: dict[Resource, tuple[str, str]] = {
    "link": ("the network link", "is"),
    "disks": ("the disks", "are"),
    "cpu": ("the CPUs", "are"),
    "memory": ("copying from memory", "is"),
    "clients": ("the clients", "are"),
    "origin": ("the origin", "is"),
}
"""The name of each resource in a sentence, and the verb that agrees with it."""


def _sentence(s: Situation, found: list[BindingResource]) -> str:
    """The limiting resource, compared with the demand, and the unknowns."""
    missing = _missing(s)
    unknown = f" Not known: {', '.join(missing)}." if missing else ""
    if s.kind == "proxy":
        unknown += " The origin may be a lower limit; its capacity is not known."
    if not found:
        return f"The limiting resource is not known.{unknown}"
    first = found[0]
    name, verb = _NAMES[first.resource]
    subject = name[0].upper() + name[1:]
    carries = _Carries(s, first.requests_per_second)
    limit = f"{subject} {verb} the first limit, {carries.figure}"
    sent = "" if carries.is_wide else f"{bytes_text(first.bytes_per_second)}/s"
    about = f"{sent}{_conditions(s, first)}".strip()
    limit += f" ({about})" if about else ""
    rest = f"{carries.answers}{carries.basis}{unknown}"
    demand = s.rate.value
    if demand is None:
        return f"{limit}.{rest}"
    if carries.is_wide and carries.low <= demand <= carries.high:
        return f"{limit}; the load of {s.rate.text} is within that range.{rest}"
    if demand < first.requests_per_second:
        used = percent_text(demand / first.requests_per_second, 2)
        how = "below that range" if carries.is_wide else f"{used} of it"
        return f"{limit}; the load of {s.rate.text} is {how}.{rest}"
    return f"{limit}, below the load of {s.rate.text}.{rest}"


class _Carries:
    """The range of the first limit, the times of answers, and the assumptions behind both."""

    def __init__(self, s: Situation, per_second: float) -> None:
        self._situation = s
        i = s.blocking_inputs
        self._host = None if i is None or s.kind == "proxy" else servers(s, i)
        self._expected = self.low = self.high = per_second
        if self._host is not None:
            found = carried(self._host, None).range
            self.low, self.high = min(found.low, per_second), max(found.high, per_second)

    @property
    def is_wide(self) -> bool:
        """True if the range is too wide for a prediction."""
        return self.high > WIDEST * self.low

    @property
    def figure(self) -> str:
        """The rate with its range; if the range is too wide, only its two ends."""
        low, high = _short(self.low), _short(self.high)
        if self.is_wide:
            return f"somewhere between {low} and {high} requests/s"
        ends = "" if low == high else f" [{low} – {high}]"
        return f"at about {_short(self._expected)} requests/s{ends}"

    @property
    def answers(self) -> str:
        """The rate within the objective, or the p99 at the load, each with its range."""
        s = self._situation
        if self._host is None:
            return ""
        wanted = time_goal(s.workload.objectives)
        if wanted is not None:
            within = " ".join(wanted.objective.expression.split())
            found = carried(self._host, wanted.goal).range
            if found.high <= 0:
                return f" Within {within} it carries no rate: one answer alone takes longer."
            ends = f"[{_short(found.low)} – {_short(found.high)}]"
            return f" Within {within} it carries about {_short(found.expected)} requests/s {ends}."
        times = None if s.rate.value is None else seconds_at(self._host, P99, s.rate.value)
        if times is None or not is_prediction(times):
            return ""
        ends = f"[{seconds_text(times.low)} – {seconds_text(times.high)}]"
        return f" At that load the p99 of answers is about {seconds_text(times.expected)} {ends}."

    @property
    def basis(self) -> str:
        """A sentence on the assumed inputs; empty without any."""
        s = self._situation
        cpu = s.workload.cpu_per_request
        inputs = (
            ("the speed of the disks", s.disk.provenance),
            ("the popularity of the files", s.exponent.provenance),
            ("the size of the files", s.object_bytes.provenance),
            ("the CPU time of a request", cpu.provenance if cpu.mean_seconds else "assumed"),
        )
        assumed = [name for name, provenance in inputs if provenance == "assumed"]
        if self._host is None:
            return ""
        if not assumed:
            return ""
        text = f"{listed(assumed)} {'is' if len(assumed) == 1 else 'are'} only assumed"
        return f" {text[:1].upper()}{text[1:]}."


def _short(per_second: float) -> str:
    return number_text(float(f"{per_second:.2g}"))


def _conditions(s: Situation, first: BindingResource) -> str:
    if first.resource == "cpu":
        cpus = effective_cpus(s.facts).value or 0.0
        return f" on {number_text(cpus)} CPU{'' if cpus == 1 else 's'}"
    if first.resource != "disks" or s.prediction is None:
        return ""
    memory = f"{percent_text(s.prediction.hit_ratio, 2)} of requests served from memory"
    if s.dataset_bytes.provenance == "assumed":
        memory += f", if there are {s.dataset_bytes.text} of data"
    return f" from {plural(max(1, len(s.disk.parts)), 'disk')}, {memory}"


def _missing(s: Situation) -> list[str]:
    """Unknown inputs of the ceilings."""
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
    """A sentence on disks that are too slow for the demand; empty if they are fast enough.

    Bytes per second of responses are compared, including responses from memory. Unmeasured disks
    may be three times as fast as the typical disk of their class.
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
        cannot.append(f"fill its link of {speed_text(8 * link)}")
    if s.rate.value is not None:
        demand = s.rate.value * sent_bytes(s)
        if demand <= most:
            return ""
        cannot.append(f"serve the load of {s.rate.text} ({bytes_text(demand)}/s)")
    if not cannot:
        return ""
    disks = plural(max(1, len(s.disk.parts)), "disk")
    speed = " of typical speed" if is_assumed else ""
    memory = f"{percent_text(p.hit_ratio, 2)} of requests served from memory"
    limit = f"{bytes_text(ceiling.bytes_per_second)}/s"
    return (
        f"This host cannot {' or '.join(cannot)}: {disks}{speed}, with {memory}, can give at most "
        f"about {limit}."
    )


def _beyond(s: Situation, found: list[BindingResource]) -> str:
    """A sentence on link, CPUs or clients that are too slow for the demand; otherwise empty."""
    for binding in found:
        most = (FACTOR if binding.provenance == "assumed" else 1.0) * binding.requests_per_second
        if binding.resource in {"disks", "memory"} or (s.rate.value or 0.0) <= most:
            continue
        name, verb = _NAMES[binding.resource]
        return (
            f"This host cannot serve the load of {s.rate.text}: {name} alone "
            f"{'allows' if verb == 'is' else 'allow'} no more than {number_text(most)} requests/s."
        )
    return ""


def _beyond_connections(s: Situation) -> str:
    """A sentence on too few connections for the concurrent clients; empty if they suffice."""
    d = plan_descriptors(s)
    if s.concurrency.provenance == "assumed" or d.needed <= d.connections or not d.bound_by:
        return ""
    carried = d.connections // d.slots_per_client * s.workers
    return (
        f"This host cannot serve {number_text(s.concurrency.value)} concurrent clients: "
        f"{plural(s.workers, 'worker')} with {d.connections:,} connections each serve about "
        f"{carried:,} ({d.bound_by})."
    )
