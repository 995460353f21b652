"""``capacity`` for people: each rate that was tried, and what the answer rests on."""

from __future__ import annotations

from nginx_tune.documents.capacity import Capacity, CapacityStep
from nginx_tune.report.quantities import one_line
from nginx_tune.report.screen import Block, Line, Screen, Table
from nginx_tune.report.text import number_text, seconds_text

_LIMITS = {
    "objective": "objective",
    "failures": "failures",
    "connections": "connections of the probe",
    "probe": "the probe itself",
    "samples": "too few samples",
    "bound": "the highest rate allowed",
    "steps": "the number of runs",
    "interrupted": "an interruption",
}


def capacity_screen(capacity: Capacity) -> Screen:
    """The answer, then a line for each run of the search."""
    header = ("rate", "met", "measured", "in the way")
    rows = [
        (
            _rate(step.rate_per_second),
            "yes" if step.met else "no",
            ", ".join(_value(name, value) for name, value in step.measured.items()),
            "" if step.limited_by is None else _LIMITS[step.limited_by],
        )
        for step in capacity.steps
    ]
    objective = " and ".join(one_line(text) for text in capacity.objectives)
    return [_answer(capacity, objective), [Table([header, *rows], right=[0])] if rows else []]


def step_text(step: CapacityStep) -> str:
    """One run of the search in words, for who watches."""
    verdict = "holds" if step.met else f"does not hold ({_LIMITS[step.limited_by or 'objective']})"
    return f"{_rate(step.rate_per_second)}: {verdict}"


def _answer(capacity: Capacity, objective: str) -> Block:
    if capacity.capacity_per_second is not None:
        head = f"capacity: {_rate(capacity.capacity_per_second)} with {objective}"
    elif capacity.at_least_per_second is not None:
        held = _rate(capacity.at_least_per_second)
        head = f"capacity: at least {held} with {objective}"
        head += "" if capacity.limited_by == "bound" else "; where it ends was not found"
    elif capacity.limited_by == "interrupted" and capacity.missed_per_second is None:
        head = f"no capacity found: nothing is known of {objective} yet"
    else:
        head = f"no capacity found: {objective} did not hold"
    block = [Line(head, "answer")]
    if capacity.limited_by:
        why = f" ({one_line(capacity.reason)})" if capacity.reason else ""
        block.append(Line(f"limited by: {_LIMITS[capacity.limited_by]}{why}"))
    elif capacity.reason:
        block.append(Line(one_line(capacity.reason)))
    return block


def _rate(value: float) -> str:
    return f"{number_text(value)}/s"


def _value(name: str, value: float | None) -> str:
    if value is None:
        return f"{one_line(name)} –"
    timed = name.rpartition(".")[2] in ("p50", "p90", "p99", "p999", "mean", "max", "stdev")
    return f"{one_line(name)} {seconds_text(value) if timed else number_text(value)}"
