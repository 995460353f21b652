"""Where a verdict flips: bisection on the decision itself, so that it cannot disagree with it."""

from __future__ import annotations

import math
from collections.abc import Callable

_STEP = 4.0
_STEPS = 10
"""Fours upward and downward: a factor of a million both ways."""
_BISECTIONS = 20
"""From a factor of four down to a few millionths; counted, so that no tiny number can loop."""


def find_flip(decide: Callable[[float], bool], now: float) -> float | None:
    """The value nearest to ``now`` (both ways, by factors of four) at which ``decide`` changes.

    Errors: None when it stays the same within a factor of a million, or when now is not positive.
    """
    if now <= 0 or not math.isfinite(now):
        return None
    verdict = decide(now)
    up = down = now
    for _ in range(_STEPS):
        before_up, up = up, up * _STEP
        if decide(up) != verdict:
            return _bisect(decide, before_up, up)
        before_down, down = down, down / _STEP
        if decide(down) != verdict:
            return _bisect(decide, down, before_down)
    return None


def _bisect(decide: Callable[[float], bool], low: float, high: float) -> float:
    at_low = decide(low)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if decide(middle) == at_low:
            low = middle
        else:
            high = middle
    return (low + high) / 2
