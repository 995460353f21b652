"""The three ways in which nginx logs a time, as milliseconds since 1970.

Source: ngx_time_update in src/core/ngx_times.c; the days by Hinnant, chrono-Compatible Low-Level
        Date Algorithms.
"""

from __future__ import annotations

import re
from functools import lru_cache

from oracle_line import milliseconds

_LOCAL = re.compile(rb"(\d\d)/([A-Z][a-z][a-z])/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})")
_ISO = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)"
)
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
           b"Dec")  # fmt: skip
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_LAST_MILLISECOND = 7_258_118_400_000


@lru_cache(maxsize=4096)
def local_time(text: bytes) -> int | None:
    """Of ``20/Nov/2026:19:26:34 +0000``."""
    match = _LOCAL.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    return _moment((year, _MONTHS.index(match[2]) + 1, day), (hour, minute, second), match[7])


@lru_cache(maxsize=4096)
def iso_time(text: bytes) -> int | None:
    """Of ``2026-11-20T19:26:34+00:00``, with or without a fraction."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    whole = _moment((year, month, day), (hour, minute, second), match[8].replace(b":", b""))
    return None if whole is None else whole + int(((match[7] or b"") + b"000")[:3])


def epoch_time(text: bytes) -> int | None:
    """Of ``$msec``."""
    value = milliseconds(text)
    return None if value is None or value >= _LAST_MILLISECOND else value


def any_time(text: bytes) -> int | None:
    """Of whichever of the three it is."""
    if b"/" in text:
        return local_time(text)
    return iso_time(text) if b"-" in text else epoch_time(text)


def _moment(date: tuple[int, int, int], clock: tuple[int, int, int], zone: bytes) -> int | None:
    year, month, day = date
    hour, minute, second = clock
    is_date = _FIRST_YEAR <= year <= _LAST_YEAR and 1 <= month <= 12 and 1 <= day <= 31
    if not is_date or hour > 23 or minute > 59 or second > 60:
        return None
    offset = 0
    if zone != b"Z":
        offset = int(zone[1:3]) * 3600 + int(zone[3:5]) * 60
        offset = -offset if zone[:1] == b"-" else offset
    whole = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    return whole * 1000 if whole >= 0 else None


def _days(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
