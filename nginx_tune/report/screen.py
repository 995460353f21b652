"""A screen as data: blocks of lines and tables, which a writer lays out for where they go.

The plain writer is here: a log, a mail or ``diff`` shows its lines as a terminal does. A terminal
has its own (``terminal.writer``), which knows its width. A screen is built from text that may be
printed already (``one_line``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nginx_tune.report.text import align, markdown_table, markdown_text

Role = Literal["answer", "heading", "text", "warning", "note"]
"""The purpose of a line: the answer is the sentence to quote; notes may be folded away."""


@dataclass(frozen=True)
class Line:
    """One line, without its end."""

    text: str
    role: Role = "text"
    indent: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of as many cells each."""

    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    """The columns that end under each other."""
    indent: int = 0
    has_head: bool = True
    is_detail: bool = False
    """True if a console shows it with ``-v`` alone; a line before it says what it holds."""


ScreenPart: TypeAlias = Line | Table
ScreenBlock: TypeAlias = Sequence[ScreenPart]
"""Parts that stand together; an empty block is left out."""
Screen: TypeAlias = Sequence[ScreenBlock]


def plain_text(screen: Screen, *, details: bool = True) -> str:
    """The blocks with an empty line between them, tables in columns of spaces."""
    shown = screen if details else without_details(screen)
    return "\n".join("".join(map(_plain, block)) for block in shown if block)


def without_details(screen: Screen) -> Screen:
    """The screen without the tables that are for ``-v``."""
    return [
        [part for part in block if not (isinstance(part, Table) and part.is_detail)]
        for block in screen
    ]


def markdown(screen: Screen) -> str:
    """The same in Markdown: the answer in bold, a heading as one, tables as tables."""
    return "\n".join("\n".join(map(_markdown, block)) for block in screen if block)


def without_empty_columns(table: Table) -> Table:
    """The table without the columns that have a name at most."""
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
