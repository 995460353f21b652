"""A/B of two configurations on a scratch nginx behind the walls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.validation import Validation
from nginx_tune.lab.spec import LabPlan
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.experiment import find_warmup, run_pairs
from nginx_tune.measure.modules import MODULE_INSIDE
from nginx_tune.measure.objective import search_arms
from nginx_tune.measure.plan_site_load import SiteLoad, default_load
from nginx_tune.measure.sequential import Deadline, Looking
from nginx_tune.measure.stage import Stage, open_stage
from nginx_tune.measure.validation import Measured, conclude
from nginx_tune.measure.validation_site import read_site
from nginx_tune.nginx.choice import runnable_program

_SHARE_OF_PAIRS = 0.5
"""Of the time, when an objective's search wants the rest."""


class Plan(NamedTuple):
    """What the caller asks of a validation."""

    lab: LabPlan | None
    """Host to emulate; None runs on this machine as it is."""
    requires: Sequence[str]
    primary_metric: str | None
    pairs: int
    warmup_seconds: float | None
    """None has it found by a block of each arm."""
    duration_seconds: float
    seed: int
    self_check: bool
    prefix: str | None = None
    """nginx's ``-p``; None for the build's own."""
    max_seconds: float | None = None
    """Pairs are added until it is settled or this is over; None for just ``pairs``."""
    load: SiteLoad | None = None
    """What is asked for; None for a hot file and random ones, and every other place."""
    objectives: Sequence[str] = ()
    """What the capacity of each arm is searched under; none for no search."""
    accept_worse: Sequence[str] = ()
    """Metrics that may become worse."""
    accept_lost: bool = False
    """Whether the candidate may serve less than the baseline."""
    scale: float | None = None
    """Share of a manifest's objects that the lab has files of; None for about a GiB."""


def run_validation(
    candidate: ConfTree,
    baseline: ConfTree,
    plan: Plan,
    *,
    nginx: Nginx,
    progress: Callable[[str], None],
) -> Validation:
    """Run both configurations interleaved and judge them.

    Interrupted (KeyboardInterrupt), it judges what was measured so far and says so; before the
    first block the interruption is raised on.
    Errors: ConfigurationError for a tree that could not be parsed or that nginx rejects,
            UndecidedError when there is nothing to load or a tool is missing, UsageError for a
            gate that names an unknown metric (before anything runs).
    """
    binary = runnable_program(nginx)
    deadline = Deadline(plan.max_seconds)
    site = read_site(
        baseline,
        candidate,
        plan.load or default_load(),
        nginx=nginx,
        primary_metric=plan.primary_metric,
        requires=plan.requires,
        objectives=plan.objectives,
        accept_worse=plan.accept_worse,
    )
    # A search for the capacity has the other half of the time.
    share = _SHARE_OF_PAIRS if plan.objectives else 1.0
    looking = Looking(site.primary_metric, deadline, first_pairs=plan.pairs, share=share)
    measured = Measured(looking=looking if plan.max_seconds is not None else None)
    try:
        with Walls(MODULE_INSIDE, progress=progress) as walls:
            stage = open_stage(
                walls, site, binary, lab=plan.lab, prefix=plan.prefix, scale=plan.scale
            )
            measured.notes = stage.notes
            if plan.accept_lost:
                measured.notes += [f"accepted: no longer served: {one}" for one in stage.lost]
            else:
                measured.lost = stage.lost
            measured.lab = stage.session.lab.name
            _measure(stage, plan, measured, deadline, progress)
    except KeyboardInterrupt:
        if not measured.blocks:
            raise
        measured.interrupted = True
        progress("interrupted: what was measured so far is judged")
    return conclude(
        measured,
        trees=site.trees,
        primary_metric=site.primary_metric,
        requires=plan.requires,
        accept_worse=plan.accept_worse,
        nginx=nginx,
        seed=plan.seed,
    )


def _measure(
    stage: Stage,
    plan: Plan,
    measured: Measured,
    deadline: Deadline,
    progress: Callable[[str], None],
) -> None:
    session, experiment = stage.session, stage.experiment
    duration, warmup = plan.duration_seconds, plan.warmup_seconds
    if warmup is None:
        warmup = find_warmup(
            session, experiment, duration=duration, seed=plan.seed, progress=progress
        )
    experiment = experiment.for_seconds(warmup=warmup, duration=duration)
    if plan.self_check:
        progress("self-check: the baseline against itself")
        measured.checked = run_pairs(
            session,
            experiment.against_itself(),
            pairs=plan.pairs,
            seed=plan.seed + 1000,
            progress=progress,
        )
    run_pairs(
        session,
        experiment,
        pairs=plan.pairs,
        seed=plan.seed,
        progress=progress,
        goes_on=measured.looking.wants_more if measured.looking else None,
        into=measured.blocks,
    )
    if plan.objectives:
        measured.capacities = search_arms(
            session,
            experiment,
            plan.objectives,
            seed=plan.seed,
            has_time=lambda: deadline.has(warmup + duration),
            progress=progress,
        )
