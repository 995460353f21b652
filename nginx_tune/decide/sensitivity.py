"""Break-evens of any decision: the value of a fact at which its verdict changes.

They are found by bisection, with the decision itself repeated for other values of the fact. So a
break-even cannot disagree with its decision.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.decide.answer import Quantity
from nginx_tune.decide.defaults import plausible_facts, plausible_workload
from nginx_tune.decide.pool_plan import PoolPlan, plan_pools
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import MOST_COUNT
from nginx_tune.documents.decisions import BreakEven, Decision, DecisionId, DecisionVerdict
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.workload import Workload

_STEP = 4.0
_STEPS = 10
"""Steps of a factor of four in each direction, a factor of a million in all."""
_BISECTIONS = 20
"""Bisections that narrow a factor of four to a few millionths."""


def find_flip(
    decide: Callable[[float], object], now: float, verdict: object = None
) -> float | None:
    """The value nearest to ``now`` (in steps of four) at which the result of ``decide`` changes.

    None where it is the same within a factor of a million, where ``now`` is not positive, or where
    the result at ``now`` differs from ``verdict``.
    """
    if now <= 0 or not math.isfinite(now):
        return None
    here = decide(now)
    if verdict is not None and here != verdict:
        return None
    up = down = now
    for _ in range(_STEPS):
        before_up, up = up, up * _STEP
        if decide(up) != here:
            return _bisect(decide, here, before_up, up)
        before_down, down = down, down / _STEP
        if decide(down) != here:
            return _bisect(decide, here, before_down, down)
    return None


def _bisect(decide: Callable[[float], object], here: object, same: float, other: float) -> float:
    for _ in range(_BISECTIONS):
        middle = (same + other) / 2
        if decide(middle) == here:
            same = middle
        else:
            other = middle
    return (same + other) / 2


Decide = Callable[[Situation, PoolPlan], Decision]
Mover = Callable[[Workload, float], Workload]


class Movable(NamedTuple):
    """A fact that a search for break-evens can vary."""

    read: Callable[[Situation], Quantity]
    move: Mover
    least: float = 1e-6
    """Smallest meaningful break-even, such as one byte or one file."""


MOVABLE: Mapping[str, Movable] = {
    "workload.rate": Movable(
        lambda s: s.rate, lambda w, value: replace(w, rate=replace(w.rate, peak_per_second=value))
    ),
    "workload.concurrency": Movable(
        lambda s: s.concurrency,
        lambda w, value: replace(w, concurrency=replace(w.concurrency, peak=value)),
    ),
    "workload.concurrency.cold_peak": Movable(
        lambda s: s.cold_concurrency,
        lambda w, value: replace(w, concurrency=replace(w.concurrency, cold_peak=value)),
    ),
    "workload.sizes.mean_bytes": Movable(
        lambda s: s.object_bytes,
        lambda w, value: replace(w, sizes=replace(w.sizes, mean_bytes=value)),
        1.001,
    ),
    "workload.dataset.files": Movable(
        lambda s: s.files,
        lambda w, value: replace(w, dataset=replace(w.dataset, files=max(1, round(value)))),
        1.001,
    ),
    "workload.connection_reuse.requests_per_connection": Movable(
        lambda s: s.requests_per_connection,
        lambda w, value: replace(
            w, connection_reuse=replace(w.connection_reuse, requests_per_connection=value)
        ),
        1.001,
    ),
}

DATA = "workload.dataset.bytes"
MEMORY = frozenset(
    {"memory.page_cache_limit_bytes", "memory.available_bytes", "memory.arc_limit_bytes"}
)


def moved_documents(
    facts: Facts, workload: Workload, fact: str, value: float
) -> tuple[Facts, Workload] | None:
    """The documents with one fact at another value; None for a fact that cannot be moved.

    More data means more files of the same size.
    """
    if fact in MEMORY:
        field = fact.removeprefix("memory.")
        return replace(facts, memory=replace(facts.memory, **{field: round(value)})), workload
    if fact == DATA:
        served = workload.dataset
        files = (
            round(served.files * value / served.bytes) if served.files and served.bytes else None
        )
        dataset = replace(served, bytes=round(value), files=files and max(1, files))
        return facts, replace(workload, dataset=dataset)
    movable = MOVABLE.get(fact)
    return None if movable is None else (facts, movable.move(workload, value))


def moved_situation(s: Situation, fact: str, value: float) -> Situation | None:
    """The situation with one fact at another value; None for a fact that cannot be moved."""
    moved = moved_documents(s.facts, s.workload, fact, value)
    if moved is None:
        return None
    facts, workload = moved
    if facts is s.facts:
        return s.with_workload(plausible_workload(workload))
    return dataclasses.replace(s, facts=plausible_facts(facts))


NO_FLIP = "no change of a single fact, not even by a factor of a million"


class Flips(NamedTuple):
    """The facts that may flip a decision."""

    facts: tuple[str, ...]
    needs_plan: bool = False
    """True if the decision depends on the pool plan, which the fact may change too."""


FLIPS: Mapping[DecisionId, Flips] = {
    "thread-pool-size": Flips(
        ("workload.concurrency.cold_peak", "workload.concurrency"), needs_plan=True
    ),
    "output-buffers": Flips(("workload.sizes.mean_bytes",), needs_plan=True),
    "open-file-cache": Flips(
        ("workload.dataset.files", "workload.rate", "workload.sizes.mean_bytes")
    ),
    "reuseport": Flips(
        ("workload.rate", "workload.connection_reuse.requests_per_connection"), needs_plan=True
    ),
    "backlog": Flips(("workload.rate",)),
    "access-log": Flips(("workload.rate",)),
    "read-ahead": Flips(("workload.sizes.mean_bytes",)),
}
"""Facts by decision; ``thread-pools`` finds its own break-evens."""


def with_break_evens(decide: Decide, decision: Decision, s: Situation, plan: PoolPlan) -> Decision:
    """The decision with the break-evens of its facts, also in ``flips_when``."""
    flips = FLIPS.get(decision.id)
    if flips is None:
        return decision
    found = [
        one
        for fact in flips.facts
        if (one := _break_even(decide, decision, s, plan, fact, needs_plan=flips.needs_plan))
    ]
    if not found:
        if decision.flips_when:
            return decision
        return replace(decision, flips_when=[NO_FLIP])
    return replace(
        decision,
        break_evens=[*decision.break_evens, *found],
        flips_when=[*map(_text, found), *decision.flips_when],
    )


def _break_even(
    decide: Decide, decision: Decision, s: Situation, plan: PoolPlan, fact: str, *, needs_plan: bool
) -> BreakEven | None:
    movable = MOVABLE[fact]
    quantity = movable.read(s)
    now = quantity.value

    def verdict(value: float) -> DecisionVerdict:
        moved = s.with_workload(movable.move(s.workload, value))
        return decide(moved, plan_pools(moved) if needs_plan else plan).verdict

    if now is None:
        return None
    # For a fact derived from others, the verdict differs at ``now``: it cannot be varied alone.
    value = find_flip(verdict, now, decision.verdict)
    if value is None or not movable.least < value < MOST_COUNT:
        return None
    above = value > now
    other = verdict(value * 1.001 if above else value / 1.001)
    return BreakEven(
        fact=fact,
        value=float(f"{value:.6g}"),
        unit=quantity.unit,
        now=now,
        above=other if above else decision.verdict,
        below=decision.verdict if above else other,
    )


def _text(b: BreakEven) -> str:
    side, verdict = ("above", b.above) if b.value > b.now else ("below", b.below)
    at, now = Quantity(b.fact, b.value, b.unit).text, Quantity(b.fact, b.now, b.unit).text
    return f"{b.fact}: {str(verdict).replace('_', ' ')} {side} {at}; you have {now}"
