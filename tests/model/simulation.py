"""A small discrete-event simulator, to hold the model's formulas against.

Nothing in here knows a formula: events happen in time order, first in, first out, and what was
seen is counted. Every run is seeded.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise

Action = Callable[[], None]


class Clock:
    """Events in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._order = count()

    def after(self, seconds: float, action: Action) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), action))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until


@dataclass
class Station:
    """Places at which work is done, and one queue before them."""

    clock: Clock
    places: int
    busy: int = 0
    busy_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    _serving: bool = False
    _queue: deque[tuple[float, Callable[[Action], None]]] = field(default_factory=deque)

    def take(self, use: Callable[[Action], None]) -> None:
        """``use`` runs once a place is free; it calls what it is given when it is done."""
        self._queue.append((self.clock.now, use))
        self._serve()

    def visit(self, waits: list[float]) -> None:
        """Who takes no time itself comes, and what it waits is kept."""
        since = self.clock.now

        def use(done: Action) -> None:
            waits.append(self.clock.now - since)
            done()

        self.take(use)

    def work(self, seconds: float, then: Action) -> None:
        """A place is taken for some time."""

        def use(done: Action) -> None:
            def finish() -> None:
                self.busy_seconds += seconds
                done()
                then()

            self.clock.after(seconds, finish)

        self.take(use)

    def _serve(self) -> None:
        if self._serving:  # called by a use that took no time
            return
        self._serving = True
        while self._queue and self.busy < self.places:
            since, use = self._queue.popleft()
            self.busy += 1
            self.waits.append(self.clock.now - since)
            use(self._leave)
        self._serving = False

    def _leave(self) -> None:
        self.busy -= 1
        self._serve()


def gamma(rng: random.Random, mean: float, spread: float) -> float:
    """A service time with that mean and coefficient of variation."""
    if spread <= 0:
        return mean
    shape = 1 / spread**2
    return rng.gammavariate(shape, mean / shape)


def poisson(clock: Clock, rng: random.Random, rate: float, action: Action) -> None:
    """Calls ``action`` at random times, ``rate`` a second."""

    def arrive() -> None:
        action()
        clock.after(rng.expovariate(rate), arrive)

    clock.after(rng.expovariate(rate), arrive)


def divided(clock: Clock, rng: random.Random, parts: int, every: float) -> Callable[[], int]:
    """Draws a part; the parts' shares are drawn anew at times, each division as likely."""
    shares = [1.0]

    def divide() -> None:
        cuts = sorted(rng.random() for _ in range(parts - 1))
        shares[:] = [b - a for a, b in pairwise([0.0, *cuts, 1.0])]
        clock.after(every, divide)

    divide()
    return lambda: rng.choices(range(parts), shares)[0]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
