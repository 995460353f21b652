"""A scenario: decisions for its lab, variants, runs, and the judgement of its claims."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from nginx_tune.audit.storage import outermost
from nginx_tune.decide.engine import decide
from nginx_tune.decide.model.pool import MAX_THREADS_ALL_WORKERS
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.loadplan import Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ExperimentSpec, Scenario, ScenarioRun, VariantText
from nginx_tune.documents.verdict import Environment, Stopped, Verdict
from nginx_tune.experiment.experiment import Experiment, run_pairs
from nginx_tune.experiment.operations import MODULE_INSIDE, Variant
from nginx_tune.experiment.scenario.files import check_scenario
from nginx_tune.experiment.scenario.variants import (
    ERROR_LOG,
    Programs,
    VariantWriter,
    check_nginx,
    find_programs,
    has_no_pools,
    make_variants,
    specs_of,
    tried_decisions,
    tries_chunk,
    variant_of_prediction,
)
from nginx_tune.experiment.scenario.workload import (
    HOST,
    PORT,
    declare_workers,
    declared_site,
    mounts_of,
    plan_workload,
    share_out,
)
from nginx_tune.experiment.session import ORIGIN, Session
from nginx_tune.experiment.view import build_prefix, merge_views, plan_places, plan_view
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.load.classes import ServedFile, hot_urls, plan_load
from nginx_tune.measure.proof.gates import judge_claims, judge_predictions, with_rounds
from nginx_tune.measure.proof.runs import select_pairs
from nginx_tune.measure.proof.verdict import judge
from nginx_tune.nginx.binary import read_build
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.operation import LOOPBACK
from nginx_tune.nginx.lab.sandbox import Sandbox, given_up
from nginx_tune.observe.causes.naming import find_variant_causes

MEMORY_URL = "/healthz"


E = TypeVar("E", Scenario, ExperimentSpec)

_MOST_WORKERS = 64
"""Bound on the workers of a variant."""


class Shorter(NamedTuple):
    """Overrides of an experiment's length and seed; None keeps the experiment's value."""

    pairs: int | None = None
    duration_seconds: float | None = None
    seed: int | None = None

    def of(self, experiment: E) -> E:
        """The experiment with the overrides."""
        changes = {key: value for key, value in self._asdict().items() if value is not None}
        return msgspec.structs.replace(experiment, **changes)


class _Prepared(NamedTuple):
    """The facts of a lab's host, the decisions for it, and the experiment that tries them."""

    facts: Facts
    prediction: Decisions
    experiment: Experiment


def run_scenario(
    scenario: Scenario,
    *,
    nginx: Nginx,
    write_variant: VariantWriter,
    shorter: Shorter | None = None,
    progress: Callable[[str], None],
) -> ScenarioRun:
    """Run a scenario on this machine.

    On KeyboardInterrupt the runs so far are judged and the result is marked; before the first run
    the interruption is raised.
    Errors: UsageError for a scenario that cannot be run (before any load), MissingToolError without
            nginx, UndecidedError if nginx lacks what the scenario needs, MissingPermissionError if
            the lab needs root.
    Side effects: all of them are inside the sandbox and end with it.
    """
    scenario = (shorter or Shorter()).of(scenario)
    check_scenario(scenario)
    binary = check_nginx(nginx, scenario)
    programs = find_programs(scenario, nginx, binary)
    covers, view = _host_needs(nginx, sorted({*programs.of_variant.values()} - {binary}))
    measurements: list[Measurement] = []
    stopped: Stopped = "pairs"
    try:
        with Sandbox(MODULE_INSIDE, progress=progress) as sandbox:
            session = Session(sandbox, scenario.lab, binary=binary, covers=covers, view=view)
            prepared = _prepare(session, scenario, programs, write_variant)
            run_pairs(
                session,
                prepared.experiment,
                pairs=scenario.pairs,
                seed=scenario.seed,
                progress=progress,
                into=measurements,
            )
    except KeyboardInterrupt:
        if not measurements:
            raise
        stopped = "interrupted"
        progress("interrupted: judging the pairs so far")
    environment = _environment(scenario, nginx, prepared.facts, session.tcp)
    verdict = judge(
        _pairs_with("candidate", prepared, measurements),
        primary_metric=scenario.primary_metric,
        environment=environment,
        decisions=prepared.prediction,
    )
    return _result(
        scenario,
        prepared,
        measurements,
        verdict=msgspec.structs.replace(verdict, stopped=stopped),
        left_out=programs.left_out,
    )


def _host_needs(nginx: Nginx, others: Sequence[str]) -> tuple[list[str], HostNeeds]:
    """The directories that the variants' builds write to, and the part of the host they see."""
    builds = [nginx.flags, *(read_build(LiveHost(), program).flags for program in others)]
    covers = [
        place
        for flags in builds
        for place in plan_places(flags, [ERROR_LOG], prefix=build_prefix(flags, None))
    ]
    view = merge_views([plan_view([], flags, None, directory="/") for flags in builds])
    # The variants are not known yet: they depend on the lab's facts.
    view = msgspec.structs.replace(view, threads=MAX_THREADS_ALL_WORKERS, workers=_MOST_WORKERS)
    return outermost(covers), view


