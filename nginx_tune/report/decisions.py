"""Decisions for people: one paragraph each, what changes first."""

from __future__ import annotations

import textwrap

from nginx_tune.documents.decisions import (
    Decision,
    Decisions,
    Evidence,
    HostSetting,
    Predicted,
    Setting,
)
from nginx_tune.report.evidence import value_text
from nginx_tune.report.quantities import one_line, predicted_text
from nginx_tune.report.screen import Block, Line, Screen, Table
from nginx_tune.report.text import plain

_QUIET = ("not_applicable", "keep")
_LABEL_WIDTH = 10
_BODY_INDENT = 4


def render_decisions(decisions: Decisions, *, width: int | None = None) -> str:
    """The text; lines are folded to ``width`` where one is given.

    Shape: decisions that change or leave open something first, then those that change nothing,
           one line each.
    """
    open_ones, quiet = _split(decisions)
    blocks = [_fold(_kind(decisions), width, 0)]
    blocks += [_paragraph(d, width) for d in open_ones]
    if quiet:
        lines = [_fold(f"{d.id}: {_words(d.verdict)}. {d.summary}", width, 0) for d in quiet]
        blocks.append("\n".join(["Nothing to change:", *lines]))
    if decisions.nginx_choice:
        blocks.append(_fold(decisions.nginx_choice, width, 0))
    return "\n\n".join(blocks) + "\n"


def decisions_screen(decisions: Decisions) -> Screen:
    """How many change something, each with all it stands on, then those that change nothing."""
    open_ones, quiet = _split(decisions)
    changing = [f"{d.id} ({_words(d.verdict)})" for d in open_ones if d.settings or d.host_settings]
    answer = f"Of {len(decisions.decisions)} decisions {len(changing) or 'none'} "
    answer += f"{'changes' if len(changing) == 1 else 'change'} something"
    said = f"{answer}: {', '.join(changing)}." if changing else f"{answer}."
    rows = [(d.id, _words(d.verdict), one_line(d.summary)) for d in quiet]
    head = ("decision", "verdict", "why")
    choice = one_line(decisions.nginx_choice)
    return [
        [Line(said, "answer")],
        [Line(one_line(_kind(decisions))), *([Line(choice)] if choice else [])],
        *map(_block, open_ones),
        [Line("nothing to change", "heading"), Table([head, *rows])] if rows else [],
    ]


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


def _block(d: Decision) -> Block:
    rows = [(label, one_line(item)) for label, item in _labelled(d)]
    heading = Line(f"{d.id}: {_words(d.verdict)} ({d.confidence} confidence)", "heading")
    return [heading, Line(one_line(d.summary)), *([Table(rows, has_head=False)] if rows else [])]


def _labelled(d: Decision) -> list[tuple[str, str]]:
    """What it stands on, each kind named once."""
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
    return f"{e.fact}: {value_text(e)} ({e.provenance})"


def _predicted(p: Predicted) -> str:
    low, middle, high = (predicted_text(p.metric, v, p.unit) for v in (p.low, p.expected, p.high))
    return f"{p.metric}: {middle} [{low} – {high}]"
