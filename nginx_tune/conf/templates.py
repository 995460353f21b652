"""What a template has still to fill in, in a configuration that is read before that is done.

Marks of Jinja, ERB, Mustache, Go, Ansible, envsubst, autoconf, and names in capitals for sed. What
stands there is not known: no value is judged, and where a whole line is one, any line may stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPLIT = ("<%", "%>", "{%", "%}", "{{", "}}")
"""Marks with spaces between them, which cut one value into several words."""
_MARK = re.compile(
    r"<%|%>|\{%|%\}|\{\{|\}\}|\[\[|\]\]|@@|%%|#\{|@[A-Za-z][\w.-]*@|%[A-Za-z]\w*%|__[A-Za-z]\w*?__"
    r"|<[A-Za-z][\w -]*>|\$\{?[A-Z][A-Z0-9_]*\b(?!\w)"
)
_IN_CAPITALS = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_LINE = re.compile(
    r"(?:<%|\{%|\{\{|\[\[|#\{|@@|%%).*|@[A-Za-z][\w.-]*@|%[A-Za-z]\w*%|__[A-Za-z]\w*__"
    r"|\$\{?[A-Z][A-Z0-9_]*\}?",
    re.DOTALL,
)


def is_placeholder(text: str) -> bool:
    """Whether a template has still to fill something in."""
    return _MARK.search(text) is not None or any(
        _IN_CAPITALS.fullmatch(part) for part in re.split(r"[=:/.]", text)
    )


def is_open(text: str) -> bool:
    """Whether a text that nginx takes as it stands is not known yet."""
    return "$" in text or is_placeholder(text)


def is_cut(words: Iterable[str]) -> bool:
    """Whether the number of a line's words says nothing, for marks stand between them."""
    return any(mark in word for word in words for mark in _SPLIT)


def is_template_line(name: str) -> bool:
    """Whether a line's first word is a mark, so that any line, or none, may come to stand there."""
    return _LINE.fullmatch(name) is not None
