"""The rows of the sources for people: the fact, its figure, and what shows it here."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from nginx_tune.documents.source_rows import SourceRow, SourceRows
from nginx_tune.report.markup import markdown_table
from nginx_tune.report.screen import Line, Screen, Table
from nginx_tune.report.text import align

_HEAD = ("row", "fact", "source", "shown", "by")
_SHARES = (("fact", 3), ("figure", 2), ("by", 4))
"""Of the width that the two narrow columns leave."""
_NARROW = len("row  ") + len("shown  ") + 2 * len("  ")
_WIDTH = 120
"""Where there is no screen to fill."""


def source_rows_screen(rows: SourceRows) -> Screen:
    """How many are shown, then the table, for a terminal of any width."""
    cells = [(row.row, row.fact, row.figure, row.shown, _by(row)) for row in rows.rows]
    return [[Line(_summary(rows).rstrip(), "answer")], [Table([_HEAD, *cells])]]


def render_source_rows(rows: SourceRows) -> str:
    """The table, its cells folded to where a pipe's lines are read with ease."""
    room = _WIDTH - _NARROW
    whole = sum(share for _, share in _SHARES)
    widths = [room * share // whole for _, share in _SHARES]
    lines: list[Sequence[str]] = [_HEAD]
    for row in rows.rows:
        fact, figure, by = (
            textwrap.wrap(text, cells, break_on_hyphens=False, break_long_words=False) or [""]
            for text, cells in zip((row.fact, row.figure, _by(row)), widths, strict=True)
        )
        for number in range(max(len(fact), len(figure), len(by))):
            first = (row.row, row.shown) if not number else ("", "")
            cells = [part[number] if number < len(part) else "" for part in (fact, figure, by)]
            lines.append((first[0], cells[0], cells[1], first[1], cells[2]))
    return align(lines) + "\n" + _summary(rows)


def render_source_rows_markdown(rows: SourceRows) -> str:
    """The same as a table in Markdown, with every claim."""
    lines = [(row.row, row.fact, row.figure, row.shown, _by(row, claims=True)) for row in rows.rows]
    return markdown_table([_HEAD, *lines]) + "\n" + _summary(rows)


def _by(row: SourceRow, *, claims: bool = False) -> str:
    """Scenarios with their claims, or how many; set-ups, commands, and what is missing."""
    parts = []
    for name in row.scenarios:
        of_it = [claim.name for claim in row.claims if claim.scenario == name]
        said = f"“{'”, “'.join(of_it)}”" if claims else _count(len(of_it))
        parts.append(f"{name}: {said}" if claims else f"{name} ({said})")
    if row.set_up:
        parts.append(f"set-up of {', '.join(row.set_up)}")
    parts += row.commands
    text = "; ".join(parts)
    return f"{text}. {row.missing}" if row.missing and text else text or row.missing


def _count(number: int) -> str:
    return f"{number} claim" + ("" if number == 1 else "s")


def _summary(rows: SourceRows) -> str:
    shown = Counter(row.shown for row in rows.rows)
    return (
        f"{len(rows.rows)} rows: {shown['yes']} shown, {shown['part']} in part, {shown['no']} not\n"
    )
