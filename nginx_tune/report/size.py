"""The result of ``size`` as text: the answer, the table of memory and disks, and its basis."""

from collections.abc import Mapping, Sequence

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.sizing import (
    AnswerResource,
    DiskChoice,
    MemoryBoundary,
    SizedHost,
    SizeRange,
    Sizing,
)
from nginx_tune.documents.units import listed, plural, speed_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import bytes_text, evidence_value, number_text, one_line, seconds_text

_BINDS: dict[AnswerResource, str] = {
    "disks": "the disks are the limit",
    "link": "the link is the limit",
    "cpu": "the CPUs are the limit",
    "loops": "workers that wait in disk reads are the limit",
    "clients": "the speed of the clients is the limit",
}
_SHORT: dict[AnswerResource, str] = {
    "disks": "disks", "link": "link", "cpu": "CPU", "loops": "loops", "clients": "clients",
}  # fmt: skip
_ELSEWHERE: Mapping[AnswerResource, str] = {
    "link": "a faster link does", "cpu": "more CPUs do", "clients": "faster clients do",
}  # fmt: skip
"""The end of a sentence, by resource, if all hosts of the table share that limit."""
_MARKS = {"carries": "yes", "in_doubt": "maybe", "cannot": "no", None: ""}
_SAID: Mapping[str, str] = {
    "workload.dataset.bytes": "the size of the data",
    "workload.popularity.exponent": "the popularity of the files",
    "workload.sizes.mean_bytes": "the size of the files",
    "memory.page_cache_limit_bytes": "the page cache",
    "time of a disk read": "the speed of the disks",
    "CPU of a request": "the CPU time of a request",
    "worker processes": "the number of CPUs",
}
"""The names of facts in the headline."""
_KNOWN: Sequence[Provenance] = ("measured", "learnt", "declared", "assumed")


def sizing_screen(sizing: Sizing) -> Screen:
    """The answer, the table, the basis of each figure, and the next commands."""
    return [
        list(_answers(sizing)),
        _table(sizing),
        _boundaries(sizing),
        list(_beside(sizing)),
        [Table(_rests_on(sizing), has_head=False)],
        list(_next(sizing)),
    ]


def _answers(sizing: Sizing) -> list[Line]:
    this = next((host for host in sizing.hosts if host.is_this), None)
    lines = [] if this is None else [Line(_this_host(sizing, this), "answer")]
    asked = sizing.asked_per_second
    if this is not None and this.verdict == "carries":
        return lines
    if asked is None:
        said = ""
        if this is not None and _is_limited_outside(sizing):
            said = f"Other memory or disks carry no more; {_ELSEWHERE[this.binds]}."
    elif sizing.cheapest is None:
        said = _no_host(sizing, f"{number_text(asked)}/s")
    else:
        host = sizing.hosts[sizing.cheapest]
        said = f"{_cost_words(host)} that carries {number_text(asked)}/s: {_name(sizing, host)}"
        said += f", {_range_text(host.carried_per_second)}; {_BINDS[host.binds]}."
    return [*lines, Line(said, "answer")] if said else lines


def _is_limited_outside(sizing: Sizing) -> bool:
    """True if memory and disks do not change the rate, and no possible host has a price."""
    if any(host.cost is not None and host.verdict != "cannot" for host in sizing.hosts):
        return False
    rates = {_digits(host.carried_per_second.expected) for host in sizing.hosts}
    return len(rates) == 1 and all(host.binds in _ELSEWHERE for host in sizing.hosts)


def _no_host(sizing: Sizing, asked: str) -> str:
    """The reason why no host of the table is sure to carry the rate, and what would help."""
    if any(host.verdict != "cannot" for host in sizing.hosts):
        return f"No row of the table is sure to carry {asked}."
    has = {item.fact: item.value for item in sizing.evidence}
    link, cpus = has.get("network.links speed"), has.get("worker processes")
    lacks = []
    needed = sizing.least_link_bits_per_second
    if needed is not None and isinstance(link, (int, float)) and needed > 8 * link:
        lacks.append(f"a link of {speed_text(needed)}")
    if (
        sizing.least_cpus is not None
        and isinstance(cpus, (int, float))
        and sizing.least_cpus > cpus
    ):
        lacks.append(plural(sizing.least_cpus, "CPU"))
    if not lacks:
        return f"No row of the table carries {asked}."
    return f"{asked} need at least {listed(lacks)}; other memory or disks are not enough."


