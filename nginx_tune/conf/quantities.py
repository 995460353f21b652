"""Numbers as nginx writes them.

Source: ngx_parse_size, ngx_parse_offset, ngx_parse_time, ngx_atoi.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SIZE = re.compile(r"([0-9]{1,15})([kKmMgG]?)")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIME_PART = re.compile(r"([0-9]{1,12})(ms|[yMwdhms]?) *")
_SECONDS = {
    "y": 31_536_000.0,
    "M": 2_592_000.0,
    "w": 604_800.0,
    "d": 86_400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "": 1.0,
    "ms": 0.001,
}
_FEW = 0.05
"""A change of a number by less has no effect that anybody could see."""
_COUNT = re.compile(r"[0-9]{1,12}")


def parse_bytes(text: str) -> int | None:
    """``10m`` as bytes; null for what is no size. nginx takes ``g`` only where files are meant."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2].lower()]


def parse_seconds(text: str) -> float | None:
    """``1m 30s`` as seconds; null for what is no time."""
    seconds, at = 0.0, 0
    while at < len(text):  # one expression for the whole would try every way to split digits
        part = _TIME_PART.match(text, at)
        if part is None:
            return None
        seconds += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return seconds if text else None


def parse_count(text: str) -> int | None:
    """A plain number; null for anything else."""
    return int(text) if _COUNT.fullmatch(text) else None


def is_alike(have: str, want: str) -> bool:
    """Whether two words say the same, or numbers that are within a few per cent of each other."""
    name, _, value = want.rpartition("=")
    own, _, number = have.rpartition("=")
    zone, _, size = value.rpartition(":")
    own_zone, _, own_size = number.rpartition(":")
    one, other = parse_bytes(own_size), parse_bytes(size)
    if one is None or other is None or (own, own_zone) != (name, zone):
        return have == want
    return abs(one - other) <= _FEW * other


def parameter(args: Sequence[str], name: str) -> str | None:
    """The value of the last ``NAME=VALUE`` among arguments."""
    found = [arg[len(name) + 1 :] for arg in args if arg.startswith(f"{name}=")]
    return found[-1] if found else None
