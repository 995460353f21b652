"""What a closed loop hides: the requests that its users did not send while they waited.

In a stall each user waits with one request, however many would have come meanwhile. So the stall
is in as few samples as there are users, and in no quantile. What a schedule of the same rate would
have seen is estimated by adding the requests that were left out, at the pace at which a user sends
otherwise. Source: Tene's correction for coordinated omission (HdrHistogram,
``recordValueWithExpectedInterval``). It is an estimate, and so a note, not a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.measure.proof.histogram import Histogram, decode_histogram

_LEAST_RATIO = 2.0
_LEAST_SECONDS = 0.001
"""A difference below either is not worth a word."""

_NANOSECONDS = 1e9
_HALVINGS = 60


@dataclass(frozen=True)
class HiddenStall:
    """How slow the slowest hundredth is, and would be on a schedule."""

    p99_seconds: float
    scheduled_p99_seconds: float
    max_seconds: float


def hidden_stall(part: ClassMeasurement, duration_seconds: float) -> HiddenStall | None:
    """What the users of a class did not see; None for an open loop, or where it is little."""
    latency = part.response_seconds
    if not part.users or not latency.histogram or not latency.count or duration_seconds <= 0:
        return None
    pace = part.users * duration_seconds / latency.count * _NANOSECONDS
    histogram = decode_histogram(latency.histogram)
    seen = (histogram.value_at(0.99) or 0) / _NANOSECONDS
    scheduled = scheduled_quantile(histogram, 0.99, pace) / _NANOSECONDS
    if scheduled < _LEAST_RATIO * seen or scheduled - seen < _LEAST_SECONDS:
        return None
    return HiddenStall(seen, scheduled, latency.max or 0.0)


def scheduled_quantile(histogram: Histogram, share: float, pace: float) -> float:
    """The quantile with the requests that were left out, one every ``pace`` of a longer wait.

    A request of v stands for itself and for those due in its wait: v - pace, v - 2 pace, ….
    """
    middle = histogram.layout.middle_value
    values = [(float(middle(index)), count) for index, count in histogram.counts.items()]
    total = sum(count * max(value // pace, 1.0) for value, count in values)
    most_above = total * (1 - share)
    low, high = 0.0, max((value for value, _ in values), default=0.0)
    for _ in range(_HALVINGS):
        at = (low + high) / 2
        above = sum(
            count * min(max(value // pace, 1.0), 1 + (value - at) // pace)
            for value, count in values
            if value > at
        )
        low, high = (at, high) if above > most_above else (low, at)
    return high