def _this_host(sizing: Sizing, host: SizedHost) -> str:
    within = f" within {one_line(sizing.objective)}" if sizing.objective else ""
    found = host.carried_per_second
    if found.expected <= 0:
        said = f"This host carries no rate{within}: {_alone(sizing)}"
        if found.high > 0:
            said += f"; at best it carries {_rate(found.high)}"
    elif host.is_prediction:
        said = f"This host carries {_range_text(found)}{_bandwidth(sizing, found)}{within}"
    else:
        said = f"This host carries perhaps {_rate(found.expected)}{within}, but any value from "
        said += f"{_rate(found.low)} to {_rate(found.high)} is possible: {_unsure(sizing)}"
    free = sizing.without_objective_per_second
    if free is not None and _range_text(free) != _range_text(found):
        said += f"; without the objective it keeps up with {_range_text(free)}"
    asked = sizing.asked_per_second
    if asked is not None and host.verdict is not None:
        words = {
            "carries": "it carries the",
            "in_doubt": "it may or may not carry the",
            "cannot": "it cannot carry the",
        }
        said += f"; {words[host.verdict]} requested {number_text(asked)}/s"
        said += _time(sizing, host)
    assumes_cpu = host.binds == "cpu" and any(map(_is_assumed_cpu, sizing.evidence))
    return f"{said}; {_BINDS[host.binds]}{' (1 CPU is assumed)' if assumes_cpu else ''}."


def _is_assumed_cpu(item: Evidence) -> bool:
    """True for one worker, because the number of CPUs is not known."""
    return (item.fact, item.provenance) == ("worker processes", "assumed")


def _time(sizing: Sizing, host: SizedHost) -> str:
    """``, with a p99 of about 3 ms [2 ms – 9 ms]``: the objective's time at the wanted rate."""
    found = host.seconds
    if found is None:
        return ""
    return f", with a {_statistic(sizing)} of about {_seconds_range(found)}"


def _alone(sizing: Sizing) -> str:
    """The objective's time without load."""
    if sizing.alone_seconds is None:
        return "a single answer takes longer"
    return f"without load its {_statistic(sizing)} is {_seconds_range(sizing.alone_seconds)}"


def _statistic(sizing: Sizing) -> str:
    return one_line(sizing.objective).partition("<")[0].strip() or "p99"


def _seconds_range(found: SizeRange) -> str:
    ends = f"[{seconds_text(found.low)} – {seconds_text(found.high)}]"
    return f"{seconds_text(found.expected)} {ends}"


def _bandwidth(sizing: Sizing, carried: SizeRange) -> str:
    """The expected rate in bits per second, from the mean response size; empty if unknown."""
    means = {item.fact: item.value for item in sizing.evidence}
    mean = means.get("mean bytes of an answer", means.get("workload.sizes.mean_bytes"))
    if not isinstance(mean, (int, float)):
        return ""
    bits = carried.expected * mean * 8
    return f" ({speed_text(round(float(f'{bits:.2g}')))} of answers of {bytes_text(mean)})"


def _unsure(sizing: Sizing) -> str:
    assumed = [
        _SAID.get(item.fact, item.fact) for item in sizing.evidence if item.provenance == "assumed"
    ]
    if not assumed:
        return "its answers take nearly the objective's time at any rate"
    return f"{listed(assumed)} {'is' if len(assumed) == 1 else 'are'} only assumed"


def _cost_words(host: SizedHost) -> str:
    said = "cheapest" if host.cost is not None else "smallest"
    return f"The {said} host of the table"


def _name(sizing: Sizing, host: SizedHost) -> str:
    cost = "" if host.cost is None else f", price {number_text(host.cost)}"
    return f"{bytes_text(host.memory_bytes)} and {_disks(sizing.columns[host.disks])}{cost}"


def _table(sizing: Sizing) -> ScreenBlock:
    """The table of memory (rows) by disks (columns) with its legend; empty without any rate."""
    if all(host.carried_per_second.high <= 0 for host in sizing.hosts):
        return []
    width = len(sizing.columns)
    table = [["memory", *map(_disks, sizing.columns)]]
    is_alike = _is_limited_outside(sizing)
    for start in range(0, len(sizing.hosts), width):
        row = sizing.hosts[start : start + width]
        is_this = any(host.is_this for host in row)
        if is_alike and not is_this:
            continue
        mark = " (this host)" if is_this else ""
        table.append([f"{bytes_text(row[0].memory_bytes)}{mark}", *map(_cell, row)])
    return [Table(table), Line(_legend(sizing), "note")]


