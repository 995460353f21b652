"""Manual pages in man(7)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ManPage:
    """One page; texts are plain, an empty line parts paragraphs."""

    name: str
    """Of the page, such as ``nginx-tune-audit``."""
    version: str
    summary: str
    command: str
    """As it is typed, such as ``nginx-tune audit``."""
    usage: str
    description: str
    options: list[tuple[str, str]] = field(default_factory=list)
    commands: list[tuple[str, str]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    """Command lines."""
    exit_codes: list[tuple[str, str]] = field(default_factory=list)
    environment: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    see_also: list[str] = field(default_factory=list)


def render_man_page(page: ManPage) -> str:
    """The page as man(7) source.

    Source: groff_man_style(7); no date, so that the same program gives the same bytes.
    """
    lines = [
        f'.TH "{page.name.upper()}" 1 "" "nginx-tune {page.version}" "nginx-tune manual"',
        ".SH NAME",
        f"{_text(page.name)} \\- {_text(page.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_text(page.command)}\\fR {_text(page.usage)}",
        ".SH DESCRIPTION",
        *_paragraphs(page.description),
    ]
    for title, entries in (
        ("OPTIONS", page.options),
        ("COMMANDS", page.commands),
        ("EXIT STATUS", page.exit_codes),
        ("ENVIRONMENT", page.environment),
        ("FILES", page.files),
    ):
        if entries:
            lines.append(f".SH {title}")
        for term, text in entries:
            lines += [".TP", f"\\fB{_text(term)}\\fR", *_paragraphs(text)]
    if page.examples:
        lines += [".SH EXAMPLES", ".nf", *map(_text, page.examples), ".fi"]
    if page.see_also:
        names = [f"\\fB{_text(name)}\\fR(1)" for name in page.see_also]
        lines += [".SH SEE ALSO", ",\n".join(names)]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Lines of roff; a paragraph after click's mark against rewrapping keeps its lines."""
    lines: list[str] = []
    for paragraph in filter(None, (part.strip(" \n") for part in text.split("\n\n"))):
        lines += [".PP"] * bool(lines)
        if paragraph.startswith("\b\n"):
            lines += [".nf", *map(_text, paragraph.splitlines()[1:]), ".fi"]
        else:
            lines.append(_text(" ".join(paragraph.split())))
    return lines


_ESCAPES = str.maketrans(
    {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
)
_SYMBOLS = {
    "…": "...",
    "×": "\\(mu",
    "–": "\\(en",
    "µ": "\\(mc",
    "≥": "\\(>=",
    "≤": "\\(<=",
    "→": "\\(->",
    "·": "\\(md",
}


def _text(text: str) -> str:
    """Text as roff: nothing in it is a request or an escape, and minus signs can be copied."""
    escaped = text.translate(_ESCAPES)
    for symbol, roff in _SYMBOLS.items():
        escaped = escaped.replace(symbol, roff)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
