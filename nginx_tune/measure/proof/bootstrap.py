"""Intervals for windows of seconds, which are not independent: resampling in blocks.

A second resembles the one before it, so seconds are drawn in runs of about the square root of
their number, around the end to the beginning again. What is drawn are pairs of a numerator and a
denominator, so that a rate of rates (CPU per request) is resampled whole.

Source: Politis and Romano 1992, circular block bootstrap; percentile intervals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_SECONDS = 20
"""Below this too few blocks are left to resample."""
_MOST_POINTS = 600
"""A longer window is first added up to so many stretches of equal length."""
_RESAMPLES = 4000
_FEWEST_BLOCK = 5


@dataclass(frozen=True)
class Series:
    """A quantity by second: a numerator and what it is divided by."""

    numerators: tuple[float, ...]
    denominators: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def value(self) -> float | None:
        """The quantity over the whole window."""
        below = math.fsum(self.denominators)
        return math.fsum(self.numerators) / below if below > 0 else None


def resample(series: Series, seed: str, *, windows: int = _RESAMPLES) -> list[float]:
    """The quantity in so many windows that could have been seen as well."""
    series = _shortened(series)
    size = len(series)
    length = max(_FEWEST_BLOCK, math.ceil(math.sqrt(size)))
    blocks = math.ceil(size / length)
    tops = _block_sums(series.numerators, length)
    bottoms = _block_sums(series.denominators, length)
    stream = hashlib.shake_128(seed.encode()).digest(4 * blocks * windows)
    draws = [int.from_bytes(stream[at : at + 4], "big") % size for at in range(0, len(stream), 4)]
    values = []
    for start in range(0, len(draws), blocks):
        chosen = draws[start : start + blocks]
        below = sum(bottoms[place] for place in chosen)
        values.append(sum(tops[place] for place in chosen) / below if below > 0 else math.nan)
    return values


def percentile_interval(values: Sequence[float], alpha: float) -> tuple[float, float] | None:
    """The bounds that leave half of ``alpha`` outside on either side; None for undefined ones."""
    if not values or any(math.isnan(value) for value in values):
        return None
    ascending = sorted(values)
    cut = max(0, math.floor(alpha / 2 * len(ascending)) - 1)
    return ascending[cut], ascending[-1 - cut]


def _shortened(series: Series) -> Series:
    size = len(series)
    if size <= _MOST_POINTS:
        return series
    step = math.ceil(size / _MOST_POINTS)
    starts = range(0, size, step)
    return Series(
        tuple(math.fsum(series.numerators[at : at + step]) for at in starts),
        tuple(math.fsum(series.denominators[at : at + step]) for at in starts),
    )


def _block_sums(values: Sequence[float], length: int) -> list[float]:
    """The sum of the block that begins at each place, around the end."""
    around = [*values, *values[: length - 1]]
    return [math.fsum(around[at : at + length]) for at in range(len(values))]
