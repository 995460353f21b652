"""The result of ``size`` as text: the answer, the table of memory and disks, and its basis."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.sizing import (
    AnswerResource,
    DiskChoice,
    MemoryBoundary,
    SizedHost,
    SizeRange,
    Sizing,
)
from nginx_tune.documents.units import plural
from nginx_tune.report.facts import speed_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, ScreenPart, Table
from nginx_tune.report.text import (
    bytes_text,
    evidence_value,
    number_text,
    one_line,
)

_BINDS: dict[AnswerResource, str] = {
    "disks": "the disks bind",
    "link": "the link binds",
    "cpu": "the CPUs bind",
    "loops": "workers that wait in disk reads bind",
    "clients": "what clients take binds",
}
_SHORT: dict[AnswerResource, str] = {
    "disks": "disks", "link": "link", "cpu": "CPU", "loops": "loops", "clients": "clients",
}  # fmt: skip
_MARKS = {"carries": "yes", "in_doubt": "maybe", "cannot": "no", None: ""}
_KNOWN: Sequence[Provenance] = ("measured", "learnt", "declared", "assumed")
_THOUSAND = 1000


def sizing_screen(sizing: Sizing) -> Screen:
    """The answer, the table, the basis of each figure, and the next commands."""
    return [
        list(_answers(sizing)),
        [*_tables(sizing), *_legend(sizing)],
        _boundaries(sizing),
        list(_beside(sizing)),
        [Table(_rests_on(sizing), has_head=False)],
        list(_next(sizing)),
    ]


def _answers(sizing: Sizing) -> list[Line]:
    this = next((host for host in sizing.hosts if host.is_this), None)
    lines = [] if this is None else [Line(_this_host(sizing, this), "answer")]
    asked = sizing.asked_per_second
    if asked is None or (this is not None and this.verdict == "carries"):
        return lines
    if sizing.cheapest is None:
        said = f"No host of the table is sure to carry {_rate(asked)}."
    else:
        host = sizing.hosts[sizing.cheapest]
        said = f"{_cost_words(host)} that carries {_rate(asked)}: {_name(sizing, host)}"
        said += f", {_range_text(host.carried_per_second)}; {_BINDS[host.binds]}."
    return [*lines, Line(said, "answer")]


def _this_host(sizing: Sizing, host: SizedHost) -> str:
    within = f" within {one_line(sizing.objective)}" if sizing.objective else ""
    found = host.carried_per_second
    if found is None:
        said = f"What this host carries{within} is beyond the model's range: {_unsure(sizing)}"
    elif found.high <= 0:
        said = f"This host carries no rate{within}: one answer alone takes longer"
    else:
        said = f"This host carries {_range_text(found)}{_bandwidth(sizing, found)}{within}"
    asked = sizing.asked_per_second
    if asked is not None and host.verdict is not None:
        words = {
            "carries": f"it carries the {_rate(asked)} that are asked for",
            "in_doubt": f"whether it carries the {_rate(asked)} that are asked for is in doubt",
            "cannot": f"it cannot carry the {_rate(asked)} that are asked for",
        }
        said += f"; {words[host.verdict]}"
    return f"{said}; {_BINDS[host.binds]}."


def _bandwidth(sizing: Sizing, carried: SizeRange) -> str:
    """The expected rate in bits per second, from the mean response size; empty if unknown."""
    means = (item.value for item in sizing.evidence if item.fact == "workload.sizes.mean_bytes")
    mean = next((value for value in means if isinstance(value, (int, float))), None)
    if mean is None:
        return ""
    bits = carried.expected * mean * 8
    return f" ({speed_text(round(float(f'{bits:.2g}')))} of answers of {bytes_text(mean)})"


def _unsure(sizing: Sizing) -> str:
    assumed = [item.fact for item in sizing.evidence if item.provenance == "assumed"]
    if not assumed:
        return "its answers are near the objective at any rate"
    return f"{_listed(assumed)} {'is' if len(assumed) == 1 else 'are'} assumed"


def _cost_words(host: SizedHost) -> str:
    return "The cheapest host" if host.cost is not None else "The least host"


def _name(sizing: Sizing, host: SizedHost) -> str:
    cost = "" if host.cost is None else f" for {number_text(host.cost)}"
    return f"{bytes_text(host.memory_bytes)} and {_disks(sizing.columns[host.disks])}{cost}"


def _tables(sizing: Sizing) -> list[ScreenPart]:
    """A table of memory (rows) by disks (columns), and a note on disks without a prediction."""
    width = len(sizing.columns)
    rows = [sizing.hosts[start : start + width] for start in range(0, len(sizing.hosts), width)]
    known = [n for n in range(width) if any(row[n].carried_per_second for row in rows)]
    parts: list[ScreenPart] = []
    if known:
        table = [["memory", *(_disks(sizing.columns[n]) for n in known)]]
        for row in rows:
            mark = " (this host)" if any(host.is_this for host in row) else ""
            name = f"{bytes_text(row[0].memory_bytes)}{mark}"
            table.append([name, *(_cell(row[n]) for n in known)])
        parts.append(Table(table))
    unknown = [_disks(choice) for n, choice in enumerate(sizing.columns) if n not in known]
    if unknown:
        memory = "any memory" if len(rows) == 1 else "any of these memories"
        said = f"No prediction, with {memory}, for {_listed(unknown)}: {_NO_PREDICTION}."
        parts.append(Line(said, "note"))
    return parts


_NO_PREDICTION = "the range is wider than a factor of ten"


def _cell(host: SizedHost) -> str:
    found = host.carried_per_second
    if found is None:
        return "no prediction"
    mark, binds = _MARKS[host.verdict], _SHORT[host.binds]
    parts = [f"{mark} {'0/s' if found.high <= 0 else _range_text(found)}".strip(), binds]
    if host.origin_per_second is not None:
        parts.append(f"origin {_rate(host.origin_per_second)}")
    if host.cost is not None:
        parts.append(f"for {number_text(host.cost)}")
    return ", ".join(parts)


def _boundaries(sizing: Sizing) -> ScreenBlock:
    """The least memory of each choice of disks for the requested rate."""
    if not any(boundary.memory_bytes for boundary in sizing.boundaries):
        return []
    asked = _rate(sizing.asked_per_second or 0.0)
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


def _legend(sizing: Sizing) -> list[ScreenPart]:
    said = "Requests for files a second [range], and what binds."
    if sizing.asked_per_second is not None:
        asked = _rate(sizing.asked_per_second)
        said += f" yes: all of the range carries {asked}; maybe: some of it; no: none."
    return [Line(said, "note")]


def _beside(sizing: Sizing) -> list[Line]:
    lines = []
    with_pools, without = sizing.with_pools_per_second, sizing.without_pools_per_second
    if with_pools and abs(with_pools - without) > 0.05 * max(with_pools, without):
        lines.append(
            Line(f"This host with thread pools: {_rate(with_pools)}; without: {_rate(without)}.")
        )
    if sizing.asked_per_second is not None and sizing.least_cpus is not None:
        link = sizing.least_link_bits_per_second
        needs = plural(sizing.least_cpus, "CPU")
        if link is not None:
            needs += f" and a link of {speed_text(link)}"
        lines.append(Line(f"{_rate(sizing.asked_per_second)} keep busy: {needs}, at the least."))
    return lines


def _rests_on(sizing: Sizing) -> list[tuple[str, str]]:
    """The objective, then a row for each provenance with the facts that have it."""
    rows = [
        (provenance, ", ".join(f"{item.fact} {evidence_value(item)}" for item in found))
        for provenance in _KNOWN
        for found in [[item for item in sizing.evidence if item.provenance == provenance]]
        if found
    ]
    objective = sizing.objective or "none: all that the resources keep up with"
    return [("objective", one_line(objective)), *((name, one_line(text)) for name, text in rows)]


def _next(sizing: Sizing) -> ScreenBlock:
    rows = []
    if sizing.next_command:
        rows.append(Line(f"Next: {one_line(sizing.next_command)}", "answer"))
    if sizing.prove_command:
        rows.append(Line(f"Prove it: {one_line(sizing.prove_command)}"))
    if sizing.no_proof:
        rows.append(Line(f"No lab can show it: {one_line(sizing.no_proof)}."))
    return rows


def _disks(choice: DiskChoice) -> str:
    return f"{choice.count} × {one_line(choice.class_name)}"


def _range_text(found: SizeRange | None) -> str:
    """``3,500/s [1,000 – 4,500]``, rounded."""
    if found is None:
        return "beyond range"
    if found.high <= found.low:
        return _rate(found.expected)
    return f"{_rate(found.expected)} [{_digits(found.low)} – {_digits(found.high)}]"


def _rate(per_second: float) -> str:
    return f"{_digits(per_second)}/s"


def _digits(value: float) -> str:
    """A number rounded to two significant digits; a small one is left as it is."""
    if value <= 0:
        return "0"
    return number_text(float(f"{value:.2g}") if value >= _THOUSAND / 10 else value)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
