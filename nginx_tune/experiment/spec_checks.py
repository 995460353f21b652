"""Whether an experiment can be run as it is written, said before anything runs; pure."""

from __future__ import annotations

from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.errors import UsageError

_MOST_PAIRS = 100


def check_experiment(spec: ExperimentSpec, source: str) -> None:
    """Nothing for one that can be run. Errors: UsageError that names the file and the field."""
    names = [item.name for item in spec.load.classes]
    faults = {
        "candidate: none": not (spec.candidate or spec.plan),
        "plan: it is about a configuration, so no baseline and no candidate go with it": bool(
            spec.plan and (spec.candidate or spec.baseline)
        ),
        "load.classes: none": not names,
        "load.classes: a name stands twice": len(set(names)) < len(names),
        "load.classes.source: events are those of a scenario's origin": any(
            item.source == "events" for item in spec.load.classes
        ),
        "load.classes: uploads change what they are sent to: only scenarios send them": any(
            item.source == "uploads" or item.upload is not None for item in spec.load.classes
        ),
        f"pairs: not from 1 to {_MOST_PAIRS}": not 1 <= spec.pairs <= _MOST_PAIRS,
        "duration_seconds: not above 0": spec.duration_seconds <= 0,
        "warmup_seconds: below 0": (spec.warmup_seconds or 0) < 0,
        "max_seconds: not above 0": spec.max_seconds is not None and spec.max_seconds <= 0,
        "scale: not above 0 and at most 1": spec.scale is not None and not 0 < spec.scale <= 1,
        "seed: below 0": spec.seed < 0,
    }
    for fault, stands in faults.items():
        if stands:
            raise UsageError(f"{source}: {fault}")
