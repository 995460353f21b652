"""A validation: two configurations measured in the sandbox, judged, and kept.

The number of pairs is fixed, or pairs are added until the result is settled or time is up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from nginx_tune.conf.secrets import redact_tree
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.lab import Start
from nginx_tune.documents.loadplan import LoadClass, Target
from nginx_tune.documents.measurement import Capacity, Measurement
from nginx_tune.documents.progress import part_of
from nginx_tune.documents.run import Validation
from nginx_tune.documents.scenario import ExperimentSpec, VariantText
from nginx_tune.documents.verdict import Environment, Stopped, Verdict
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.experiment import find_warmup, run_pairs, search_variants
from nginx_tune.experiment.operations import MODULE_INSIDE, Question
from nginx_tune.experiment.session import bytes_below, has_files, shown
from nginx_tune.experiment.validate.replay import expected_lengths
from nginx_tune.experiment.validate.sampled import unexpected
from nginx_tune.experiment.validate.site import SiteFiles, SitePair, read_site
from nginx_tune.experiment.validate.workbench import Rival, Workbench, open_workbench
from nginx_tune.experiment.validate.workbench_notes import packet_warnings
from nginx_tune.measure.proof.runs import pair_runs, unjudged_classes
from nginx_tune.measure.proof.statistics import ALPHA
from nginx_tune.measure.proof.verdict import (
    FIRST_ALPHA,
    Look,
    judge,
    measure_noise_floor,
    meets_stopping_rule,
    next_look,
)
from nginx_tune.nginx.binary import LinkedBuild, build_differences
from nginx_tune.nginx.lab.sandbox import Sandbox, given_up
from nginx_tune.nginx.lab.spec import LabPlan


@dataclass
class Measured:
    """The measurements so far, which an interruption leaves in place."""

    looking: Looking | None = None
    """The stopping rule, if pairs are added until the comparison is settled."""
    runs: list[Measurement] = field(default_factory=list)
    self_check: list[Measurement] = field(default_factory=list)
    """Runs of the baseline against itself."""
    capacities: dict[str, Capacity] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Parts that do not run as configured."""
    lost: list[str] = field(default_factory=list)
    """Addresses that only the baseline serves."""
    warnings: list[str] = field(default_factory=list)
    """Reasons why the figures may not hold outside of the sandbox."""
    lab: str = "none"
    tcp: dict[str, str] = field(default_factory=dict)
    starts: Start | None = None
    interrupted: bool = False

    def take_workbench(self, workbench: Workbench, site: SitePair, *, accepts_lost: bool) -> None:
        """Record what the workbench says about the sandbox, before anything is measured."""
        self.notes = workbench.notes
        if accepts_lost:
            self.notes += [f"accepted: no longer served: {place}" for place in workbench.lost]
        else:
            self.lost = workbench.lost
        self.warnings = packet_warnings(workbench.session.lab, site.trees)
        if workbench.unreached:
            self.warnings = [workbench.unreached, *self.warnings]
        self.lab = workbench.session.lab.name
        self.tcp = workbench.session.tcp
        if workbench.session.lab.disks:
            self.starts = workbench.experiment.variants[0].conduct.starts


def conclude(
    measured: Measured,
    *,
    trees: Sequence[ConfTree],
    primary_metric: str,
    requires: Sequence[str],
    accept_worse: Sequence[str],
    builds: tuple[LinkedBuild, LinkedBuild],
    seed: int,
) -> Validation:
    """The validation; ``trees`` and ``builds`` are the baseline's and the candidate's."""
    nginx = builds[1].nginx
    floor = measure_noise_floor(measured.self_check)
    looking = measured.looking
    if measured.interrupted and looking is not None:
        looking.look_now(measured.runs)
    look = looking.look if looking else None
    # A user may interrupt because of what is on the screen, which makes this one of several looks.
    first = FIRST_ALPHA if measured.interrupted else ALPHA
    verdict = judge(
        measured.runs,
        primary_metric=primary_metric,
        requires=requires,
        noise_floor=floor,
        alpha=look.alpha if look else first,
        accept_worse=accept_worse,
        lost=measured.lost,
        environment=Environment(
            nginx_version=nginx.version,
            nginx_binary=nginx.binary,
            nginx_choice=nginx.choice,
            build_differences=build_differences(*builds),
            kernel_release=os.uname().release,
            lab=measured.lab,
            starts=measured.starts,
            seed=seed,
            weaker_sandbox=[*given_up()],
            tcp=measured.tcp,
            differences=[*measured.notes, *_refused(measured.runs)],
        ),
    )
    verdict = msgspec.structs.replace(
        verdict,
        warnings=[*measured.warnings, *verdict.warnings],
        looks=look.number if look else 1,
        stopped=_why_stopped(measured),
        seconds_per_pair=looking.pair_seconds(measured.runs) if looking else None,
        capacities=measured.capacities,
    )
    return Validation(
        verdict=verdict,
        requires=list(requires),
        noise_floor=floor,
        variants=[
            VariantText(variant=name, nginx_conf=_dump(tree))
            for name, tree in zip(("baseline", "candidate"), trees, strict=True)
        ],
        measurements=measured.runs,
        self_check=measured.self_check,
    )


