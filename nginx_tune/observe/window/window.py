"""A window over a server as it was read: moments, stretches between them, samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from nginx_tune.host.door import Missing
from nginx_tune.observe.block_delay import delay_between
from nginx_tune.observe.parse_error_log import ErrorLogCounts
from nginx_tune.observe.parse_opens import NameCalls
from nginx_tune.observe.queue_wait import QueueWaits
from nginx_tune.observe.states import BlockedState, StateShares
from nginx_tune.observe.turn_counts import TurnCounts
from nginx_tune.observe.window.moment import NOT_ASKED, Moment, Subjects

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Window:
    """Everything that was read; lists of stretches have one entry for each pair of moments."""

    subjects: Subjects
    moments: list[Moment]
    logs: ErrorLogCounts | Missing
    states: dict[int, StateShares] = field(default_factory=dict)
    d_ratios: list[float | None] = field(default_factory=list)
    spans: list[TurnCounts] | Missing = field(default_factory=list)
    turn_method: str = ""
    global_ids: dict[int, int] = field(default_factory=dict)
    delay_method: str = ""
    delay_missing: Missing | None = None
    connections: tuple[dict[int, int] | None, dict[int, int] | None] = (None, None)
    refault_source: str = ""
    queue_waits: QueueWaits | Missing | None = None
    opens: NameCalls | Missing | None = None
    observer_cpu_seconds: float | None = None
    observer_late_seconds: float | None = None
    held: Counter[BlockedState] = field(default_factory=Counter)
    """What main threads were found in, in looks."""
    cpu_samples: Counter[str] | Missing = NOT_ASKED

    @property
    def seconds(self) -> float:
        """From the first moment to the last."""
        return self.moments[-1].at - self.moments[0].at

    def delay_of(self, pid: int) -> float | None:
        """Block-I/O delay of one main thread: a jump costs its second, not the whole window."""
        if self.delay_missing is not None:
            return None
        known = [
            waited
            for pair in pairwise(moment.delays for moment in self.moments)
            if (waited := delay_between(*pair).get(pid)) is not None
        ]
        return math.fsum(known) if known else None


def difference(before: N | None, after: N | None) -> N | None:
    """The growth; null when either is not known."""
    return None if before is None or after is None else after - before


def sum_known(values: Sequence[float | None]) -> float | None:
    """The sum; null when any part of it is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None
