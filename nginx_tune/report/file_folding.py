"""Files as a terminal shows them: comments and Markdown's sentences folded, all else as it is.

What is folded stays what it is: a comment is one on each of its lines, so that what is copied off
the terminal is still the configuration, the diff or the scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nginx_tune.report.folding import LEAST_CELL, fold

_COMMENT = re.compile(r"(?P<indent>\s*)#(?P<gap>\s*)(?P<text>\S.*)")
_BEHIND = re.compile(r"(?P<code>.*[;{}]\s+)# (?P<text>.*)")
_FENCE = "```"
_BULLET = "- "


def fold_file(text: str, form: str, width: int) -> str:
    """The text of a file for a terminal of that width; ``form`` is the name of its format."""
    folded = _FORMS.get(form)
    if folded is None or max(map(len, text.split("\n"))) <= width:
        return text
    lines: list[str] = []
    is_code = False
    for line in text.split("\n"):
        if form in _MARKDOWN and line.startswith(_FENCE):
            is_code = not is_code
        lines += [line] if is_code or len(line) <= width else folded(line, width)
    return "\n".join(lines)


def _commented(line: str, width: int) -> list[str]:
    """A line of a configuration: its comment folded, in its column where that has room."""
    whole = _COMMENT.fullmatch(line)
    if whole is not None:
        gap = whole["gap"]
        return _comment(whole["text"], whole["indent"] + "#" + gap, width, hang=2)
    behind = _BEHIND.fullmatch(line)
    if behind is None or behind["code"].count('"') % 2 or behind["code"].count("'") % 2:
        return [line]
    code, said = behind["code"], behind["text"]
    if width - len(code) >= LEAST_CELL:
        first, *rest = _comment(said, " " * len(code) + "# ", width, hang=0)
        return [code + first[len(code) :], *rest]
    indent = " " * (len(code) - len(code.lstrip()) + 2)
    return [code.rstrip(), *_comment(said, indent + "# ", width, hang=0)]


def _comment(text: str, start: str, width: int, *, hang: int) -> list[str]:
    # A command that goes on in a comment goes on there without the shell's backslash.
    folded = fold(text, width - len(start), hang=hang)
    return [start + line.removesuffix(" \\") for line in folded]


def _headed(line: str, width: int) -> list[str]:
    """A line of a diff: what stands before it is a comment, the diff itself is left as it is."""
    return _commented(line, width) if line.startswith("#") else [line]


def _sentence(line: str, width: int) -> list[str]:
    """A line of Markdown; a table's row has to be one line."""
    if line.startswith(("|", " ", "#")):
        return [line]
    return fold(line, width, hang=len(_BULLET) if line.startswith(_BULLET) else 0)


_MARKDOWN = ("md", "markdown")
_FORMS: dict[str, Callable[[str, int], list[str]]] = {
    "nginx": _commented,
    "sysctl": _commented,
    "unit": _commented,
    "toml": _commented,
    "diff": _headed,
    **dict.fromkeys(_MARKDOWN, _sentence),
}
