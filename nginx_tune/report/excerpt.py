"""A line of a configuration with a mark under what a finding is about, as compilers show it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nginx_tune.documents.findings import Finding
from nginx_tune.report.text import plain

WIDEST = 100
"""Columns of a line that are shown at most; a longer one is cut around the mark."""
_FEWEST = 24

Sources = Mapping[str, Sequence[tuple[str, str]]]
"""The lines of each file: as they are, to find the place, and as they may be shown."""

_WORD = re.compile(r"[^\s;{}\"']+")


def excerpt(finding: Finding, sources: Sources, *, width: int | None = None) -> list[str]:
    """Two lines, none wider than ``width``; none where the line is not known.

    Where something was taken out of the line the directive's first word is looked for again.
    """
    lines = sources.get(finding.file)
    if lines is None or not 1 <= finding.line <= len(lines):
        return []
    original, text = (line.rstrip("\r\n") for line in lines[finding.line - 1])
    if not text.strip():
        return []
    is_one_line = finding.end_line == finding.line and finding.end_column > finding.column
    if original == text:
        start = min(finding.column - 1, len(text) - 1)
        end = finding.end_column - 1 if is_one_line else len(text)
    else:
        word = _WORD.match(original, finding.column - 1)
        start = _nearest(text, word[0] if word else "", finding.column - 1)
        end = start + (len(word[0]) if word else 1)
    end = max(start + 1, min(end, len(text.rstrip())))
    number = f"{finding.line:>5} | "
    room = WIDEST if width is None else max(_FEWEST, min(WIDEST, width - len(number)))
    if len(text) <= room:
        cut = 0
    elif width is None:
        cut = max(0, min(start - room // 4, len(text) - room))
    else:  # as much of what is meant as there is room for
        cut = max(0, min(start - min(room // 4, max(room - (end - start), 0)), len(text) - room))
    shown = plain(text[cut : cut + room].replace("\t", " "))
    marks = "^" * max(1, min(end, cut + room) - start)
    return [number + shown, " " * 5 + " | " + " " * (start - cut) + marks]


def _nearest(text: str, word: str, wanted: int) -> int:
    """Where a word stands nearest to a place; the line's first word where it does not."""
    places = [match.start() for match in re.finditer(re.escape(word), text)] if word else []
    if not places:
        return len(text) - len(text.lstrip())
    return min(places, key=lambda at: abs(at - wanted))
