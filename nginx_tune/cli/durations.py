"""Durations as people write them."""

from __future__ import annotations

import re

from nginx_tune.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_FORM = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|)")


def parse_duration(text: str) -> float:
    """Seconds of ``10s``, ``1.5m``, ``200ms``; a bare number is seconds."""
    match = _FORM.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"'{text}' is no duration", hint="for example 10s, 1.5m, 200ms")
    return float(match[1]) * _UNITS[match[2]]
