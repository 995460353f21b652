"""What the same requests cost: CPU time of the server in both arms of a pair.

CPU time a request compares two arms that answered the same requests. A faster arm of a closed loop
answers others: more of the class that it made fast. So the ratio of CPU times is held against the
ratio of requests, class by class. If every request of a class costs an arm the same, whatever the
others do, then what the candidate's requests cost the baseline lies between its CPU time times the
smallest of these ratios and times the largest. Only what lies beyond both is called a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.blocks import Pair
from nginx_tune.measure.proof.comparison import MetricPairs

COST = "server.cpu_seconds_per_request"
_LEAST_SHARE = 0.01
"""Of requests and of bytes; a class that is less in both arms says nothing of the CPU time."""
_SAME_MIX = math.log(1.05)
"""Ratios of the classes' requests so near to each other are those of the same requests."""


@dataclass(frozen=True)
class CostComparison(MetricPairs):
    """CPU time a request, without what another mix of requests may be the reason of."""

    @cached_property
    def log_ratios(self) -> list[float]:
        """By pair, the log ratio's part that the mix cannot explain; 0 where it can explain all."""
        if not self.pairs or any(b <= 0 or c <= 0 for b, c in self.pairs):
            return []
        ranges = [
            _range_of(pair, math.log(c / b))
            for pair, (b, c) in zip(self.blocks.pairs, self.pairs, strict=True)
        ]
        return [low if low > 0 else min(high, 0.0) for low, high in ranges]

    @cached_property
    def middles(self) -> None:
        """None: CPU time a request is told as it was; the ratio is of the same requests."""
        return None

    @cached_property
    def other_mix(self) -> str:
        """Why equal costs could not be told; empty where both arms answered the same requests."""
        spreads = [spread for pair in self.blocks.pairs if (spread := _spread(pair)) is not None]
        if not spreads or median(spreads) <= _SAME_MIX:
            return ""
        most, least = _extremes(self.blocks.pairs)
        return (
            "the arms answered other mixes of requests: with the candidate "
            f"{_times(*most)}, {_times(*least)}"
        )


def _times(log_ratio: float, name: str) -> str:
    """How many of a class the candidate answered beside the baseline."""
    if log_ratio == math.inf:
        return f"requests of {name}, and the baseline none"
    ratio = f"{math.exp(log_ratio):.3g}"
    return f"as many of {name}" if ratio == "1" else f"{ratio} × as many of {name}"


def _range_of(pair: Pair, log_ratio: float) -> tuple[float, float]:
    """Between which the log ratio of the cost of the same requests lies.

    ``log_ratio`` is that of CPU time a request, all classes together.
    """
    ratios = _class_ratios(pair)
    if not ratios:
        return log_ratio, log_ratio
    total = math.log(_requests(pair.candidate) / _requests(pair.baseline))
    cpu = log_ratio + total
    return cpu - max(ratios.values()), cpu - min(ratios.values())


def _spread(pair: Pair) -> float | None:
    ratios = _class_ratios(pair).values()
    return max(ratios) - min(ratios) if ratios else None


def _extremes(pairs: Sequence[Pair]) -> tuple[tuple[float, str], tuple[float, str]]:
    """The classes that were asked most and least beside the baseline, all pairs together."""
    names = dict.fromkeys(name for pair in pairs for name in _class_ratios(pair))
    ratios = sorted((_total_ratio(pairs, name), name) for name in names)
    return ratios[-1], ratios[0]


def _total_ratio(pairs: Sequence[Pair], name: str) -> float:
    blocks = [(pair.baseline.classes[name], pair.candidate.classes.get(name)) for pair in pairs]
    before = sum(_answered(one) for one, _ in blocks)
    after = sum(_answered(other) for _, other in blocks if other is not None)
    if before and after:
        return math.log(after / before)
    return math.inf if after else -math.inf


def _class_ratios(pair: Pair) -> dict[str, float]:
    """The log of candidate's to baseline's requests, of each class that can matter.

    Infinite for a class that one arm answered nothing of: of its cost nothing is known.
    """
    found = {}
    for name, before in pair.baseline.classes.items():
        after = pair.candidate.classes.get(name)
        if after is None:
            continue
        if max(_share(pair.baseline, name), _share(pair.candidate, name)) < _LEAST_SHARE:
            continue
        if _answered(before) and _answered(after):
            found[name] = math.log(_answered(after) / _answered(before))
        else:
            found[name] = math.inf if _answered(after) else -math.inf
    return found


def _share(block: Measurement, name: str) -> float:
    """Of the block's requests or of its bytes, whichever is more."""
    part = block.classes[name]
    sent = sum(one.bytes for one in block.classes.values())
    return max(_answered(part) / _requests(block), part.bytes / sent if sent else 0.0)


def _requests(block: Measurement) -> int:
    return max(sum(map(_answered, block.classes.values())), 1)


def _answered(part: ClassMeasurement) -> int:
    """Good answers, and refusals by a limit: those cost CPU time too."""
    return part.requests + part.limited
