"""The writer of screens for a terminal, by its width, with rich.

Lines are folded at spaces, with a hanging indent; commands, and numbers with their units, stay
whole. The cells of a table that is too wide are folded; if even that does not fit, or takes more
lines, each row is printed as several lines. The last cells of a table without a head are often
sentences, so these are folded first, or put below their rows.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from nginx_tune.documents.base import encode
from nginx_tune.report.folding import LEAST_CELL, fold, fold_text, hold_units
from nginx_tune.report.screen import (
    Line,
    Screen,
    Table,
    markdown,
    plain_text,
    with_details,
    without_details,
    without_empty_columns,
)
from nginx_tune.report.terminal.output import console_width, write_result
from nginx_tune.report.text import ascii_text

if TYPE_CHECKING:
    from rich.console import Console

_JOINT = re.compile(r"\.(?=[a-z_0-9]+(?: \(primary\))?$)")
"""The point at which the name of a metric may be broken: before its last part."""
_MARK = ".\1 "
_NOTHING = "–"
"""The text of an empty cell; a stacked row leaves such a cell out."""
_GAP = 2
_SHORT_CELL = 24
"""Longest cell, in characters, that shares a line of a stacked row with others."""
_TALLEST = 4
"""Maximum number of lines of a cell that is still readable beside its neighbours."""
_FEW = 4
"""Maximum number of columns that may all be folded, in a table without a head. With more
columns, the cells of a row cannot be told apart."""
_STYLES = {"answer": "bold", "heading": "bold", "warning": "yellow", "note": "dim", "text": ""}
_WORDS = {
    "better": "green", "pass": "green", "held": "green", "inside": "green", "worse": "red",
    "FAIL": "bold red", "REFUSED": "bold red", "DOWN": "bold red", "NOT AS WRITTEN": "bold red",
    "CANNOT TELL": "yellow", "NOT SETTLED": "yellow", "NOT HELD": "bold red", "OUTSIDE": "yellow",
    "inconclusive": "yellow",
}  # fmt: skip


SCREEN_FORMATS = ("console", "json", "md")
"""The formats of a result that has a screen."""


def write_screen(
    screen: Callable[[], Screen],
    document: Any,
    formats: tuple[str, ...],
    output: str | None,
    *,
    below: str = "",
    mode: int = 0o644,
    **others: Callable[[], bytes],
) -> None:
    """Write a document as a screen, as JSON or as Markdown, or in one of the ``others``.

    ``below``: text after the screen on a console.
    """

    def console() -> bytes:
        return screen_bytes(screen(), formats, output) + text_bytes(
            below, formats, output, is_page=False
        )

    renderers = {
        "console": console,
        "json": lambda: encode(document),
        "md": lambda: markdown(screen()).encode(errors="backslashreplace"),
        **others,
    }
    write_result(renderers, formats, output, mode=mode)


def screen_bytes(screen: Screen, formats: Sequence[str], output: str | None) -> bytes:
    """The screen, laid out for a terminal or as plain lines."""
    ctx = click.get_current_context()
    verbose = bool((ctx.obj or {}).get("verbose"))
    width = None if _goes_to_file(formats) else console_width(output)
    if width is None:
        return plain_text(screen, details=verbose).encode(errors="backslashreplace")
    from rich.console import Console  # noqa: PLC0415  # 60 ms, for a terminal only

    terminal = Console(width=width, no_color=None if ctx.color is None else not ctx.color)
    text = lay_out(screen, terminal, verbose=verbose)
    return text.encode(terminal.encoding, "backslashreplace")


def text_bytes(
    text: str, formats: Sequence[str], output: str | None, *, is_page: bool = True
) -> bytes:
    """Text, with lines folded to the width of a terminal, or unchanged for other destinations.

    ``is_page``: paragraphs are rewrapped (``report.folding.fold_text``).
    """
    width = None if _goes_to_file(formats) else console_width(output)
    if width is None:
        return text.encode(errors="backslashreplace")
    folded = fold_text(text, width, is_page=is_page)
    encoding = sys.stdout.encoding or "utf-8"
    if not encoding.lower().startswith("utf"):
        folded = ascii_text(folded)
    return folded.encode(encoding, "backslashreplace")


def _goes_to_file(formats: Sequence[str]) -> bool:
    return any(form.startswith("console=") for form in formats)


def lay_out(screen: Screen, terminal: Console, *, verbose: bool) -> str:
    """The screen as text in the terminal's own colours, no line wider than the terminal."""
    from rich.console import Console  # noqa: PLC0415

    ascii_only = terminal.options.ascii_only
    out = Console(
        file=io.StringIO(),
        width=terminal.width,
        force_terminal=terminal.is_terminal,
        color_system="standard" if terminal.color_system and not terminal.no_color else None,
        no_color=terminal.no_color,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with out.capture() as capture:
        shown = with_details(screen) if verbose else without_details(screen)
        for number, block in enumerate(filter(None, shown)):
            if number:
                out.print()
            for part in block:
                if isinstance(part, Table):
                    _print_table(out, part)
                else:
                    _print_line(out, part)
    text = capture.get()
    return ascii_text(text) if ascii_only else text


def _print_line(out: Console, line: Line) -> None:
    for text in fold(line.text, out.width - line.indent):
        _put(out, " " * line.indent + text, _STYLES[line.role])


def _put(out: Console, text: str, style: str) -> None:
    from rich.text import Text  # noqa: PLC0415

    out.print(Text(text, style=style), soft_wrap=True)


def _print_table(out: Console, table: Table) -> None:
    if not table.rows:
        return
    table = without_empty_columns(table)
    columns = list(zip(*table.rows, strict=True))
    gaps = table.indent + _GAP * (len(columns) - 1)
    natural = [max(map(len, column)) for column in columns]
    least = [max(map(_longest_word, column)) for column in columns]
    if sum(natural) + gaps <= out.width:
        _print_grid(out, table, natural)
    elif not table.has_head and sum(natural[:-1]) + gaps - _GAP <= out.width:
        _print_sentences(out, table, natural, out.width - gaps - sum(natural[:-1]))
    elif not table.has_head and len(columns) > _FEW:
        _print_stacked(out, table)
    elif sum(least) + gaps <= out.width:
        _print_folded(out, table, _shared(columns, least, out.width - gaps))
    elif any(_JOINT.search(cell) for cell in columns[0]):
        split = [(_JOINT.sub(_MARK, row[0]), *row[1:]) for row in table.rows]
        first = max(_longest_word(row[0]) for row in split)
        if first + sum(least[1:]) + gaps <= out.width:
            names = [[row[0] for row in split], *columns[1:]]
            widths = _shared(names, [first, *least[1:]], out.width - gaps)
            _print_folded(out, replace(table, rows=split), widths)
        else:
            _print_stacked(out, table)
    else:
        _print_stacked(out, table)


def _longest_word(cell: str) -> int:
    return max(map(len, hold_units(cell).split()), default=0)


def _print_sentences(out: Console, table: Table, natural: Sequence[int], room: int) -> None:
    """Fold the last cells beside the others, or below their rows if there is little space."""
    has_room = room >= max(LEAST_CELL, *(_longest_word(row[-1]) for row in table.rows))
    # A command too long for its column may fit on a line below it.
    if has_room and not any(
        line.endswith(" \\") for row in table.rows for line in _wrapped(row[-1], room)
    ):
        _print_grid(out, table, [*natural[:-1], room])
        return
    below = table.indent + _GAP * 2
    for row in table.rows:
        _print_grid(out, replace(table, rows=[row[:-1]]), natural[:-1])
        if row[-1]:
            _print_line(out, Line(row[-1], indent=below))


def _print_folded(out: Console, table: Table, widths: Sequence[int]) -> None:
    """Print a grid of folded cells, or stacked rows if cells would be tall.

    A table with a head is stacked if a row would have more than ``_TALLEST`` lines, and if stacking
    takes fewer lines in all.
    """
    rows = [
        max(len(_wrapped(cell, width)) for cell, width in zip(row, widths, strict=True))
        for row in table.rows
    ]
    stacked = sum(1 + sum(map(bool, row[1:])) for row in table.rows[1:])
    if table.has_head and max(rows) > _TALLEST and sum(rows) > stacked:
        whole = [(row[0].replace(_MARK, "."), *row[1:]) for row in table.rows]
        _print_stacked(out, replace(table, rows=whole))
    else:
        _print_grid(out, table, widths)


def _shared(columns: Sequence[Sequence[str]], least: Sequence[int], room: int) -> list[int]:
    """Widths that fill the space.

    Each column begins at the width of its longest word; then the most folded column is widened by
    one character at a time.
    """
    widths = list(least)
    natural = [max(map(len, column)) for column in columns]
    lines = [_most_lines(column, width) for column, width in zip(columns, widths, strict=True)]
    for _ in range(room - sum(least)):
        column = max(range(len(widths)), key=lambda n: (lines[n], natural[n] - widths[n]))
        widths[column] += 1
        lines[column] = _most_lines(columns[column], widths[column])
    return widths


def _most_lines(column: Sequence[str], width: int) -> int:
    return max(len(_wrapped(cell, width)) for cell in column)


def _wrapped(cell: str, width: int) -> list[str]:
    lines = fold(cell, max(width, 1), hang=0)
    return [line.replace(_MARK, ".").replace(_MARK.rstrip(), ".") for line in lines]


def _print_grid(out: Console, table: Table, widths: Sequence[int]) -> None:
    from rich.segment import Segment, Segments  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Grid.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for number, width in enumerate(widths):
        grid.add_column(width=width, justify="right" if number in table.right else "left")
    for number, row in enumerate(table.rows):
        is_head = table.has_head and not number
        grid.add_row(
            *(
                Text("\n".join(_wrapped(cell, width)), "bold" if is_head else _style_of(cell))
                for cell, width in zip(row, widths, strict=True)
            )
        )
    for line in out.render_lines(grid, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        out.print(Segments([Segment(" " * table.indent), *line, Segment.line()]), end="")


def _print_stacked(out: Console, table: Table) -> None:
    """Print each row as its first cell, with the other cells and their column names below it."""
    if not table.has_head:  # a cell without a name has no meaning on a separate line
        for row in table.rows:
            _print_line(out, Line("  ".join(filter(None, row)), indent=table.indent))
        return
    head, *rows = table.rows
    are_short = max((len(cell) for row in rows for cell in row[1:]), default=0) <= _SHORT_CELL
    for row in rows:
        _print_line(out, Line(row[0], "heading", table.indent))
        cells = [cell if cell != _NOTHING else "" for cell in row]
        if are_short:
            pairs = zip(head[1:], cells[1:], strict=True)
            named = [f"{name} {cell}".strip() for name, cell in pairs if cell]
            for text in fold(" · ".join(named), out.width - table.indent - 2, hang=0):
                _put(out, " " * (table.indent + 2) + text, _style_of(row[-1]))
            continue
        for number, cell in enumerate(cells[1:], start=1):
            if cell:
                name = f"{head[number]}: " if head[number] else ""
                for text in fold(name + cell, out.width - table.indent - 2):
                    _put(out, " " * (table.indent + 2) + text, _style_of(cell))


def _style_of(cell: str) -> str:
    return _WORDS.get(cell.partition(";")[0].partition(" [")[0].partition(" (")[0], "")
