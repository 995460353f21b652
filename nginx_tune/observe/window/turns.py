"""Loop turns of a window as the measurement tells them; pure."""

from __future__ import annotations

from collections import Counter

from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measured_server import LoopTurn
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.measure.proof.histogram import rank_of
from nginx_tune.measure.proof.latency import QUANTILES
from nginx_tune.measure.proof.tally import latency_of
from nginx_tune.observe.turn_counts import WAITS, TurnCounts
from nginx_tune.observe.window.window import Window

_ALIKE = 1.05
"""A quantile that a bound moves by less than this is known well enough."""


def plan_turns(window: Window, gaps: Gaps) -> LoopTurn | None:
    """The turns of all workers; null with its reason in ``gaps``."""
    spans = window.spans
    if isinstance(spans, Missing) or not spans:
        reason = spans.reason if isinstance(spans, Missing) else "the tracer gave no reading"
        gaps["/loop_turn_seconds"] = reason
        return None
    total = TurnCounts()
    for span in spans:
        total.add(span)
    workers = len(window.subjects.workers)
    return loop_turn_of(total, workers=workers, seconds=window.seconds, method=window.turn_method)


def loop_turn_of(counts: TurnCounts, *, workers: int, seconds: float, method: str) -> LoopTurn:
    """The turns that were counted over a window of so many seconds."""
    latency = latency_of(counts.values)
    at_least = _at_least(latency, counts)
    busy, blocked = counts.busy.total() / 1e9, counts.blocked.total() / 1e9
    waits = _arrival_waits(counts, workers)
    kept = {name: getattr(latency, name) for name in latency.__struct_fields__}
    kept |= {
        "censored": counts.bounds.total(),
        "censored_from_seconds": _exact_up_to(latency, at_least),
        "at_least": at_least,
    }
    return LoopTurn(
        **kept,
        method=method,
        busy_seconds=busy,
        blocked_seconds=blocked,
        # A wait may end in the window that began before it.
        blocked_ratio=min(1.0, blocked / busy) if busy else None,
        queued_seconds=counts.queued.total() / 1e9,
        asleep_seconds=counts.asleep.total() / 1e9,
        stopped_seconds=counts.stopped.total() / 1e9,
        arrival_wait_seconds=waits.pop("all", None),
        arrival_wait_by=waits,
        traced_ratio=min(1.0, counts.traced_seconds / seconds) if seconds else None,
    )


def _arrival_waits(counts: TurnCounts, workers: int) -> dict[str, float]:
    """A turn of t seconds meets t seconds' worth of arrivals, who wait half of it on average.

    Units: seconds; ``all``, and of it what each wait and computing make.
    Source: mean residual life of a renewal process.
    """
    nanoseconds = counts.traced_seconds * 1e9 * workers
    if not nanoseconds:
        return {}
    waits = {part: counts.squares[part] / 2 / nanoseconds / 1e9 for part in ("all", *WAITS)}
    computing = waits["all"] - sum(waits[wait] for wait in WAITS)
    return {**waits, "computing": max(0.0, computing)}


def _at_least(latency: Latency, counts: TurnCounts) -> list[str]:
    """Statistics that would be larger, had the turns been seen whole: they are lower bounds."""
    bounds = counts.bounds.total()
    if not bounds or latency.max is None:
        return []
    found = []
    for name, quantile in QUANTILES.items():
        value: float = getattr(latency, name)
        above = _value_at(rank_of(quantile, latency.count) + bounds, counts.values)
        if above is None or above / 1e9 > _ALIKE * value:
            found.append(name)
    if max(counts.bounds) / 1e9 * _ALIKE >= latency.max:
        found.append("max")
    return found


def _exact_up_to(latency: Latency, at_least: list[str]) -> float | None:
    """The largest quantile that no bound moves; null when none moves any."""
    known = [getattr(latency, name) for name in QUANTILES if name not in at_least]
    return max(known, default=0.0) if at_least else None


def _value_at(rank: int, values: Counter[int]) -> int | None:
    seen = 0
    for value in sorted(values):
        seen += values[value]
        if seen >= rank:
            return value
    return None