def _refused(runs: Sequence[Measurement]) -> list[str]:
    """A note on the system calls that the sandbox refused nginx."""
    calls = sorted({call for run in runs for call in run.server.refused_calls})
    return [f"the sandbox refused nginx {', '.join(calls)}"] if calls else []


def _why_stopped(measured: Measured) -> Stopped:
    if measured.interrupted:
        return "interrupted"
    if measured.looking is None:
        return "pairs"
    return "settled" if measured.looking.is_over else "time"


def _dump(tree: ConfTree) -> str:
    """The configuration in the form of ``nginx -T``, without its secrets."""
    return "\n".join(
        f"# configuration file {shown(file)}:\n{data.decode(errors='replace')}"
        for file, data in redact_tree(tree).items()
    )


_SHARE_OF_PAIRS = 0.5
"""The share of the time for pairs if the rest is for the search for a capacity."""


class Sides(NamedTuple):
    """Baseline and candidate, with the host and the builds that run them."""

    baseline: ConfTree
    candidate: ConfTree
    lab: LabPlan | None
    """The host to emulate; None for this machine as it is."""
    prefixes: tuple[str | None, str | None]
    """nginx's ``-p`` for either; None for the build's own."""
    builds: tuple[LinkedBuild, LinkedBuild]
    planned: Mapping[str, bytes] = {}
    """The bytes of the candidate's files that replace the baseline's, by path."""
    title: str = ""
    """The comparison in lists of runs."""


def run_validation(
    spec: ExperimentSpec,
    sides: Sides,
    *,
    progress: Callable[[str], None],
    warn: Callable[[str], None],
) -> Validation:
    """Measure both configurations in interleaved runs, and judge them.

    ``warn`` gets what makes the measurement useless, before the first run.
    On KeyboardInterrupt the runs so far are judged and the result is marked; before the first run
    the interruption is raised.
    Errors: ConfigurationError for a tree that cannot be parsed or that nginx rejects,
            UndecidedError if there is nothing to load or a tool is missing, UsageError for a
            gate on an unknown metric (before any load).
    """
    deadline = Deadline(spec.max_seconds)
    site = read_sides(spec, sides)
    share = _SHARE_OF_PAIRS if spec.objectives else 1.0
    metric = site.primary_metric
    measured = Measured()
    try:
        with Sandbox(MODULE_INSIDE, progress=progress) as sandbox:
            workbench = open_sides(sandbox, site, spec, sides)
            metric = workbench.primary_metric
            if spec.max_seconds is not None:
                looking = Looking(metric, deadline, first_pairs=spec.pairs, share=share)
                measured.looking = looking
            measured.take_workbench(workbench, site, accepts_lost=spec.accept_lost)
            if workbench.unreached:
                warn(workbench.unreached)
            _measure(workbench, spec, measured, deadline, progress)
    except KeyboardInterrupt:
        if not measured.runs:
            raise
        measured.interrupted = True
        progress("interrupted: judging the pairs so far")
    return conclude(
        measured,
        trees=site.trees,
        primary_metric=metric,
        requires=spec.requires,
        accept_worse=spec.accept_worse,
        builds=sides.builds,
        seed=spec.seed,
    )