def _cell(host: SizedHost) -> str:
    found = host.carried_per_second
    doubt = "" if host.is_prediction else "?"
    rate = "0/s" if found.high <= 0 else _range_text(found, doubt).replace(" – ", "–")
    parts = [f"{_MARKS[host.verdict]} {rate}".strip(), _SHORT[host.binds]]
    if host.origin_per_second is not None:
        parts.append(f"origin {_rate(host.origin_per_second)}")
    if host.cost is not None:
        parts.append(f"price {number_text(host.cost)}")
    return ", ".join(parts)


def _boundaries(sizing: Sizing) -> ScreenBlock:
    """Minimum memory of each choice of disks for the requested rate."""
    if not any(boundary.memory_bytes for boundary in sizing.boundaries):
        return []
    asked = f"{number_text(sizing.asked_per_second)}/s"
    rows = [
        (_disks(choice), _boundary(boundary))
        for choice, boundary in zip(sizing.columns, sizing.boundaries, strict=True)
    ]
    return [Table([("disks", f"memory for {asked}"), *rows])]


def _boundary(one: MemoryBoundary) -> str:
    found = one.memory_bytes
    if found is None:
        return one_line(one.reason)
    low, high = bytes_text(found.low), bytes_text(found.high)
    return f"{bytes_text(found.expected)} [{low} – {high}]"


def _legend(sizing: Sizing) -> str:
    said = "Requests for files a second [range], and what limits them."
    if sizing.asked_per_second is not None:
        asked = f"{number_text(sizing.asked_per_second)}/s"
        said += f" yes: the whole range reaches {asked}; maybe: part of it; no: none of it."
    if not all(host.is_prediction for host in sizing.hosts):
        said += " ?: the range is wider than a factor of ten; the figure is a guess."
    return said


def _beside(sizing: Sizing) -> list[Line]:
    lines = []
    with_pools, without = sizing.with_pools_per_second, sizing.without_pools_per_second
    if with_pools and abs(with_pools - without) > 0.05 * max(with_pools, without):
        lines.append(
            Line(f"This host with thread pools: {_rate(with_pools)}; without: {_rate(without)}.")
        )
    link, asked = sizing.least_link_bits_per_second, sizing.asked_per_second
    is_known = any(item.fact == "network.links speed" for item in sizing.evidence)
    if link is not None and not is_known:
        lines.append(Line(f"{number_text(asked)}/s need a link of at least {speed_text(link)}."))
    return lines


def _rests_on(sizing: Sizing) -> list[tuple[str, str]]:
    """The objective, then a row for each provenance with the facts that have it."""
    rows = [
        (
            provenance,
            ", ".join(
                "1 CPU (--cpus)" if _is_assumed_cpu(item) else f"{item.fact} {evidence_value(item)}"
                for item in found
            ),
        )
        for provenance in _KNOWN
        for found in [[item for item in sizing.evidence if item.provenance == provenance]]
        if found
    ]
    objective = sizing.objective or "none: the highest rate that the resources keep up with"
    return [("objective", one_line(objective)), *((name, one_line(text)) for name, text in rows)]


def _next(sizing: Sizing) -> ScreenBlock:
    rows = []
    if sizing.next_command:
        rows.append(Line(f"Next: {one_line(sizing.next_command)}", "answer"))
    if sizing.prove_command:
        rows.append(Line(f"Prove it: {one_line(sizing.prove_command)}"))
    if sizing.no_proof:
        rows.append(Line(f"No lab can test this: {one_line(sizing.no_proof)}."))
    return rows


def _disks(choice: DiskChoice) -> str:
    return f"{choice.count} × {one_line(choice.class_name)}"


def _range_text(found: SizeRange, doubt: str = "") -> str:
    """``3,500/s [1,000 – 4,500]``, rounded; ``3,500/s? [10 – 4,500]`` with a doubt."""
    if _digits(found.high) == _digits(found.low):
        return _rate(found.expected)
    return f"{_rate(found.expected)}{doubt} [{_digits(found.low)} – {_digits(found.high)}]"


def _rate(per_second: float) -> str:
    return f"{_digits(per_second)}/s"


def _digits(value: float) -> str:
    """A number rounded to two significant digits."""
    return number_text(float(f"{value:.2g}"))
