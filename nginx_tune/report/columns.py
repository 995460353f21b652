"""Rows of text in columns: plain, so that a log, a mail or ``diff`` shows them as a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: int = 0) -> str:
    """The rows as lines, columns two spaces apart; those in ``right`` end under each other."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip() + "\n")
    return "".join(lines)
