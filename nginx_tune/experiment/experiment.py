"""An experiment: variants, their loads, and the interleaved runs that a verdict rests on.

The capacities of the variants under an objective are searched in turn (ABBA), one run at one rate
each, so that drift of the host affects both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan
from nginx_tune.documents.measurement import Capacity, CapacityStep, Measurement
from nginx_tune.documents.progress import Glance, Step
from nginx_tune.documents.units import plural
from nginx_tune.experiment.operations import Variant
from nginx_tune.experiment.session import Session
from nginx_tune.measure.load.classes import (
    HELD_CONNECTIONS,
    LOWEST_PER_SECOND,
    for_seconds,
    plan_at_rate,
    total_rate,
)
from nginx_tune.measure.proof.by_seconds import warmup_seconds, with_steadiness
from nginx_tune.measure.proof.latency import read_statistic, sample_of
from nginx_tune.measure.proof.objective import (
    Bounds,
    Objectives,
    judge_run,
    next_rate,
    parse_objective,
    settle,
)
from nginx_tune.measure.proof.runs import count_valid, schedule_rounds

_MOST_ROUNDS = 1000
_LEAST_TRIAL_SECONDS = 10.0
GoesOn = Callable[[Sequence[Measurement]], bool]
"""A test whether to run another round after these runs."""


class Experiment(NamedTuple):
    """Variants and their loads, made from the input of ``validate`` or ``scenario run``."""

    variants: Sequence[Variant]
    """The variants, with the baseline first."""
    plans: Mapping[str, LoadPlan]
    """The load of each variant by its name; each round sets the seed."""

    def for_seconds(self, *, warmup: float, duration: float) -> Experiment:
        """The experiment with other lengths of warm-up and measured time."""
        plans = {
            name: for_seconds(plan, warmup=warmup, duration=duration)
            for name, plan in self.plans.items()
        }
        return self._replace(plans=plans)

    def against_itself(self) -> Experiment:
        """The experiment with the baseline as both variants, to measure the noise."""
        baseline = self.variants[0]
        variants = [
            msgspec.structs.replace(baseline, name=variant.name) for variant in self.variants[:2]
        ]
        return Experiment(
            variants, {variant.name: self.plans[baseline.name] for variant in variants}
        )


def run_pairs(
    session: Session,
    experiment: Experiment,
    *,
    pairs: int,
    seed: int,
    progress: Callable[[str], None],
    goes_on: GoesOn | None = None,
    into: list[Measurement] | None = None,
    check: Callable[[Measurement], None] | None = None,
) -> list[Measurement]:
    """Make interleaved runs; returns their measurements in order.

    A round has one run of each variant: with two, a pair. All runs of a round make the same
    requests at the same times (one seed). The order within rounds is random (ABBA/BAAB for two), so
    that drift of the host affects all variants. A round discarded by its flags is repeated, up to
    ``pairs`` times in all; flags do not depend on the result, so this does not bias it.

    ``goes_on`` decides after each round instead of ``pairs``. Each measurement is added to ``into``
    at once, so that an interruption loses none. ``check`` raises an error for a run after which
    further runs are useless.
    """
    by_name = {variant.name: variant for variant in experiment.variants}
    names = list(by_name)
    total = None if goes_on else pairs * len(names)
    progress(Step("the first run", done=0, total=total, unit="run", live=True))
    measurements: list[Measurement] = [] if into is None else into
    most = _MOST_ROUNDS if goes_on else 2 * pairs
    for number, name in enumerate(schedule_rounds(names, most, seed)):
        if number % len(names) == 0 and not (
            goes_on(measurements) if goes_on else count_valid(measurements, names) < pairs
        ):
            break
        plan = msgspec.structs.replace(experiment.plans[name], seed=seed + number // len(names))
        measurement = with_steadiness(session.run(by_name[name], number, plan))
        if check is not None:
            check(measurement)
        measurements.append(measurement)
        if total is not None and (number + 1) % len(names) == 0:
            missing = max(0, pairs - count_valid(measurements, names))
            total = number + 1 + missing * len(names)
        progress(_step(measurement, number + 1, total))
    return measurements


def find_warmup(
    session: Session,
    experiment: Experiment,
    *,
    duration: float,
    seed: int,
    progress: Callable[[str], None],
    check: Callable[[Measurement], None] | None = None,
) -> float:
    """The shortest warm-up, in seconds, after which no variant shows a trend in a trial run.

    If a trend lasts to the end of the run, the result is half of the run, and later runs are
    flagged.
    """
    duration = max(duration, _LEAST_TRIAL_SECONDS)
    trial = experiment.for_seconds(warmup=0.0, duration=duration)
    longest = 0.0
    for run in run_pairs(session, trial, pairs=1, seed=seed, progress=progress, check=check):
        cut = warmup_seconds(run)
        longest = max(longest, duration / 2 if cut is None else cut)
    # The first second is never steady: connections are made and workers wake up.
    return longest + 1.0


def _step(measurement: Measurement, number: int, total: int | None) -> Step:
    server = measurement.server
    return Step(
        f"run {number}, {measurement.variant}: {_glance(measurement)}",
        done=number,
        total=total,
        unit="run",
        variant=measurement.variant or "",
        classes={
            name: Glance(
                item.requests_per_second,
                read_statistic([sample_of(item, "response_seconds")], "p99").value,
                sum(item.errors.values()),
            )
            for name, item in measurement.classes.items()
        },
        overflows=server.pool_overflow or 0,
    )


def _glance(measurement: Measurement) -> str:
    rates = [
        f"{name} {item.requests_per_second:.4g}/s" for name, item in measurement.classes.items()
    ]
    return ", ".join(rates + [f"[{flag}]" for flag in measurement.flags])


_FIRST_PER_SECOND = 100.0
_CONNECTIONS = 512
"""Connections of an open-loop class, so many that arrivals never wait for a free one."""


def search_variants(
    session: Session,
    experiment: Experiment,
    objectives: Sequence[str],
    *,
    seed: int,
    has_time: Callable[[], bool],
    progress: Callable[[str], None],
) -> dict[str, Capacity]:
    """The capacity of each variant, or its bounds so far when time is up.

    Errors: UsageError for an objective that cannot be read or names no class.
    """
    variants = experiment.variants
    names = [item.name for plan in experiment.plans.values() for item in plan.classes]
    objective = parse_objective(objectives, list(dict.fromkeys(names)))
    plans = {
        name: msgspec.structs.replace(plan, classes=open_classes(plan.classes, objective))
        for name, plan in experiment.plans.items()
    }
    any_plan = next(iter(plans.values()))
    bounds = Bounds(total_rate(any_plan), LOWEST_PER_SECOND, any_plan.caps.rate_per_second)
    steps: dict[str, list[CapacityStep]] = {variant.name: [] for variant in variants}
    number = turn = 0
    in_time = True
    while in_time and any(next_rate(found, bounds) is not None for found in steps.values()):
        for variant in variants if turn % 2 == 0 else reversed(variants):
            rate = next_rate(steps[variant.name], bounds)
            in_time = in_time and has_time()
            if rate is None or not in_time:
                continue
            planned = plan_at_rate(
                plans[variant.name], rate, samples=objective.samples, seed=seed + number
            )
            step = judge_run(objective, session.run(variant, number, planned), rate)
            steps[variant.name].append(step)
            number += 1
            met = "holds" if step.met else f"does not hold ({step.limited_by})"
            progress(Step(f"{variant.name}, {rate:.4g}/s: {met}", done=number, unit="step"))
        turn += 1
    return {name: _answer(objective, found, bounds) for name, found in steps.items()}


def _answer(objective: Objectives, steps: Sequence[CapacityStep], bounds: Bounds) -> Capacity:
    texts = list(objective.texts)
    if not steps:
        return Capacity(objectives=texts, reason="time was up before the first step")
    answer = settle(steps, bounds)
    if next_rate(steps, bounds) is not None:
        # The search is not over, so no single run counts as proof.
        held = max((step.rate_per_second for step in steps if step.met), default=None)
        answer = answer._replace(
            capacity_per_second=None,
            at_least_per_second=held,
            limited_by="steps",
            reason=f"time was up after {plural(len(steps), 'run')}",
        )
    return Capacity(objectives=texts, **answer._asdict(), steps=list(steps))


def open_classes(classes: Sequence[LoadClass], objective: Objectives) -> list[LoadClass]:
    """The objective's classes as open loops, and the load's closed loops.

    Other open-loop classes are left out, since the search would change their rate too.
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
