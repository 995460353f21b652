"""Searches for the highest rate at which an objective holds, by real runs of the probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nginx_tune.documents.capacity import Capacity, CapacityStep
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.rate import plan_at_rate, total_rate
from nginx_tune.measure.proof.capacity import Bounds, next_rate, settle, so_far
from nginx_tune.measure.proof.objective import judge_run, parse_objective

LOWEST_PER_SECOND = 1.0


def search_capacity(
    plan: LoadPlan,
    objectives: Sequence[str],
    *,
    run: Callable[[LoadPlan], Measurement],
    highest_per_second: float | None = None,
    on_start: Callable[[float], None] | None = None,
    on_step: Callable[[CapacityStep], None] | None = None,
) -> Capacity:
    """The capacity of a server under an objective.

    The search starts at the plan's own rate; ``run`` measures one plan. Ctrl-C ends the search
    with the steps that there are.
    Errors: UsageError for an objective that cannot be read or a plan without a rate.
    """
    objective = parse_objective(objectives, [item.name for item in plan.classes])
    bounds = Bounds(
        first=total_rate(plan),
        lowest=LOWEST_PER_SECOND,
        highest=highest_per_second or plan.caps.rate_per_second,
    )
    steps: list[CapacityStep] = []
    runs: dict[float, Measurement] = {}
    interrupted = False
    try:
        while (rate := next_rate(steps, bounds)) is not None:
            # Another seed each time: the runs of one rate are to be independent.
            number = plan.seed + len(steps)
            planned = plan_at_rate(plan, rate, samples=objective.samples, seed=number)
            if on_start is not None:
                on_start(rate)
            measurement = run(planned)
            step = judge_run(objective, measurement, rate)
            steps.append(step)
            if step.met:
                runs[rate] = measurement
            if on_step is not None:
                on_step(step)
    except KeyboardInterrupt:
        # What the runs before found is kept.
        interrupted = True
    answer = so_far(steps) if interrupted else settle(steps, bounds)
    return Capacity(
        objectives=list(objective.texts),
        **answer._asdict(),
        steps=steps,
        measurement=runs.get(answer.at_least_per_second or 0.0),
    )
