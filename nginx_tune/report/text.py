"""Text that is safe to print: nothing from outside may steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nginx_tune.documents.units import bytes_text, number_text, percent_text, seconds_text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """``text`` with control characters (escapes, bidi overrides) made visible."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


_PATH = re.compile(r"/[\w@%+=:,.~{}/-]*")
_QUOTES = str.maketrans("“”", '""')
_MOST_QUOTED = 400
"""Characters of what somebody else says; more of it is nobody's reason."""


def quoted(text: str) -> str:
    """Words of a file that anybody could have written, as a quotation on one line.

    They are told from our own by the quotes, which nothing in them ends, and no page makes a link
    of them.
    """
    said = plain(" ".join(text.translate(_QUOTES).split()))
    if len(said) > _MOST_QUOTED:
        said = f"{said[:_MOST_QUOTED]}…"
    unlinked = said.replace("://", ":\u2060//").replace("www.", "www\u2060.")
    return f"“{unlinked}”"


def shown_path(path: str) -> str:
    """An absolute path as it is, where it can be nothing else than a path; else as a quotation."""
    return path if _PATH.fullmatch(path) else quoted(path)


_ASCII = str.maketrans("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉×÷–—→µ…“”·", '_.-=+*%#|||||##x/-->u~"".') | {
    ord("≥"): ">=",
    ord("≤"): "<=",
    ord("±"): "+-",
}


def ascii_text(text: str) -> str:
    """``text`` for a terminal that has nothing but ASCII: what our own words use beyond it."""
    return text.translate(_ASCII)


__all__ = [
    "ascii_text", "bytes_text", "number_text", "percent_text", "plain", "quoted", "seconds_text",
    "shown_path",
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
