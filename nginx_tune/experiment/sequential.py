"""Pairs one by one until a comparison is settled or its time is up."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Verdict
from nginx_tune.measure.proof.blocks import pair_blocks
from nginx_tune.measure.proof.interim import Look, meets_stopping_rule, next_look
from nginx_tune.measure.proof.verdict import judge


class Deadline:
    """A span of time from now."""

    def __init__(self, seconds: float | None) -> None:
        self._start = time.monotonic()
        self._seconds = seconds

    @property
    def used_seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def has(self, seconds: float, *, share: float = 1.0) -> bool:
        """Whether so much is left of it, or of a share of it."""
        return self._seconds is None or self.used_seconds + seconds <= share * self._seconds


class Looking:
    """Decides after each pair whether another is run; ``look`` is the last look that was taken."""

    def __init__(
        self, primary_metric: str, deadline: Deadline, *, first_pairs: int, share: float
    ) -> None:
        self._metric = primary_metric
        self._deadline = deadline
        self._share = share
        self._began = deadline.used_seconds
        self._next = next_look(None, first_pairs=first_pairs)
        self.look: Look | None = None
        self.is_over = False
        """Whether it was settled; time was up otherwise."""

    def wants_more(self, measurements: Sequence[Measurement]) -> bool:
        """Whether another pair is wanted; looks where a look is due.

        Side effects: where time is up, the look that was to come next is taken now.
        """
        pairs = len(pair_blocks(measurements).counting_for(self._metric).pairs)
        if pairs >= self._next.pairs:
            self.is_over = self._take(measurements)
        if self.is_over:
            return False
        run = len(measurements) // 2
        each = (self._deadline.used_seconds - self._began) / run if run else 0.0
        if self._deadline.has(each, share=self._share):
            return True
        if self.look is None or pairs > self.look.pairs:
            self.is_over = self._take(measurements, pairs=pairs)
        return False

    def look_now(self, measurements: Sequence[Measurement]) -> Look:
        """The last look; the one that was to come next, where pairs came after the last.

        For a run that someone interrupts: who saw how it goes may stop it for that.
        """
        pairs = len(pair_blocks(measurements).counting_for(self._metric).pairs)
        if self.look is None or pairs > self.look.pairs:
            self._take(measurements, pairs=pairs)
        return self.look or self._next

    def _take(self, measurements: Sequence[Measurement], *, pairs: int | None = None) -> bool:
        self.look = self._next if pairs is None else self._next._replace(pairs=pairs)
        self._next = next_look(self._next)
        verdict: Verdict = judge(
            measurements, primary_metric=self._metric, metrics=[], alpha=self.look.alpha
        )
        # The primary metric and, where it was measured and can be told, the cost.
        named = [metric for metric in verdict.metrics if metric.judged]
        return verdict.outcome == "worse" or all(map(meets_stopping_rule, named))