def look_at(
    spec: ExperimentSpec, sides: Sides, *, progress: Callable[[str], None]
) -> ExperimentSpec:
    """The experiment that a validation would run, with the findings of a first look at both sides.

    Both configurations are started in the sandbox and every place is requested once; nothing is
    measured. Errors: those of ``run_validation``.
    """
    site = read_sides(spec, sides)
    with Sandbox(MODULE_INSIDE, progress=progress) as sandbox:
        workbench = open_sides(sandbox, site, spec, sides)
        lab = workbench.session.lab
    loaded = {item.name for item in workbench.experiment.plans["candidate"].classes}
    load = msgspec.structs.replace(
        site.load, classes=[item for item in site.load.classes if item.name in loaded]
    )
    unreached = [workbench.unreached] if workbench.unreached else []
    # The files of recorded requests follow from the manifest.
    data = [files for files in lab.data if not (site.load.manifest and files.sizes)]
    return msgspec.structs.replace(
        spec,
        load=load,
        lab=msgspec.structs.replace(lab, data=data) if sides.lab else None,
        primary_metric=workbench.primary_metric,
        found=[*build_differences(*sides.builds), *unreached, *workbench.notes],
        lost=workbench.lost,
    )


def read_sides(spec: ExperimentSpec, sides: Sides) -> SitePair:
    """The site of both sides. Errors: those of ``read_site``."""
    return read_site(
        sides.baseline,
        sides.candidate,
        spec.load,
        files=SiteFiles(has_files, bytes_below, makes_files=sides.lab is not None),
        builds=(sides.builds[0].nginx, sides.builds[1].nginx),
        primary_metric=spec.primary_metric,
        requires=spec.requires,
        objectives=spec.objectives,
        accept_worse=spec.accept_worse,
        planned=sides.planned,
    )


def open_sides(
    sandbox: Sandbox,
    site: SitePair,
    spec: ExperimentSpec,
    sides: Sides,
    rivals: Sequence[Rival] = (),
) -> Workbench:
    """Both sides and the rivals in the sandbox. Errors: those of ``open_workbench``."""
    return open_workbench(
        sandbox,
        site,
        lab=sides.lab,
        prefixes=sides.prefixes,
        scale=spec.scale,
        starts=spec.starts,
        rivals=rivals,
    )


_URLS_AT_ONCE = 1000
_MOST_URLS = 20_000


class FirstRuns:
    """A check of each variant's first run, which ends the validation if a class cannot be judged.

    Its URLs are requested one by one to name the one that fails. If all succeed this time, the
    failures may have been an accident of that run, and the validation goes on.
    """

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._seen: set[str] = set()

    def __call__(self, run: Measurement) -> None:
        """Check a run if it is its variant's first.

        Errors: UndecidedError.
        """
        variant = run.variant or ""
        if variant in self._seen:
            return
        self._seen.add(variant)
        plan = self._workbench.experiment.plans[variant]
        for name, reason in unjudged_classes(run).items():
            item = next(item for item in plan.classes if item.name == name)
            if fault := self._fault(variant, item, item.target or plan.target):
                raise UndecidedError(
                    f"{name}: {reason} with the {variant}: {fault}",
                    hint="remove that request from the manifest, or record it again"
                    if item.paths.manifest
                    else f"leave out '{name}': edit the load that --dry-run prints, and run it "
                    "with 'scenario run'",
                )

    def _fault(self, variant: str, item: LoadClass, target: Target) -> str:
        """The first URL of a class with an unexpected answer, and this answer; otherwise empty.

        The result is also empty for HTTP/3, and for HTTP/2 without TLS, which single requests do
        not support.
        """
        if item.http3 is not None or (item.http2 is not None and target.tls is None):
            return ""
        variants = {v.name: v for v in self._workbench.experiment.variants}
        lengths = dict(islice(expected_lengths(item), _MOST_URLS))
        all_urls = list(lengths)
        for start in range(0, len(all_urls), _URLS_AT_ONCE):
            urls = all_urls[start : start + _URLS_AT_ONCE]
            answers = self._workbench.session.survey(
                variants[variant], [Question(target=target, url=url) for url in urls]
            )
            for url, answer in zip(urls, answers, strict=True):
                if answer.was_asked and (fault := unexpected(item, lengths[url], answer)):
                    return f"{target.host} {shown(url)} {fault}"
        return ""


