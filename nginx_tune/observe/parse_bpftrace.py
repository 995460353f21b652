"""What our bpftrace program says: JSON lines in, counters out; pure.

At every mark the program prints ``mark NUMBER NANOSECONDS``, its maps, and ``done``. The maps
are never cleared, so nothing is lost between two marks: the difference of two readings is what
happened between them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from nginx_tune.observe.turn_counts import HALF_BITS, TurnCounts


class Reading(NamedTuple):
    """All maps at one mark."""

    mark: int
    at_seconds: float
    """Monotonic clock."""
    maps: dict[str, dict[str, int]]


def parse_readings(lines: Iterable[str]) -> list[Reading]:
    """The complete readings; other output, and a reading cut short, is passed over."""
    readings = []
    maps: dict[str, dict[str, int]] | None = None
    mark, at = 0, 0.0
    for line in lines:
        kind, data = _decode(line)
        if kind == "printf" and isinstance(data, str):
            words = data.split()
            if words[:1] == ["mark"] and len(words) == 3 and all(map(str.isdecimal, words[1:])):  # noqa: PLR2004
                maps, mark, at = {}, int(words[1]), int(words[2]) / 1e9
            elif words == ["done"] and maps is not None:
                readings.append(Reading(mark, at, maps))
                maps = None
        elif kind == "map" and isinstance(data, dict) and maps is not None:
            for name, found in data.items():
                entries = {"": found} if isinstance(found, int) else found
                if isinstance(entries, dict):
                    maps[name] = {
                        key: value for key, value in entries.items() if isinstance(value, int)
                    }
    return readings


def is_word(line: str, word: str) -> bool:
    """Whether the line is just that word, printed by the program."""
    return _decode(line) == ("printf", f"{word}\n")


def _decode(line: str) -> tuple[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return "", None
    return (str(said.get("type")), said.get("data")) if isinstance(said, dict) else ("", None)


def value_counts(reading: Reading) -> Counter[int]:
    """What was counted in ``@values``, by nanoseconds."""
    return Counter({_nanoseconds(key): n for key, n in _numbers(reading, "@values").items()})


def turn_counts(reading: Reading) -> TurnCounts:
    """The counters at a mark."""
    return TurnCounts(
        values=value_counts(reading),
        turns=Counter(_numbers(reading, "@turns")),
        busy=Counter(_numbers(reading, "@busy")),
        blocked=Counter(_numbers(reading, "@blocked")),
        traced_seconds=reading.at_seconds,
    )


def open_turns(reading: Reading) -> dict[int, int]:
    """Age in nanoseconds of the turn that each thread was in at a mark."""
    now = round(reading.at_seconds * 1e9)
    left = _numbers(reading, "@left")
    return {thread: now - since for thread, since in left.items() if 0 < since < now}


def _numbers(reading: Reading, name: str) -> dict[int, int]:
    entries = reading.maps.get(name, {})
    return {int(key): value for key, value in entries.items() if key.isdecimal()}


def _nanoseconds(index: int) -> int:
    """The middle of a counter's values: the inverse of the index that the program computes."""
    shift = max((index >> HALF_BITS) - 1, 0)
    position = index - (shift << HALF_BITS)
    return (position << shift) + ((1 << shift) >> 1)
