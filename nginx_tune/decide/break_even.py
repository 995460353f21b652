"""Where a verdict flips: bisection on the decision itself, so that it cannot disagree with it."""

from __future__ import annotations

import math
from collections.abc import Callable

_STEP = 4.0
_STEPS = 10
"""Fours upward and downward: a factor of a million both ways."""
_BISECTIONS = 20
"""From a factor of four down to a few millionths; counted, so that no tiny number can loop."""


def find_flip(
    decide: Callable[[float], object], now: float, verdict: object = None
) -> float | None:
    """The value nearest to ``now`` (both ways, by factors of four) at which ``decide`` changes.

    Errors: None when it stays the same within a factor of a million, when now is not positive, or
            when the verdict there is another than the one that is given.
    """
    if now <= 0 or not math.isfinite(now):
        return None
    here = decide(now)
    if verdict is not None and here != verdict:
        return None
    up = down = now
    for _ in range(_STEPS):
        before_up, up = up, up * _STEP
        if decide(up) != here:
            return _bisect(decide, here, before_up, up)
        before_down, down = down, down / _STEP
        if decide(down) != here:
            return _bisect(decide, here, before_down, down)
    return None


def _bisect(decide: Callable[[float], object], here: object, same: float, other: float) -> float:
    for _ in range(_BISECTIONS):
        middle = (same + other) / 2
        if decide(middle) == here:
            same = middle
        else:
            other = middle
    return (same + other) / 2