def _measure(
    workbench: Workbench,
    spec: ExperimentSpec,
    measured: Measured,
    deadline: Deadline,
    progress: Callable[[str], None],
) -> None:
    """Find the warm-up, check the baseline against itself, run the pairs, search the capacities."""
    session, experiment = workbench.session, workbench.experiment
    first = FirstRuns(workbench)
    duration, warmup = spec.duration_seconds, spec.warmup_seconds
    trial_runs = 0 if warmup is not None else len(experiment.variants)
    own_runs = len(experiment.variants) * spec.pairs
    check_runs = own_runs if spec.self_check else 0
    # With a stopping rule the number of pairs is not known in advance.
    total = None if measured.looking else trial_runs + check_runs + own_runs
    if warmup is None:
        warmup = find_warmup(
            session,
            experiment,
            duration=duration,
            seed=spec.seed,
            progress=part_of(progress, 0, total),
            check=first,
        )
    experiment = experiment.for_seconds(warmup=warmup, duration=duration)
    if spec.self_check:
        progress("self-check: the baseline against itself")
        measured.self_check = run_pairs(
            session,
            experiment.against_itself(),
            pairs=spec.pairs,
            seed=spec.seed + 1000,
            progress=part_of(progress, trial_runs, total),
            check=FirstRuns(workbench),
        )
    run_pairs(
        session,
        experiment,
        pairs=spec.pairs,
        seed=spec.seed,
        progress=part_of(progress, trial_runs + check_runs, total),
        goes_on=measured.looking.wants_more if measured.looking else None,
        into=measured.runs,
        check=first,
    )
    if spec.objectives:
        measured.capacities = search_variants(
            session,
            experiment,
            spec.objectives,
            seed=spec.seed,
            has_time=lambda: deadline.has(warmup + duration),
            progress=progress,
        )


class Deadline:
    """A span of time from now."""

    def __init__(self, seconds: float | None) -> None:
        self._start = time.monotonic()
        self._seconds = seconds

    @property
    def used_seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._start

    def has(self, seconds: float, *, share: float = 1.0) -> bool:
        """True if this many seconds are left of the span, or of a share of it."""
        return self._seconds is None or self.used_seconds + seconds <= share * self._seconds


class Looking:
    """The stopping rule: looks at the pairs so far, and decides if another pair is run."""

    def __init__(
        self, primary_metric: str, deadline: Deadline, *, first_pairs: int, share: float
    ) -> None:
        self._metric = primary_metric
        self._deadline = deadline
        self._share = share
        self._began = deadline.used_seconds
        self._next = next_look(None, first_pairs=first_pairs)
        self._fewest = self._next.pairs
        self.look: Look | None = None
        """The last look taken."""
        self.verdict: Verdict | None = None
        """The verdict at the last look, by the primary metric and the cost."""
        self.is_over = False
        """True if the comparison was settled, not just out of time."""

    def wants_more(self, measurements: Sequence[Measurement]) -> bool:
        """True if another pair is to be run; takes a look if one is due, or if time is up."""
        pairs = len(pair_runs(measurements).counting_for(self._metric).pairs)
        if pairs >= self._next.pairs:
            self.is_over = self._take(measurements)
        if self.is_over:
            return False
        pair_seconds = self.pair_seconds(measurements)
        if pair_seconds is None or self._deadline.has(pair_seconds, share=self._share):
            return True
        if self.look is None or pairs > self.look.pairs:
            self.is_over = self._take(measurements, pairs=pairs)
        return False

    def pair_seconds(self, measurements: Sequence[Measurement]) -> float | None:
        """The mean time of a pair so far; None before the first."""
        measured = len(measurements) // 2
        return (self._deadline.used_seconds - self._began) / measured if measured else None

    def look_now(self, measurements: Sequence[Measurement]) -> Look:
        """The final look of an interrupted validation; a new look if pairs came after the last."""
        pairs = len(pair_runs(measurements).counting_for(self._metric).pairs)
        if self.look is None or pairs > self.look.pairs:
            self._take(measurements, pairs=pairs)
        return self.look or self._next

    def _take(self, measurements: Sequence[Measurement], *, pairs: int | None = None) -> bool:
        self.look = self._next if pairs is None else self._next._replace(pairs=pairs)
        self._next = next_look(self._next)
        verdict: Verdict = judge(
            measurements, primary_metric=self._metric, metrics=[], alpha=self.look.alpha
        )
        self.verdict = verdict
        # The primary metric and, where it is judged, the cost.
        judged = [metric for metric in verdict.metrics if metric.judged]
        # The narrow interval of a few pairs is one of low confidence.
        is_enough = self.look.pairs >= self._fewest
        return verdict.outcome == "worse" or (is_enough and all(map(meets_stopping_rule, judged)))
