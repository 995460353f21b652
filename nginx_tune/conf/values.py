"""Arguments of directives as numbers: sizes, times and counts as nginx reads them.

Source: ngx_parse_size, ngx_parse_time, ngx_atoi in ngx_parse.c and ngx_string.c. What nginx
would refuse, and what a variable may become, is null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SIZE = re.compile(r"([0-9]{1,15})([kKmMgG]?)")
_TIME = re.compile(r"([0-9]{1,9})(ms|[yMwdhms]|) *")
_COUNT = re.compile(r"[0-9]{1,15}")
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNIT_SECONDS = {
    "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800, "M": 2_592_000,
    "y": 31_536_000, "": 1,
}  # fmt: skip


def parse_size(text: str) -> int | None:
    """``512k`` in bytes."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_BYTES[match[2].lower()]


def parse_seconds(text: str) -> float | None:
    """``1m30s`` in seconds."""
    total, at = 0.0, 0
    while at < len(text):
        match = _TIME.match(text, at)
        if match is None:
            return None
        total += int(match[1]) * _UNIT_SECONDS[match[2]]
        at = match.end()
    return total if text else None


def parse_count(text: str) -> int | None:
    """A whole number."""
    return int(text) if _COUNT.fullmatch(text) else None


def parameter(args: Sequence[str], name: str) -> str | None:
    """The value of the last ``NAME=VALUE`` among arguments."""
    found = [arg[len(name) + 1 :] for arg in args if arg.startswith(f"{name}=")]
    return found[-1] if found else None
