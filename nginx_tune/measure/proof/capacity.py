"""The search for the highest rate at which an objective holds.

Pure: what was tried so far gives the next rate to try, or the answer. First the rate doubles (or
halves) until one rate holds and another does not; then the gap is halved, in ratio, down to the
precision; then the rate that held is tried again. While not one request had a good response the
lowest rate comes next.

A run is a sample. So a rate is bad only when two of at most three runs say so (one bad run can be
a hiccup of the machine), and the answer has held twice (one good run can be luck). A rate that
fails its confirmation becomes the upper end and the search goes on below it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.capacity import CapacityStep, LimitedBy
from nginx_tune.documents.units import plural

MAJORITY = 2
"""Runs, of at most three, that settle a rate."""

INTERRUPTED: LimitedBy = "interrupted"
"""Someone ended the search."""

SERVER_LIMITS: tuple[LimitedBy, ...] = ("objective", "failures")
"""What makes a rate that did not hold the upper end of the server's capacity."""


class Bounds(NamedTuple):
    """Where to search, in requests a second."""

    first: float
    lowest: float
    highest: float
    precision_ratio: float = 0.05
    """The search ends when a rate that held and one that did not are this close."""
    most_steps: int = 40


class SearchOutcome(NamedTuple):
    """What a search came to."""

    capacity_per_second: float | None
    at_least_per_second: float | None
    missed_per_second: float | None
    limited_by: LimitedBy | None
    reason: str


class _Bracket(NamedTuple):
    held: float | None
    """The highest rate below ``missed`` that held at least once."""
    missed: float | None
    """The lowest rate that two runs found bad."""
    open_rate: float | None
    """A rate whose runs disagree, or whose one run was bad: to be tried again."""


def next_rate(steps: Sequence[CapacityStep], bounds: Bounds) -> float | None:
    """The rate to try next; None when the search is over."""
    if len(steps) >= bounds.most_steps:
        return None
    if not steps:
        return min(max(bounds.first, bounds.lowest), bounds.highest)
    bracket = _bracket(steps)
    if bracket.open_rate is not None:
        return bracket.open_rate
    if bracket.held is None:
        assert bracket.missed is not None  # noqa: S101  # each step is one or the other
        lower = max(bracket.missed / 2, bounds.lowest)
        if not _any_good(steps):
            lower = bounds.lowest  # most likely nothing is served at any rate: soon seen
        return lower if lower < bracket.missed else None
    if bracket.missed is None and bracket.held < bounds.highest:
        return min(bracket.held * 2, bounds.highest)
    if bracket.missed is not None and bracket.missed > bracket.held * (1 + bounds.precision_ratio):
        return math.sqrt(bracket.held * bracket.missed)
    return bracket.held if _held(steps, bracket.held) < MAJORITY else None


def settle(steps: Sequence[CapacityStep], bounds: Bounds) -> SearchOutcome:
    """The answer of a search that is over.

    The capacity is known only when the server limits it: where the probe, its connections or
    a bound was in the way, the answer is a rate that held, and no capacity.
    """
    bracket = _bracket(steps)
    held = bracket.held
    if held is not None and _held(steps, held) < MAJORITY:
        return SearchOutcome(
            None,
            None,
            bracket.missed,
            "steps",
            f"{plural(len(steps), 'run')} did not settle on a rate",
        )
    if bracket.missed is None:
        reason = f"it holds at {_rate(bounds.highest)}, the highest rate that was allowed"
        return SearchOutcome(None, held, None, "bound", reason)
    limit = _limit(steps, bracket.missed)
    why = next(
        step.reason for step in steps
        if step.rate_per_second == bracket.missed and step.limited_by == limit
    )  # fmt: skip
    if held is None:
        lowest = f"it does not even hold at {_rate(bracket.missed)}: {why}"
        return SearchOutcome(None, None, bracket.missed, limit, lowest)
    if limit not in SERVER_LIMITS:
        reason = f"what stops at {_rate(bracket.missed)} is not the server: {why}"
        return SearchOutcome(None, held, bracket.missed, limit, reason)
    if bracket.missed > held * (1 + bounds.precision_ratio):
        reason = f"{plural(len(steps), 'run')} did not come closer: {why}"
        return SearchOutcome(None, held, bracket.missed, "steps", reason)
    return SearchOutcome(held, held, bracket.missed, limit, f"at {_rate(bracket.missed)}: {why}")


def so_far(steps: Sequence[CapacityStep]) -> SearchOutcome:
    """What is known of a search that was interrupted: no capacity, but what held and what not."""
    bracket = _bracket(steps) if steps else _Bracket(None, None, None)
    reason = f"interrupted after {plural(len(steps), 'run')}"
    return SearchOutcome(None, bracket.held, bracket.missed, INTERRUPTED, reason)


def _bracket(steps: Sequence[CapacityStep]) -> _Bracket:
    met = Counter(step.rate_per_second for step in steps if step.met)
    bad = Counter(step.rate_per_second for step in steps if not step.met)
    missed = min((rate for rate, count in bad.items() if count >= MAJORITY), default=None)
    below = {rate for rate in met.keys() | bad.keys() if missed is None or rate < missed}
    undecided = [
        rate for rate in below if bad[rate] and bad[rate] < MAJORITY and met[rate] < MAJORITY
    ]
    held = max((rate for rate in below if met[rate] and rate not in undecided), default=None)
    return _Bracket(held, missed, min(undecided, default=None))


def _any_good(steps: Sequence[CapacityStep]) -> bool:
    return any(step.good_requests != 0 for step in steps)


def _held(steps: Sequence[CapacityStep], rate: float) -> int:
    return sum(step.met for step in steps if step.rate_per_second == rate)


def _limit(steps: Sequence[CapacityStep], rate: float) -> LimitedBy:
    """What most of the bad runs at a rate say; of two that disagree the later."""
    said = [s.limited_by for s in steps if s.rate_per_second == rate and s.limited_by is not None]
    counts = Counter(said)
    return max(reversed(said), key=lambda limit: counts[limit])


def _rate(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 10 else f"{value:.3g}/s"  # noqa: PLR2004
