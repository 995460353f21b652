"""A screen as data: blocks of lines and tables, laid out by the writer of each destination.

The plain writer is here, for logs, mail and ``diff``. The writer for terminals, which knows the
width, is ``terminal.writer``. The texts of a screen are safe to print (``one_line``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nginx_tune.documents.units import plural
from nginx_tune.report.text import align, markdown_table, markdown_text

Role = Literal["answer", "heading", "text", "warning", "note"]
"""The purpose of a line: the answer is the sentence to quote; notes may be folded away."""


@dataclass(frozen=True)
class Line:
    """A line of text, without a line end."""

    text: str
    role: Role = "text"
    indent: int = 0
    over_details: str = ""
    """The text instead, where the details that the line summarises follow; empty for the same."""


@dataclass(frozen=True)
class Table:
    """Rows with the same number of cells."""

    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    """The right-aligned columns."""
    indent: int = 0
    has_head: bool = True
    is_detail: bool = False
    """True if a console shows the table only with ``-v``; a line before it summarises it."""


ScreenPart: TypeAlias = Line | Table
ScreenBlock: TypeAlias = Sequence[ScreenPart]
"""Parts without an empty line between them; an empty block is left out."""
Screen: TypeAlias = Sequence[ScreenBlock]


def plain_text(screen: Screen, *, details: bool = True) -> str:
    """The blocks with an empty line between them, tables in columns of spaces."""
    shown = with_details(screen) if details else without_details(screen)
    return "\n".join("".join(map(_plain, block)) for block in shown if block)


_FEWEST_FOLDED = 3
"""Minimum number of notes that are folded away into one line."""


def without_details(screen: Screen) -> Screen:
    """The screen without the tables that only ``-v`` shows, and with its notes counted."""
    return [_without_notes(block) for block in screen]


def _without_notes(block: ScreenBlock) -> ScreenBlock:
    shown = [part for part in block if not (isinstance(part, Table) and part.is_detail)]
    notes = [part.text for part in shown if isinstance(part, Line) and part.role == "note"]
    if len(notes) < _FEWEST_FOLDED:
        return shown
    of_warnings = all(text.startswith("warning: ") for text in notes)
    counted = plural(len(notes), "more warning" if of_warnings else "more note")
    kept = [part for part in shown if not (isinstance(part, Line) and part.role == "note")]
    return [*kept, Line(f"{counted}: -v", "note", 2)]


def with_details(screen: Screen) -> Screen:
    """The screen with all of its tables, and without the lines that stand for them."""
    return [
        [
            replace(part, text=part.over_details)
            if isinstance(part, Line) and part.over_details
            else part
            for part in block
        ]
        for block in screen
    ]


def markdown(screen: Screen) -> str:
    """The screen in Markdown: the answer in bold, headings as headings, tables as tables."""
    return "\n".join("\n".join(map(_markdown, block)) for block in with_details(screen) if block)


def without_empty_columns(table: Table) -> Table:
    """The table without the columns that have no cell below their name."""
    if not table.has_head or len(table.rows) == 1:
        return table
    columns = list(zip(*table.rows, strict=True))
    kept = [n for n, (_, *cells) in enumerate(columns) if not n or {*cells} - {"", "–"}]
    rows = [[row[n] for n in kept] for row in table.rows]
    return replace(table, rows=rows, right=[kept.index(n) for n in table.right if n in kept])


def _plain(part: ScreenPart) -> str:
    if isinstance(part, Table):
        part = without_empty_columns(part)
        return align(part.rows, right=part.right, indent=part.indent)
    return f"{' ' * part.indent}{part.text}\n"


def _markdown(part: ScreenPart) -> str:
    if isinstance(part, Table):
        if not part.rows:
            return ""
        part = without_empty_columns(part)
        head = () if part.has_head else (("",) * len(part.rows[0]),)
        return markdown_table([*head, *part.rows], right=part.right)
    text = markdown_text(part.text)
    if part.role == "answer":
        return f"**{text}**\n"
    return f"### {text}\n" if part.role == "heading" else f"- {text}\n"
