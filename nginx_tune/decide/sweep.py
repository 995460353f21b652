"""A decision asked again with one fact at other values: where it flips, as numbers to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.decide.engine import decide, situation_of
from nginx_tune.decide.quantity import Quantity
from nginx_tune.decide.sensitivity import DATA, FLIPS, MEMORY, MOVABLE, moved_documents
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Workload

FACTORS = (1 / 64, 1 / 8, 1 / 2, 1.0, 2.0, 8.0, 64.0)
NEAR = 0.02
"""How far from a break-even its two sides are asked."""


class SweepStep(NamedTuple):
    """What is decided with one fact at one value."""

    fact: str
    value: float
    unit: str
    verdict: str
    is_now: bool
    flips: bool
    """Whether the verdict is another one than at the value before."""


def sweep(name: str, facts: Facts, workload: Workload, site: Site) -> list[SweepStep]:
    """The decision over a range of each fact that may flip it, around its value now.

    Shape: for each fact ascending values: powers of eight, and both sides of each break-even.
           Empty where no known fact flips it.
    """
    situation = situation_of(facts, workload, site=site)
    now = _decided(name, facts, workload, site)
    flips = FLIPS.get(now.id)
    names = dict.fromkeys([*(b.fact for b in now.break_evens), *(flips.facts if flips else ())])
    steps: list[SweepStep] = []
    for fact in names:
        quantity = _quantity(fact, situation)
        if quantity is not None and quantity.value:
            at = [b.value for b in now.break_evens if b.fact == fact]
            steps += _swept(name, quantity, at, (facts, workload, site))
    return steps


def _swept(
    name: str, quantity: Quantity, at: list[float], inputs: tuple[Facts, Workload, Site]
) -> Iterator[SweepStep]:
    now = quantity.value or 0.0
    near = [value * side for value in at for side in (1 - NEAR, 1 + NEAR)]
    before = None
    for value in sorted({*(now * factor for factor in FACTORS), *near}):
        verdict = _decided(name, *_moved(quantity.fact, value, *inputs)).verdict
        flips = before is not None and verdict != before
        yield SweepStep(quantity.fact, value, quantity.unit, verdict, value == now, flips)
        before = verdict


def _decided(name: str, facts: Facts, workload: Workload, site: Site) -> Decision:
    found = decide(facts, workload, site=site).decisions
    return next(one for one in found if one.id == name)


def _quantity(fact: str, s: Situation) -> Quantity | None:
    if fact == DATA:
        return s.dataset_bytes if s.dataset_bytes.fact == fact else None
    if fact in MEMORY:
        return s.page_cache if s.page_cache.fact == fact else None
    movable = MOVABLE.get(fact)
    return None if movable is None else movable.read(s)


def _moved(
    fact: str, value: float, facts: Facts, workload: Workload, site: Site
) -> tuple[Facts, Workload, Site]:
    moved = moved_documents(facts, workload, fact, value)
    return (facts, workload, site) if moved is None else (*moved, site)
