"""Small words and pictures of a live display: sparklines, and how long it may still take."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"


def sparkline(values: Sequence[float | None], *, bars: str = BARS) -> str:
    """A character for each value, its height by the logarithm; a space where there is none.

    Latencies spread over orders of magnitude; all alike are drawn low.
    """
    known = [math.log(value) for value in values if value and value > 0]
    if not known:
        return " " * len(values)
    low, span = min(known), max(known) - min(known)
    steps = len(bars) - 1
    return "".join(
        " "
        if value is None or value <= 0
        else bars[round((math.log(value) - low) / span * steps) if span else 0]
        for value in values
    )


def left_text(seconds: float) -> str:
    """``40 s left``, ``1 min 40 s left``, ``2 h 5 min left``."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min left"
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"
