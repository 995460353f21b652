"""Event-loop turns as they are counted, whoever traces them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

HALF_BITS = 7
"""``2 ** HALF_BITS`` counters per doubling: a turn is known within 0.8 %."""

Wait = Literal["blocked", "queued", "asleep", "stopped"]
"""What keeps a turn from computing: state D (a disk, mostly), no CPU though ready to run, an
interruptible sleep in a call of its own, a signal or a debugger that stopped it."""
WAITS: tuple[Wait, ...] = get_args(Wait)


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
    queued: Counter[int] = field(default_factory=Counter)
    asleep: Counter[int] = field(default_factory=Counter)
    stopped: Counter[int] = field(default_factory=Counter)
    squares: Counter[str] = field(default_factory=Counter)
    """Sums over turns of their length times a part of it, in square nanoseconds: ``all`` of the
    whole turn, and of each wait. An arrival meets a turn in proportion to its length, and the
    parts of a turn share the time that it then waits."""
    bounds: Counter[int] = field(default_factory=Counter)
    """Those of ``values`` that are lower bounds: turns whose begin or end was not seen."""
    traced_seconds: float = 0.0

    def add(self, other: TurnCounts) -> None:
        """Count another stretch of time too."""
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.traced_seconds += other.traced_seconds

    def since(self, earlier: TurnCounts) -> TurnCounts:
        """What was counted after an earlier reading of the same counters."""
        counters = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        return TurnCounts(**counters, traced_seconds=self.traced_seconds - earlier.traced_seconds)

    def count(self, thread: int, turn: Turn, *, is_bound: bool = False) -> None:
        """Count one turn; its waits are counted as they end, so only their squares are new."""
        self.values[turn.nanoseconds] += 1
        self.turns[thread] += 1
        self.busy[thread] += turn.nanoseconds
        self.squares["all"] += turn.nanoseconds**2
        for wait, nanoseconds in turn.waits.items():
            self.squares[wait] += turn.nanoseconds * nanoseconds
        if is_bound:
            self.bounds[turn.nanoseconds] += 1


_COUNTERS = ("values", "turns", "busy", *WAITS, "squares", "bounds")


@dataclass
class Turn:
    """One turn, over or under way."""

    nanoseconds: int
    waits: dict[Wait, int] = field(default_factory=dict)
    """Nanoseconds of it."""
