"""Text that is safe to print: nothing from outside may steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nginx_tune.documents.units import bytes_text, number_text, percent_text, seconds_text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """``text`` with control characters (escapes, bidi overrides) made visible."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


_ASCII = str.maketrans("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉×÷–—→µ…“”·", '_.-=+*%#|||||##x/-->u~"".') | {
    ord("≥"): ">=",
    ord("≤"): "<=",
    ord("±"): "+-",
}


def ascii_text(text: str) -> str:
    """``text`` for a terminal that has nothing but ASCII: what our own words use beyond it."""
    return text.translate(_ASCII)


__all__ = [
    "ascii_text", "bytes_text", "number_text", "percent_text", "plain", "seconds_text",
]  # fmt: skip


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


def weaker_walls_text(walls: Iterable[str]) -> str:
    """One line for a result that was reached without them."""
    return f"walls given up where this host cannot have them: {', '.join(walls)}"
