"""Axes of the plots on a page: where values lie, in percent of the plot's width or height.

Percent, because a page is read at any width: a text in it keeps its size, a curve stretches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_MOST_DECADES_OF_STEPS = 2.0
"""A logarithmic axis this long or shorter has 2 and 5 as ticks too."""
_LINEAR_DECADES = 0.6
"""A logarithmic axis this long or shorter has its ticks at equal distances of the value."""
_FEWEST_LINEAR = 3
_MOST_TICKS = 7


@dataclass(frozen=True)
class Tick:
    """A mark of an axis."""

    percent: float
    text: str


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis from ``low`` to ``high``, both above 0."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        """Where a value lies, from 0 (``low``) to 100; what lies outside is at the end."""
        if value <= self.low:
            return 0.0
        whole = math.log(self.high) - math.log(self.low)
        return round(min(100.0, 100 * (math.log(value) - math.log(self.low)) / whole), 3)

    def ticks(self, text: Callable[[float], str]) -> list[Tick]:
        """At powers of ten, at 2 and 5 too where the axis is short, evenly where it is shorter."""
        if math.log10(self.high / self.low) <= _LINEAR_DECADES:
            return [Tick(self.percent(value), text(value)) for value in self._even()]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = math.log10(self.high) - math.log10(self.low)
        steps = (1, 2, 5) if decades <= _MOST_DECADES_OF_STEPS else (1,)
        stride = max(1, math.ceil(decades / _MOST_TICKS))
        powers = [power for power in range(first, last + 1) if power % stride == 0]
        values = [step * 10.0**power for power in powers for step in steps]
        inside = [value for value in values if self.low <= value <= self.high]
        return [Tick(self.percent(value), text(value)) for value in inside]

    def _even(self) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten, three or more."""
        step = 10.0 ** math.ceil(math.log10(self.high - self.low))
        while True:
            for part in (1.0, 0.5, 0.2):
                width = step * part
                first, last = math.ceil(self.low / width), math.floor(self.high / width)
                if last - first + 1 >= _FEWEST_LINEAR:
                    return [float(f"{count * width:.6g}") for count in range(first, last + 1)]
            step /= 10


def log_axis(values: Iterable[float], *, margin: float = 1.15) -> LogAxis | None:
    """An axis that holds these values with a margin (a factor); None where none is above 0."""
    shown = [value for value in values if 1e-300 < value < 1e300]  # noqa: PLR2004  # no overflow
    if not shown:
        return None
    return LogAxis(min(shown) / margin, max(shown) * margin)
