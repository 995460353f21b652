"""A stored validation judged again: what was measured stays, what is asked of it may change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.validation import Validation
from nginx_tune.measure.proof.interim import alpha_of
from nginx_tune.measure.proof.statistics import ALPHA
from nginx_tune.measure.proof.verdict import judge


def rejudge(
    validation: Validation, *, requires: Sequence[str] = (), primary_metric: str | None = None
) -> Validation:
    """A stored validation with other gates, or by another metric.

    Errors: as those of ``judge``.
    """
    before = validation.verdict
    gates = list(requires) or validation.requires
    verdict = judge(
        validation.measurements,
        primary_metric=primary_metric or before.primary_metric,
        requires=gates,
        noise_floor=validation.noise_floor or None,
        alpha=ALPHA if before.stopped == "pairs" else alpha_of(before.looks),
        environment=before.environment,
        accept_worse=before.accept_worse,
        lost=before.lost,
    )
    verdict = msgspec.structs.replace(
        verdict, looks=before.looks, stopped=before.stopped, capacities=before.capacities
    )
    return msgspec.structs.replace(validation, verdict=verdict, requires=gates)
