"""Runs load plans with the load probe."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.asked_paths import plain_manifests
from nginx_tune.measure.load.process import Progress, RunInterrupted, find_probe, run_plan


class ProbeInterrupted(KeyboardInterrupt):  # it is a KeyboardInterrupt
    """Ctrl-C during a run; ``measurement`` is what the probe had seen by then, if it said."""

    def __init__(self, measurement: Measurement | None) -> None:
        super().__init__()
        self.measurement = measurement


def run_probe(
    plan: LoadPlan,
    *,
    on_progress: Progress | None = None,
    cpus: Sequence[int] | None = None,
    histogram_log: str | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Measurement:
    """What one run of a load plan saw.

    ``on_progress`` gets one object a second; ``cpus`` replaces the plan's; ``histogram_log`` is
    a file for each second's histograms, in the form that HdrHistogram's tools read;
    ``is_over`` ends the run early, with what was measured by then.
    Errors: UsageError when the probe refuses plan or target, UndecidedError when it fails or
            does not end, MissingToolError without a probe, ProbeInterrupted on Ctrl-C.
    """
    if cpus is not None:
        plan = msgspec.structs.replace(plan, cpus=list(cpus))
    waits = max((plan.start_at_unix_seconds or 0.0) - time.time(), 0.0)
    seconds = waits + plan.warmup_seconds + plan.duration_seconds + plan.drain_seconds
    try:
        with plain_manifests(plan) as readable:
            return run_plan(
                readable,
                Measurement,
                name="load probe",
                seconds=seconds,
                arguments=["--hlog", histogram_log] if histogram_log else [],
                on_progress=on_progress,
                is_over=is_over,
            )
    except RunInterrupted as interrupted:
        seen = interrupted.result
        raise ProbeInterrupted(seen if isinstance(seen, Measurement) else None) from None


__all__ = ["ProbeInterrupted", "Progress", "find_probe", "run_probe"]
