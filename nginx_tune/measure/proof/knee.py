"""The knee of a disk's random-read curve: the depth past which more reads at once do not pay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.curve import CurvePoint
from nginx_tune.documents.units import number_text, seconds_text

LEAST_GAIN = 1.05
"""A step to the next depth must bring 5 % more reads per second."""
MOST_P99_GROWTH = 2.0
"""… and must not double p99."""
NOISE_FACTOR = 2.0
"""A gain counts when it is larger than so many standard errors of the difference."""
_BURST_RATIO = 0.25
"""A median so far below the mean time of a read at depth 1: the reads come in bursts."""


class Knee(NamedTuple):
    """Where the knee is, and why; or why there is none."""

    depth: int | None
    reason: str


def find_knee(points: Sequence[CurvePoint]) -> Knee:
    """The first depth whose next step does not pay.

    A step does not pay when reads per second gain less than 5 % (or no more than the noise of the
    two points) or p99 doubles. A single bad step that the next one makes good is noise.
    None when the first step already does not pay (a plateau: a throttled disk, or one that
    serves a read at a time) and when the last one still does.
    """
    curve = sorted((p for p in points if p.reads_per_second > 0), key=lambda p: p.depth)
    if len(curve) < 3:  # noqa: PLR2004  # two steps: one that pays and one that does not
        return Knee(None, "fewer than three depths were measured")
    for index, point in enumerate(curve[:-1]):
        after = curve[index + 1]
        doubled = _p99_doubles(curve, index)
        if not doubled and _gains(curve, index):
            continue
        if index == 0 and not _gains(curve, 0):
            return Knee(None, _plateau_reason(curve))
        if doubled:
            grown = f"{seconds_text(point.p99_seconds)} to {seconds_text(after.p99_seconds)}"
            return Knee(point.depth, f"at depth {after.depth} p99 grows from {grown}")
        ratio = after.reads_per_second / point.reads_per_second
        noise = ", no more than the noise" if ratio >= LEAST_GAIN else ""
        change = f"reads per second change by {_percent(ratio)}{noise}"
        return Knee(point.depth, f"at depth {after.depth} {change}")
    last = _percent(curve[-1].reads_per_second / curve[-2].reads_per_second)
    return Knee(None, f"no knee up to depth {curve[-1].depth}: the last step still gains {last}")


def plateau_reads_per_second(points: Sequence[CurvePoint]) -> float | None:
    """The rate that more depth does not pass: the mean over the depths that no longer gain.

    The best single point would be the luckiest one. None where the rate still grows.
    """
    curve = sorted((p for p in points if p.reads_per_second > 0), key=lambda p: p.depth)
    for index in range(len(curve) - 1):
        if not _gains(curve, index):
            flat = [point.reads_per_second for point in curve[index:]]
            return sum(flat) / len(flat)
    return None


def _gains(curve: Sequence[CurvePoint], index: int) -> bool:
    """Whether going deeper pays in reads per second: with the next step, or with the next two."""
    here = curve[index]
    return any(
        _is_more(here, deeper, LEAST_GAIN**steps)
        for steps, deeper in enumerate(curve[index + 1 : index + 3], start=1)
    )


def _is_more(here: CurvePoint, deeper: CurvePoint, factor: float) -> bool:
    gain = deeper.reads_per_second - here.reads_per_second
    noise = math.hypot(
        here.reads_per_second * (here.error_ratio or 0.0),
        deeper.reads_per_second * (deeper.error_ratio or 0.0),
    )
    enough = deeper.reads_per_second >= factor * here.reads_per_second
    return enough and gain > NOISE_FACTOR * noise


def _p99_doubles(curve: Sequence[CurvePoint], index: int) -> bool:
    """Whether going deeper doubles p99, with the next step and with the next two."""
    here = curve[index].p99_seconds
    deeper = [point.p99_seconds for point in curve[index + 1 : index + 3]]
    if here is None or deeper[0] is None:
        return False
    return all(p99 is None or p99 > MOST_P99_GROWTH * here for p99 in deeper)


def _plateau_reason(curve: Sequence[CurvePoint]) -> str:
    first = curve[0]
    rate = number_text(first.reads_per_second)
    mean_seconds = first.depth / first.reads_per_second
    if first.p50_seconds is not None and first.p50_seconds < _BURST_RATIO * mean_seconds:
        return f"no knee: {rate} reads/s in bursts from depth {first.depth} on: a throttled device"
    return (
        f"no knee: {rate} reads/s from depth {first.depth} on: a throttled or plateau device, "
        "or one that serves a read at a time"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"
