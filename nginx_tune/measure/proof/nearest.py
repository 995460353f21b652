"""Which metrics a name that is none may stand for."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

_MOST = 3
_LEAST_LIKE = 0.6


def nearest_metrics(name: str, names: Sequence[str]) -> list[str]:
    """Up to three of ``names`` for a mistyped one, or for the end of one (``p99``)."""
    low = name.lower()
    ends = [one for one in names if one.endswith(f".{low}")] if low else []
    if ends:
        return sorted(ends, key=len)[:_MOST]
    near = get_close_matches(low, names, n=_MOST, cutoff=_LEAST_LIKE)
    if near:
        return near
    tails: dict[str, str] = {}
    for one in names:
        tails.setdefault(one.partition(".")[2], one)
    return [tails[one] for one in get_close_matches(low, tails, n=_MOST, cutoff=_LEAST_LIKE)]
