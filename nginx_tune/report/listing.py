"""Plain tables and counts for the screens of people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nginx_tune.report.text import plain


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows indented by two, columns as wide as their widest cell; empty columns are left out."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True) if w)
        for row in cells
    ]


def plural(count: int, noun: str) -> str:
    """``1 disk``, ``2 disks``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
