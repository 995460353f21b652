"""A sweep of a decision as a small table."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.decide.sweep import SweepStep
from nginx_tune.report.markup import markdown_code, markdown_text
from nginx_tune.report.text import bytes_text, number_text, plain, seconds_text


def render_sweep(name: str, steps: Sequence[SweepStep]) -> str:
    """The table: a row a value, ``now`` and each flip marked."""
    if not steps:
        return f"On this host: no known fact flips {name}.\n"
    rows = [(plain(s.fact), _value(s), s.verdict.replace("_", " "), _mark(s)) for s in steps]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"On this host, with one fact at other values, {name} is"]
    before = ""
    for fact, value, verdict, mark in rows:
        head = "" if fact == before else fact
        before = fact
        line = f"  {head:<{widths[0]}}  {value:>{widths[1]}}  {verdict:<{widths[2]}}  {mark}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def render_sweep_markdown(name: str, steps: Sequence[SweepStep]) -> str:
    """The same table in Markdown."""
    if not steps:
        return f"On this host no known fact flips {markdown_code(name)}.\n"
    head = f"On this host, with one fact at other values, {markdown_code(name)} is"
    lines = [head, "", "| fact | value | verdict | |", "|---|--:|---|---|"]
    for s in steps:
        marks = ", ".join(
            word for word, is_so in (("**flips**", s.flips), ("now", s.is_now)) if is_so
        )
        cells = [markdown_text(part) for part in (s.fact, _value(s), s.verdict.replace("_", " "))]
        lines.append(f"| {' | '.join(cells)} | {marks} |")
    return "\n".join(lines) + "\n"


def _mark(step: SweepStep) -> str:
    marks = [word for word, is_so in (("flips", step.flips), ("now", step.is_now)) if is_so]
    return "<- " + ", ".join(marks) if marks else ""


def _value(step: SweepStep) -> str:
    if step.unit in ("bytes", "bytes/s"):
        return bytes_text(step.value) + step.unit.removeprefix("bytes")
    if step.unit == "s":
        return seconds_text(step.value)
    return f"{number_text(step.value)} {step.unit}".strip()
