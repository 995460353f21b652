"""Decisions for people: one paragraph each, what changes first; the page of one, and its sweep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from inspect import getdoc
from typing import TYPE_CHECKING

from nginx_tune.documents.decisions import (
    Decision,
    Decisions,
    Evidence,
    HostSetting,
    Predicted,
    Setting,
)
from nginx_tune.report.quantities import predicted_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import (
    amount_text,
    evidence_value,
    markdown_code,
    markdown_text,
    one_line,
    plain,
)

if TYPE_CHECKING:
    from nginx_tune.decide.engine import SweepStep

_QUIET = ("not_applicable", "keep")
_LABEL_WIDTH = 10
_BODY_INDENT = 4


def render_decisions(decisions: Decisions, *, width: int | None = None) -> str:
    """The text; lines are folded to ``width`` where one is given.

    Shape: decisions that change or leave open something first, then those that change nothing,
           one line each.
    """
    open_ones, quiet = _split(decisions)
    first = [line.text for line in _headline(decisions)]
    blocks = [_fold(line, width, 0) for line in (*first, _kind(decisions))]
    blocks += [_paragraph(d, width) for d in open_ones]
    if quiet:
        lines = [_fold(f"{d.id}: {_words(d.verdict)}. {d.summary}", width, 0) for d in quiet]
        blocks.append("\n".join(["Nothing to change:", *lines]))
    if decisions.nginx_choice:
        blocks.append(_fold(decisions.nginx_choice, width, 0))
    return "\n\n".join(blocks) + "\n"


def decisions_screen(decisions: Decisions) -> Screen:
    """A count, each decision that changes something with its reasons, then the quiet ones."""
    open_ones, quiet = _split(decisions)
    changing = [f"{d.id} ({_words(d.verdict)})" for d in open_ones if d.settings or d.host_settings]
    answer = f"Of {len(decisions.decisions)} decisions {len(changing) or 'none'} "
    answer += f"{'changes' if len(changing) == 1 else 'change'} something"
    said = f"{answer}: {', '.join(changing)}." if changing else f"{answer}."
    rows = [(d.id, _words(d.verdict), one_line(d.summary)) for d in quiet]
    head = ("decision", "verdict", "why")
    choice = one_line(decisions.nginx_choice)
    return [
        [*_headline(decisions), Line(said, "answer")],
        [Line(one_line(_kind(decisions))), *([Line(choice)] if choice else [])],
        *map(_block, open_ones),
        [Line("nothing to change", "heading"), Table([head, *rows])] if rows else [],
    ]


def _headline(decisions: Decisions) -> list[Line]:
    lines = (decisions.headline, decisions.binding)
    return [Line(one_line(line), "answer") for line in lines if line]


def _split(decisions: Decisions) -> tuple[list[Decision], list[Decision]]:
    """Those that change or leave open something, and the others."""
    open_ones = [d for d in decisions.decisions if d.settings or d.verdict not in _QUIET]
    return open_ones, [d for d in decisions.decisions if d not in open_ones]


def _kind(decisions: Decisions) -> str:
    kind = decisions.kind_reason or decisions.kind_provenance
    if kind == "assumed":
        kind += "; --kind or -c says it"
    return f"Kind of site: {decisions.kind} ({kind})"


def _paragraph(d: Decision, width: int | None) -> str:
    lines = [
        _fold(f"{d.id}: {_words(d.verdict)} ({d.confidence} confidence)", width, 0),
        _fold(d.summary, width, _BODY_INDENT),
    ]
    for label, item in _labelled(d):
        lines.append(_fold(item, width, _BODY_INDENT, head=f"{label.ljust(_LABEL_WIDTH)}  "))
    return "\n".join(lines)


def _block(d: Decision) -> ScreenBlock:
    rows = [(label, one_line(item)) for label, item in _labelled(d)]
    heading = Line(f"{d.id}: {_words(d.verdict)} ({d.confidence} confidence)", "heading")
    return [heading, Line(one_line(d.summary)), *([Table(rows, has_head=False)] if rows else [])]


def _labelled(d: Decision) -> list[tuple[str, str]]:
    """The settings, reasons and risks of a decision, each kind named once."""
    parts = [
        ("write", [_setting(s) for s in d.settings]),
        ("proposed", [_setting(s) for s in d.proposed]),
        ("host", [_host_setting(one) for one in d.host_settings]),
        ("because", [_evidence(e) for e in d.evidence]),
        ("predicted", [_predicted(p) for p in d.predicted]),
        ("flips when", d.flips_when),
        ("risk", d.risks),
        ("next", [d.next_command] if d.next_command else []),
    ]
    return [
        ("" if number else label, item)
        for label, items in parts
        for number, item in enumerate(items)
    ]


def _fold(text: str, width: int | None, indent: int, *, head: str = "") -> str:
    margin = " " * indent
    clean = plain(" ".join(text.split()))
    if width is None:
        return margin + head + clean
    hanging = margin + " " * (len(head) or 2)
    return textwrap.fill(
        clean,
        width=max(40, width),
        initial_indent=margin + head,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


MOST_PLACES = 6
"""Places of one setting that are shown; JSON has all."""


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _host_setting(one: HostSetting) -> str:
    if one.kind == "udev":
        return f"read-ahead of {one.name} {one.before or 'not known'} → {one.value} KiB"
    return f"{one.name} {one.before or 'not known'} → {one.value}: {one.reason}"


def _setting(s: Setting) -> str:
    words = " ".join([s.directive, *(arg or '""' for arg in s.args)])
    inner = "".join(f" {' '.join(line)};" for line in s.lines)
    place = f"{s.context} {s.block}".strip()
    if s.places:
        more = f" and {len(s.places) - MOST_PLACES} more" if len(s.places) > MOST_PLACES else ""
        shown = (f"{one.file}:{one.line} {one.text}" for one in s.places[:MOST_PLACES])
        place = "; ".join(map(plain, shown)) + more
    needs = f", needs {' and '.join(s.needs)}" if s.needs else ""
    return f"{words} {{{inner} }} ({place}){needs}" if s.lines else f"{words}; ({place}){needs}"


def _evidence(e: Evidence) -> str:
    return f"{e.fact}: {evidence_value(e)} ({e.provenance})"


def _predicted(p: Predicted) -> str:
    low, middle, high = (predicted_text(p.metric, v, p.unit) for v in (p.low, p.expected, p.high))
    return f"{p.metric}: {middle} [{low} – {high}]"


_ON_THIS_HOST = (
    "On this host: nginx-tune recommend -f json shows the verdict on %s\n"
    "with its evidence; nginx-tune explain %s --facts FACTS.json where it flips, as a table."
)


def decision_pages() -> dict[str, str]:
    """The page of every decision under its id."""
    return dict(_pages())


def render_decision_markdown(name: str) -> str:
    """The page of a decision in Markdown."""
    head, _, body = decision_pages()[name].partition("\n")
    parts = [f"# {name}", markdown_text(head.partition(": ")[2])]
    parts += [markdown_text(part) for part in textwrap.dedent(body).strip().split("\n\n")]
    return "\n\n".join(parts) + "\n"


def decision_titles() -> dict[str, str]:
    """The subject of every decision, by its id."""
    return {
        name: page.partition("\n")[0].partition(": ")[2] for name, page in decision_pages().items()
    }


def _pages() -> Iterator[tuple[str, str]]:
    from nginx_tune.decide.engine import ALL  # noqa: PLC0415  # every decision

    for decide in ALL:
        head, _, rest = (getdoc(decide) or "").partition("\n")
        name, _, title = head.replace("``", "").partition(": ")
        parts = [
            f"{name} (a decision of recommend): {title}",
            *([textwrap.indent(rest.strip("\n").replace("``", ""), "  ")] if rest.strip() else []),
            _ON_THIS_HOST % (name, name),
        ]
        yield name, "\n\n".join(parts) + "\n"


def render_sweep(name: str, steps: Sequence[SweepStep]) -> str:
    """The table: a row a value, ``now`` and each flip marked."""
    if not steps:
        return f"On this host: no known fact flips {name}.\n"
    rows = [
        (plain(s.fact), amount_text(s.value, s.unit), s.verdict.replace("_", " "), _mark(s))
        for s in steps
    ]
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
        cells = [
            markdown_text(part)
            for part in (s.fact, amount_text(s.value, s.unit), s.verdict.replace("_", " "))
        ]
        lines.append(f"| {' | '.join(cells)} | {marks} |")
    return "\n".join(lines) + "\n"


def _mark(step: SweepStep) -> str:
    marks = [word for word, is_so in (("flips", step.flips), ("now", step.is_now)) if is_so]
    return "<- " + ", ".join(marks) if marks else ""
