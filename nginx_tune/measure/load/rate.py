"""The same load at another rate; pure."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.loadplan import LoadClass, LoadPlan
from nginx_tune.errors import UsageError

_LONGEST_SECONDS = 120.0
"""A step is not made longer than this for the sake of its samples."""

_DRAIN_SECONDS = 2.0
"""After a step; what is unanswered then counts as failed."""


def total_rate(plan: LoadPlan) -> float:
    """The rate of all classes whose rate a search can change.

    Errors: UsageError when there is none, or when one follows steps or a manifest.
    """
    moving = [item for item in plan.classes if item.arrivals.kind in ("steps", "replay")]
    if moving:
        raise UsageError(
            f"class {moving[0].name}: a search needs one rate, not {moving[0].arrivals.kind}"
        )
    rate = sum(item.arrivals.rate_per_second or 0.0 for item in plan.classes if _is_open(item))
    if rate <= 0:
        raise UsageError(
            "a search for the capacity needs a class with a rate",
            hint="kind poisson or constant, not closed",
        )
    return rate


def plan_at_rate(plan: LoadPlan, rate_per_second: float, *, samples: int, seed: int) -> LoadPlan:
    """The plan with its open-loop classes at so many requests a second together.

    Each keeps its share; closed loops stay as they are. The measured time is long enough for
    ``samples`` requests of the rarest class, within bounds.
    """
    factor = rate_per_second / total_rate(plan)
    classes = [
        msgspec.structs.replace(
            item,
            arrivals=msgspec.structs.replace(
                item.arrivals, rate_per_second=(item.arrivals.rate_per_second or 0.0) * factor
            ),
        )
        if _is_open(item)
        else item
        for item in plan.classes
    ]
    rarest = min(item.arrivals.rate_per_second or 0.0 for item in classes if _is_open(item))
    needed = min(samples / rarest, _LONGEST_SECONDS) if rarest > 0 else 0.0
    return msgspec.structs.replace(
        plan,
        classes=classes,
        duration_seconds=max(plan.duration_seconds, needed),
        drain_seconds=min(plan.drain_seconds, _DRAIN_SECONDS),
        seed=seed,
    )


def _is_open(item: LoadClass) -> bool:
    return item.arrivals.kind in ("constant", "poisson")
