"""A line of a configuration with a mark under what a finding is about, as compilers show it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nginx_tune.documents.findings import Finding
from nginx_tune.report.text import plain

WIDEST = 100
"""Columns of a line that are shown; a longer one is cut around the mark."""

Sources = Mapping[str, Sequence[tuple[str, str]]]
"""The lines of each file: as they are, to find the place, and as they may be shown."""

_WORD = re.compile(r"[^\s;{}\"']+")


def excerpt(finding: Finding, sources: Sources) -> list[str]:
    """Two lines, or none where the line is not known.

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
    cut = max(0, min(start - WIDEST // 4, len(text) - WIDEST)) if len(text) > WIDEST else 0
    shown = plain(text[cut : cut + WIDEST].replace("\t", " "))
    number = f"{finding.line:>5} | "
    marks = "^" * max(1, min(end, cut + WIDEST) - start)
    return [number + shown, " " * 5 + " | " + " " * (start - cut) + marks]


def _nearest(text: str, word: str, wanted: int) -> int:
    """Where a word stands nearest to a place; the line's first word where it does not."""
    places = [match.start() for match in re.finditer(re.escape(word), text)] if word else []
    if not places:
        return len(text) - len(text.lstrip())
    return min(places, key=lambda at: abs(at - wanted))
