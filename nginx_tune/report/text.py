"""Text that is safe to print, on a terminal and in markup.

Untrusted text is shown, but it cannot control a terminal or a CI runner, or mislead a reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nginx_tune.documents.units import (
    bytes_text,
    number_text,
    percent_text,
    seconds_text,
    speed_text,
)

if TYPE_CHECKING:
    from nginx_tune.documents.decisions import Evidence

_UNSEEN = re.compile(
    # Unicode's categories Cc (but the tab), Cf, Zl and Zp: characters that control, reverse text,
    # end a line, or have no width.
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Invisible characters of other categories (Default_Ignorable_Code_Point).
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]"
)
_BEGINS = re.compile(
    r"((?:\A|[\n\r\x0b\x0c\x85\u2028\u2029])[^\S\n\r\x0b\x0c\x85\u2028\u2029]*):(?=:)"
)
_INSIDE = re.compile(r"##([a-z]*)\[")
"""A command to the runner of a CI service, anywhere in a line."""


def plain(text: str) -> str:
    """``text`` on one line, with control and invisible characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_escaped, text)


def one_line(text: str) -> str:
    """Text on one line: white space becomes single spaces, control characters are escaped."""
    return plain(" ".join(text.split()))


def _escaped(found: re.Match[str]) -> str:
    if found[0].isascii():
        return f"\\x{ord(found[0]):02x}"
    return found[0].encode("ascii", "backslashreplace").decode()


def commandless(text: str) -> str:
    """``text`` without commands to the runner of a CI service.

    GitHub executes ``::NAME`` at the start of a line, after spaces, and ``##[NAME]`` anywhere;
    Azure executes ``##vso[``. Source: actions/runner, ActionCommand.cs.
    """
    if "::" in text:
        text = _BEGINS.sub(r"\1\\x3a", text)
    return _INSIDE.sub(r"##\1\\x5b", text) if "##" in text else text


_PATH = re.compile(r"/[\w@%+=:,.~{}/-]*")
_QUOTES = str.maketrans("“”", '""')
_MOST_QUOTED = 400
"""Longest quotation, in characters."""


def quoted(text: str) -> str:
    """Untrusted text from a file, as a quotation on one line.

    Quotes in it are replaced, so that it cannot end early; URLs in it do not become links.
    """
    quote = plain(" ".join(text.translate(_QUOTES).split()))
    if len(quote) > _MOST_QUOTED:
        quote = f"{quote[:_MOST_QUOTED]}…"
    unlinked = quote.replace("://", ":\u2060//").replace("www.", "www\u2060.")
    return f"“{unlinked}”"


def shown_path(path: str) -> str:
    """The path, unchanged if it is an ordinary absolute path, else as a quotation."""
    return path if _PATH.fullmatch(path) else quoted(path)


_ASCII = str.maketrans("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉×÷–—→µ…“”·", '_.-=+*%#|||||##x/-->u~"".') | {
    ord("≥"): ">=",
    ord("≤"): "<=",
    ord("±"): "+-",
}


def ascii_text(text: str) -> str:
    """``text`` for an ASCII terminal, with this program's non-ASCII characters replaced."""
    return text.translate(_ASCII)


def align(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: int = 0) -> str:
    """The rows as lines, columns two spaces apart; columns in ``right`` are right-aligned."""
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


def weaker_sandbox_text(sandbox: Iterable[str]) -> str:
    """One line on the parts of the sandbox that were missing for a result."""
    return f"parts of the sandbox that this host lacks: {', '.join(sandbox)}"


def evidence_text(evidence: Evidence) -> str:
    """``fact = value``, in units that are easy to read."""
    return f"{evidence.fact} = {evidence_value(evidence)}"


def evidence_value(evidence: Evidence) -> str:
    """The value alone; "not known" for None."""
    value = evidence.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str):
        return value or "not known"
    if evidence.fact == "network.links speed":
        return speed_text(8 * value)
    return amount_text(float(value), evidence.unit)


def amount_text(value: float, unit: str) -> str:
    """A number with its unit, as documents name units."""
    if unit in ("bytes", "bytes/s"):
        return bytes_text(value) + unit.removeprefix("bytes")
    if unit == "s":
        return seconds_text(value)
    return f"{number_text(value)} {unit}".strip()


_XML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;", "\n": "&#10;"}
_NOT_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#!|~&$])")
_URI_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def xml_text(text: str) -> str:
    """Text for an element or an attribute in double quotes of XML 1.0, on one line."""
    shown = "\n".join(map(plain, text.split("\n")))
    shown = _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", shown)
    marked = "".join(_XML.get(char, char) for char in shown)
    return _INSIDE.sub(r"##\1&#91;", marked)


def markdown_text(text: str) -> str:
    """One line of text for Markdown, without markup, HTML or mentions."""
    return _MARKDOWN.sub(r"\\\1", one_line(text)).replace("@", "@\u2060")


def markdown_code(text: str) -> str:
    """One line of text as a code span; it may have backticks."""
    shown = one_line(text)
    runs = [len(run) for run in re.findall("`+", shown)]
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def markdown_block(text: str, language: str = "") -> str:
    """Lines as a block of code; they may have fences."""
    shown = "\n".join(map(plain, text.rstrip("\n").split("\n")))
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"


def markdown_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table; its first row is the head, columns in ``right`` are right-aligned."""
    head, *body = [[markdown_text(cell) for cell in row] for row in rows]
    rule = ["--:" if number in right else "---" for number in range(len(head))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *body))


def uri(path: str) -> str:
    """A path as a URI reference: relative stays relative, absolute becomes ``file:``."""
    encoded = "".join(
        chr(byte) if byte in _URI_SAFE else f"%{byte:02X}"
        for byte in path.encode("utf-8", "surrogateescape")
    )
    if encoded.startswith("/"):
        return f"file://{encoded}"
    return encoded.removeprefix("./")


__all__ = [
    "ascii_text", "bytes_text", "commandless", "number_text", "percent_text", "plain", "quoted",
    "seconds_text", "shown_path",
]  # fmt: skip
