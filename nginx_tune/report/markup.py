"""Text from outside inside of markup: what it says is shown, and it commands nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nginx_tune.report.text import plain

_XML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;", "\n": "&#10;"}
_NOT_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
_COMMAND = re.compile(r"##([a-z]*)\[")
"""To a CI service's runner, wherever it stands (``report.text.commandless``)."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#!|~&$])")
_URI_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def one_line(text: str) -> str:
    """Text as one harmless line."""
    return plain(" ".join(text.split()))


def xml_text(text: str) -> str:
    """Text for an element or an attribute in double quotes of XML 1.0, on one line."""
    shown = "\n".join(map(plain, text.split("\n")))
    shown = _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", shown)
    marked = "".join(_XML.get(char, char) for char in shown)
    return _COMMAND.sub(r"##\1&#91;", marked)


def markdown_text(text: str) -> str:
    """One line of text for Markdown: no markup, no HTML, nobody mentioned."""
    return _MARKDOWN.sub(r"\\\1", one_line(text)).replace("@", "@\u2060")


def markdown_code(text: str) -> str:
    """One line of text as a code span, whatever backticks are in it."""
    shown = one_line(text)
    runs = [len(run) for run in re.findall("`+", shown)]
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def markdown_block(text: str, language: str = "") -> str:
    """Lines as a block of code, whatever fences are in them."""
    shown = "\n".join(map(plain, text.rstrip("\n").split("\n")))
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"


def markdown_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table, its first row the head; the columns in ``right`` end under each other."""
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
