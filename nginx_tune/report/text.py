"""Text that is safe to print: nothing from outside steers a terminal, a runner or an eye."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nginx_tune.documents.units import bytes_text, number_text, percent_text, seconds_text

_UNSEEN = re.compile(
    # Unicode's categories Cc (but the tab), Cf, Zl and Zp: what commands, turns text round, ends a
    # line, or has no width.
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Of other categories, shown as nothing too (Default_Ignorable_Code_Point).
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]"
)
_BEGINS = re.compile(
    r"((?:\A|[\n\r\x0b\x0c\x85\u2028\u2029])[^\S\n\r\x0b\x0c\x85\u2028\u2029]*):(?=:)"
)
_INSIDE = re.compile(r"##([a-z]*)\[")


def plain(text: str) -> str:
    """``text`` on one line, with each character that is not seen as itself escaped."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    if found[0].isascii():
        return f"\\x{ord(found[0]):02x}"
    return found[0].encode("ascii", "backslashreplace").decode()


def commandless(text: str) -> str:
    """``text`` in whose lines a CI service finds no command to its runner.

    GitHub takes ``::NAME`` where a line begins, spaces aside, and ``##[NAME]`` anywhere in it;
    Azure takes ``##vso[``. Source: actions/runner, ActionCommand.cs.
    """
    if "::" in text:
        text = _BEGINS.sub(r"\1\\x3a", text)
    return _INSIDE.sub(r"##\1\\x5b", text) if "##" in text else text


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
    "ascii_text", "bytes_text", "commandless", "number_text", "percent_text", "plain", "quoted",
    "seconds_text", "shown_path",
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
