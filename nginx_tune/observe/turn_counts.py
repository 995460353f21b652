"""Event-loop turns as they are counted, whoever traces them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

HALF_BITS = 7
"""``2 ** HALF_BITS`` counters per doubling: a turn is known within 0.8 %."""


@dataclass
class TurnCounts:
    """Turns of some threads over some time; threads by the ids that the kernel itself uses."""

    values: Counter[int] = field(default_factory=Counter)
    """Number of turns by nanoseconds."""
    turns: Counter[int] = field(default_factory=Counter)
    """By thread."""
    busy: Counter[int] = field(default_factory=Counter)
    """Nanoseconds inside turns by thread."""
    blocked: Counter[int] = field(default_factory=Counter)
    """Of these, in state D."""
    traced_seconds: float = 0.0

    def add(self, other: TurnCounts) -> None:
        """Count another stretch of time too."""
        self.values.update(other.values)
        self.turns.update(other.turns)
        self.busy.update(other.busy)
        self.blocked.update(other.blocked)
        self.traced_seconds += other.traced_seconds

    def since(self, earlier: TurnCounts) -> TurnCounts:
        """What was counted after an earlier reading of the same counters."""
        return TurnCounts(
            self.values - earlier.values,
            self.turns - earlier.turns,
            self.busy - earlier.busy,
            self.blocked - earlier.blocked,
            self.traced_seconds - earlier.traced_seconds,
        )
