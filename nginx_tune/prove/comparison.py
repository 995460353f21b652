"""One metric in two arms: what each arm reads, and the pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from nginx_tune.prove.blocks import Blocks
from nginx_tune.prove.latency import Reading
from nginx_tune.prove.metrics import Metric
from nginx_tune.prove.statistics import hodges_lehmann

CUT_OFF = "lower bounds, for requests were cut off"
"""Why a number is no more than a bound."""


@dataclass(frozen=True)
class MetricPairs:
    """A metric over the valid pairs of two arms."""

    metric: Metric
    all_blocks: Blocks

    @cached_property
    def blocks(self) -> Blocks:
        """Those that count for this metric."""
        return self.all_blocks.counting_for(self.metric.name)

    @property
    def discarded(self) -> int:
        """Pairs that do not count."""
        spoilt = len(self.all_blocks.pairs) - len(self.blocks.pairs)
        return len(self.all_blocks.discarded) + spoilt

    @cached_property
    def baseline(self) -> Reading:
        """All blocks of the baseline together."""
        return self.metric.read(self.blocks.baseline)

    @cached_property
    def candidate(self) -> Reading:
        """All blocks of the candidate together."""
        return self.metric.read(self.blocks.candidate)

    @cached_property
    def pairs(self) -> list[tuple[float, float]]:
        """Baseline and candidate of each pair; empty when any block lacks the metric.

        To leave out only the blocks that lack it would choose blocks by their result.
        """
        return [] if self.missing else [(b or 0.0, c or 0.0) for b, c in self._values]

    @cached_property
    def missing(self) -> str:
        """Why there are no pairs; empty when there are."""
        if not self.blocks.pairs:
            return "no valid pair of blocks"
        lacking = sum(None in pair for pair in self._values)
        if not lacking:
            return ""
        reason = next(r.reason for r in self._readings if r.seen is None)
        return f"{lacking} of {len(self._values)} pairs lack it: {reason}"

    @cached_property
    def bounded(self) -> frozenset[str]:
        """The arms of which some block's number is a lower bound: requests were cut off."""
        arms = ("baseline", "candidate")
        return frozenset(
            arms[index % 2] for index, one in enumerate(self._readings) if one.is_bound
        )

    @cached_property
    def log_ratios(self) -> list[float]:
        """The log of candidate / baseline of each pair; empty when one has no ratio."""
        if any(b <= 0 or c <= 0 for b, c in self.pairs):
            return []
        return [math.log(c / b) for b, c in self.pairs]

    @property
    def differences(self) -> list[float]:
        """Candidate - baseline of each pair."""
        return [candidate - baseline for baseline, candidate in self.pairs]

    @property
    def by_pair(self) -> dict[int, float]:
        """The log ratio of each pair by its number; the difference where not all have one.

        Empty where any block lacks the metric.
        """
        if not self.pairs:
            return {}
        values = self.log_ratios or self.differences
        return {pair.index: one for pair, one in zip(self.blocks.pairs, values, strict=True)}

    @cached_property
    def ratio(self) -> Reading:
        """Candidate / baseline: estimated over pairs, else from the arms as wholes.

        A bound where one arm's numbers are lower bounds; nothing where both are.
        """
        before, after = self.baseline, self.candidate
        if self.log_ratios:
            return _bounded(math.exp(hodges_lehmann(self.log_ratios)), self.bounded)
        for arm, reading in (("baseline", before), ("candidate", after)):
            if reading.seen is None:
                return Reading(None, f"{arm}: {reading.reason}")
        if not before.seen or after.seen is None:
            return Reading(None, "no ratio: the baseline is zero")
        arms = [arm for arm, one in (("baseline", before), ("candidate", after)) if one.is_bound]
        return _bounded(after.seen / before.seen, frozenset(arms))

    @cached_property
    def middles(self) -> tuple[float, float] | None:
        """Baseline and candidate in the middle of their blocks; None without a ratio of pairs.

        Each is the Hodges-Lehmann estimate of its own blocks. Their quotient is near that of the
        pairs and not the same, so both give way half of what is between.
        """
        if not self.log_ratios:
            return None
        before, after = (
            hodges_lehmann([math.log(value) for value in arm])
            for arm in zip(*self.pairs, strict=True)
        )
        apart = (hodges_lehmann(self.log_ratios) - (after - before)) / 2
        return math.exp(before - apart), math.exp(after + apart)

    @cached_property
    def _values(self) -> list[tuple[float | None, float | None]]:
        values = [reading.seen for reading in self._readings]
        return list(zip(values[::2], values[1::2], strict=True))

    @cached_property
    def _readings(self) -> list[Reading]:
        return [
            self.metric.read([block])
            for pair in self.blocks.pairs
            for block in (pair.baseline, pair.candidate)
        ]


def _bounded(ratio: float, arms: frozenset[str]) -> Reading:
    """A ratio of numbers of which some arms' are lower bounds."""
    if not arms:
        return Reading(ratio)
    if len(arms) > 1:
        return Reading(None, f"both arms: {CUT_OFF}")
    [arm] = arms
    if arm == "candidate":
        return Reading(ratio, f"at least {ratio:.3g}; candidate: {CUT_OFF}", at_least=ratio)
    return Reading(ratio, f"at most {ratio:.3g}; baseline: {CUT_OFF}", at_most=ratio)
