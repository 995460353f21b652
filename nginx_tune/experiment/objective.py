"""The capacity of each arm under an objective: two searches, one step of each in turn.

Each step is a block of its own, a fresh nginx in the same cache state, at one rate. The arms take
turns in the order of the blocks (ABBA), so what drifts on the host meets both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from nginx_tune.documents.capacity import Capacity, CapacityStep
from nginx_tune.documents.loadplan import Arrivals, LoadClass
from nginx_tune.documents.progress import Step
from nginx_tune.documents.units import plural
from nginx_tune.experiment.experiment import Experiment
from nginx_tune.experiment.session import Session
from nginx_tune.measure.load.capacity import LOWEST_PER_SECOND
from nginx_tune.measure.load.classes import HELD_CONNECTIONS
from nginx_tune.measure.load.rate import plan_at_rate, total_rate
from nginx_tune.measure.proof.capacity import Bounds, next_rate, settle
from nginx_tune.measure.proof.objective import Objectives, judge_run, parse_objective

_FIRST_PER_SECOND = 100.0
_CONNECTIONS = 512
"""Of an open class: arrivals are not to wait for the probe."""


def search_arms(
    session: Session,
    experiment: Experiment,
    objectives: Sequence[str],
    *,
    seed: int,
    has_time: Callable[[], bool],
    progress: Callable[[str], None],
) -> dict[str, Capacity]:
    """The capacity of each arm; where time ends first, what is known by then and that it did.

    Errors: UsageError for an objective that cannot be read or names no class.
    """
    arms = experiment.arms
    names = [item.name for plan in experiment.plans.values() for item in plan.classes]
    objective = parse_objective(objectives, list(dict.fromkeys(names)))
    plans = {
        name: msgspec.structs.replace(plan, classes=open_classes(plan.classes, objective))
        for name, plan in experiment.plans.items()
    }
    any_plan = next(iter(plans.values()))
    bounds = Bounds(total_rate(any_plan), LOWEST_PER_SECOND, any_plan.caps.rate_per_second)
    steps: dict[str, list[CapacityStep]] = {arm.name: [] for arm in arms}
    number = turn = 0
    in_time = True
    while in_time and any(next_rate(found, bounds) is not None for found in steps.values()):
        for arm in arms if turn % 2 == 0 else reversed(arms):
            rate = next_rate(steps[arm.name], bounds)
            in_time = in_time and has_time()
            if rate is None or not in_time:
                continue
            planned = plan_at_rate(
                plans[arm.name], rate, samples=objective.samples, seed=seed + number
            )
            step = judge_run(objective, session.block(arm, number, planned), rate)
            steps[arm.name].append(step)
            number += 1
            met = "holds" if step.met else f"does not hold ({step.limited_by})"
            progress(Step(f"{arm.name}, {rate:.4g}/s: {met}", done=number, unit="step"))
        turn += 1
    return {name: _answer(objective, found, bounds) for name, found in steps.items()}


def _answer(objective: Objectives, steps: Sequence[CapacityStep], bounds: Bounds) -> Capacity:
    texts = list(objective.texts)
    if not steps:
        return Capacity(objectives=texts, reason="time was up before the first step")
    answer = settle(steps, bounds)
    if next_rate(steps, bounds) is not None:
        # Not over: what held may be luck, and what did not a hiccup.
        held = max((step.rate_per_second for step in steps if step.met), default=None)
        answer = answer._replace(
            capacity_per_second=None,
            at_least_per_second=held,
            limited_by="steps",
            reason=f"time was up after {plural(len(steps), 'run')}",
        )
    return Capacity(objectives=texts, **answer._asdict(), steps=list(steps))


def open_classes(classes: Sequence[LoadClass], objective: Objectives) -> list[LoadClass]:
    """The classes of the objective at a rate, the others of the same load as they are.

    Other open classes are left out: the search would change their rate too.
    """
    names = {item.name for item in classes}
    heads = {expression.name.partition(".")[0] for expression in objective.expressions}
    named = heads & names or names
    return [
        _at_a_rate(item, _FIRST_PER_SECOND / len(named)) if item.name in named else item
        for item in classes
        if item.name in named or item.arrivals.kind == "closed"
    ]


def _at_a_rate(item: LoadClass, rate_per_second: float) -> LoadClass:
    arrivals = Arrivals(kind="poisson", rate_per_second=rate_per_second)
    if item.http2 is not None or item.http3 is not None:
        return msgspec.structs.replace(item, arrivals=arrivals)
    return msgspec.structs.replace(
        item,
        arrivals=arrivals,
        connections=max(item.connections, _CONNECTIONS),
        connection_use="turns" if item.keepalive else "latest",
        held_connections=min(item.connections, HELD_CONNECTIONS) if item.keepalive else None,
    )