def _prepare(
    session: Session, scenario: Scenario, programs: Programs, write_variant: VariantWriter
) -> _Prepared:
    """Make the decisions for the lab's host before any load, and write the variants."""
    facts = session.facts(mounts_of(scenario.lab))
    facts = declare_workers(facts, scenario.lab.worker_processes)
    site = session.place(declared_site(scenario))
    prediction = decide(facts, plan_workload(scenario, facts), site=site)
    served = _served(session, scenario)
    variants = make_variants(
        scenario,
        programs,
        prediction,
        write_variant=write_variant,
        site=site,
        cached=[file.url for file in _cached(session, scenario)],
    )
    return _Prepared(facts, prediction, _experiment(scenario, variants, served))


def _environment(
    scenario: Scenario, nginx: Nginx, facts: Facts, tcp: dict[str, str]
) -> Environment:
    return Environment(
        nginx_version=nginx.version,
        nginx_binary=nginx.binary,
        nginx_choice=nginx.choice,
        kernel_release=facts.kernel.release,
        lab=scenario.lab.name,
        starts=scenario.starts if scenario.lab.disks else None,
        weaker_sandbox=[*given_up()],
        tcp=tcp,
        seed=scenario.seed,
    )


def _pairs_with(
    variant: str, prepared: _Prepared, measurements: Sequence[Measurement]
) -> list[Measurement]:
    return select_pairs(
        measurements, len(prepared.experiment.variants), against="baseline", variant=variant
    )


def _result(
    scenario: Scenario,
    prepared: _Prepared,
    measurements: list[Measurement],
    *,
    verdict: Verdict,
    left_out: Mapping[str, str],
) -> ScenarioRun:
    """Judge predictions and claims, and assemble the result."""
    prediction = prepared.prediction
    predicted_variant = variant_of_prediction(scenario)
    return ScenarioRun(
        name=scenario.name,
        facts=prepared.facts,
        prediction=prediction,
        predictions=judge_predictions(
            prediction,
            _pairs_with(predicted_variant, prepared, measurements),
            variant=predicted_variant,
            tried=tried_decisions(scenario, prediction),
            claims=scenario.claims,
            without_pools=has_no_pools(scenario.baseline),
            chunk_in_loop=tries_chunk(scenario, prediction),
        ),
        claims=with_rounds(
            judge_claims(scenario.claims, measurements, decisions=prediction, left_out=left_out),
            scenario.claims,
            measurements,
        ),
        verdict=verdict,
        causes=find_variant_causes(measurements),
        variants=[
            *(
                VariantText(variant=variant.name, nginx_conf=_text_of(variant))
                for variant in prepared.experiment.variants
            ),
            *(
                VariantText(variant=name, nginx_conf="", left_out=why)
                for name, why in left_out.items()
            ),
        ],
        measurements=measurements,
    )


def _experiment(
    scenario: Scenario, variants: Sequence[Variant], served: Mapping[str, Sequence[ServedFile]]
) -> Experiment:
    """The variants with their loads: their own classes if they have any, else the scenario's."""
    own = {name: spec.classes for name, spec in specs_of(scenario).items() if spec.classes}
    files = served.get(ORIGIN) or served[scenario.lab.disks[0].name]
    target = Target(address=LOOPBACK, port=PORT, host=HOST)
    plans = {}
    primed = []
    for variant in variants:
        classes = own.get(variant.name, scenario.classes)
        plans[variant.name] = plan_load(
            classes, files, target=target, memory_url=MEMORY_URL, files_of=served
        )
        primed.append(msgspec.structs.replace(variant, prime=hot_urls(classes, files)))
    return Experiment(primed, plans).for_seconds(
        warmup=scenario.warmup_seconds, duration=scenario.duration_seconds
    )


def _served(session: Session, scenario: Scenario) -> dict[str, list[ServedFile]]:
    """The files to load, by disk and for the origin; paths are relative to the mount of a disk."""
    if scenario.cached_files:
        new = session.files[ORIGIN][scenario.cached_files :]
        return {ORIGIN: new} | share_out(scenario.lab, _cached(session, scenario), host=HOST)
    served = {ORIGIN: session.files[ORIGIN]} if ORIGIN in session.files else {}
    return served | {
        disk.name: [
            ServedFile(file.url.removeprefix(disk.mount), file.bytes)
            for file in session.files[disk.name]
        ]
        for disk in scenario.lab.disks
    }


def _cached(session: Session, scenario: Scenario) -> list[ServedFile]:
    return session.files.get(ORIGIN, [])[: scenario.cached_files]


def _text_of(variant: Variant) -> str:
    return "" if variant.conduct.stand_in != "none" else variant.conf_text or ""
