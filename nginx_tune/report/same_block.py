"""Findings of one kind in one block: one entry with its places, as one mistake made them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nginx_tune.documents.findings import Finding
from nginx_tune.report.text import plain

_QUOTED = re.compile(r'"[^"]*"')
_FEWEST = 3
"""Two are still told one by one."""
_MOST_NAMED = 12


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The findings, those of one kind and one block together where the first of them stands.

    One kind: the same rule, severity and fix, and a message that differs in what it quotes alone.
    """
    kinds: dict[tuple[object, ...], list[Finding]] = {}
    for number, one in enumerate(findings):
        message = _QUOTED.sub('""', one.message)
        block = f"alone {number}" if one.block_line is None else one.block_line
        key = (one.rule, one.severity, one.fix, one.file, block, message)
        kinds.setdefault(key, []).append(one)
    parts = []
    for group in kinds.values():
        parts += [group] if len(group) >= _FEWEST else [[one] for one in group]
    return parts


def others_text(group: list[Finding]) -> str:
    """``5 more in this block: line 10 "root", 11 "index", …``; empty for a single one."""
    if len(group) == 1:
        return ""
    shown = []
    for one in group[1 : _MOST_NAMED + 1]:
        quoted = _QUOTED.search(one.message)
        shown.append(f"{one.line} {quoted[0]}" if quoted else f"{one.line}")
    left = len(group) - 1 - len(shown)
    places = plain(" ".join(", ".join(shown).split())) + (f" and {left} more" if left else "")
    where = "block" if group[0].block_line else "file"
    return f"{len(group) - 1} more of the kind in this {where}: line {places}"
