"""Runs a scenario: lab, facts, decisions before the run, both arms, verdict and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from nginx_tune.audit.storage import outermost
from nginx_tune.decide import decide
from nginx_tune.decide.model.pool import MAX_THREADS_ALL_WORKERS
from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ArmText, Scenario, ScenarioRun
from nginx_tune.documents.site import Site
from nginx_tune.documents.verdict import Environment, Stopped
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.arm import Arm
from nginx_tune.experiment.experiment import Experiment, run_pairs
from nginx_tune.experiment.modules import MODULE_INSIDE
from nginx_tune.experiment.scenario.arms import (
    ERROR_LOG,
    ArmWriter,
    arm_of_prediction,
    find_programs,
    has_no_pools,
    make_arms,
    specs_of,
    tried_decisions,
    tries_chunk,
)
from nginx_tune.experiment.scenario.cached import share_out
from nginx_tune.experiment.scenario.checks import check_scenario
from nginx_tune.experiment.scenario.workload import declare_workers, plan_workload
from nginx_tune.experiment.session import ORIGIN, Session
from nginx_tune.experiment.view import build_prefix, merge_views, plan_places, plan_view
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.load.classes import ServedFile, hot_urls, plan_load
from nginx_tune.measure.proof.blocks import select_pairs
from nginx_tune.measure.proof.claim_rounds import with_rounds
from nginx_tune.measure.proof.gates import judge_claims
from nginx_tune.measure.proof.predictions import judge_predictions
from nginx_tune.measure.proof.verdict import judge
from nginx_tune.nginx.binary import read_build
from nginx_tune.nginx.choice import runnable_program
from nginx_tune.nginx.lab.environment import LOOPBACK
from nginx_tune.nginx.lab.walls import Walls, given_up
from nginx_tune.observe.causes.arms import find_arm_causes

PORT = 8080
MEMORY_URL = "/healthz"
HOST = "localhost"


E = TypeVar("E", Scenario, ExperimentSpec)

_MOST_WORKERS = 64
"""Of one arm."""


class Shorter(NamedTuple):
    """What a caller may change of a scenario's length; None leaves it."""

    pairs: int | None = None
    duration_seconds: float | None = None
    seed: int | None = None

    def of(self, experiment: E) -> E:
        """The same experiment, of the size that the caller wants."""
        changes = {key: value for key, value in self._asdict().items() if value is not None}
        return msgspec.structs.replace(experiment, **changes)


def run_scenario(
    scenario: Scenario,
    *,
    nginx: Nginx,
    write_arm: ArmWriter,
    shorter: Shorter | None = None,
    progress: Callable[[str], None],
) -> ScenarioRun:
    """Run a scenario on this machine.

    Interrupted (KeyboardInterrupt), it judges what was measured so far and says so; before the
    first block the interruption is raised on.
    Errors: UsageError for a scenario that cannot be run (before anything runs),
            MissingToolError without nginx, UndecidedError when nginx lacks what the scenario
            needs, MissingPermissionError when the lab needs root.
    Side effects: everything happens inside the walls and is gone afterwards.
    """
    scenario = (shorter or Shorter()).of(scenario)
    check_scenario(scenario)
    binary = check_nginx(nginx, scenario)
    programs = find_programs(scenario, nginx, binary)
    others = sorted({*programs.of_arm.values()} - {binary})
    builds = [nginx.flags, *(read_build(LiveHost(), program).flags for program in others)]
    covers = [
        place
        for flags in builds
        for place in plan_places(flags, [ERROR_LOG], prefix=build_prefix(flags, None))
    ]
    views = [plan_view([], flags, None, directory="/") for flags in builds]
    # What the arms will be is decided in the lab.
    view = msgspec.structs.replace(
        merge_views(views), threads=MAX_THREADS_ALL_WORKERS, workers=_MOST_WORKERS
    )
    measurements: list[Measurement] = []
    stopped: Stopped = "pairs"
    try:
        with Walls(MODULE_INSIDE, progress=progress) as walls:
            session = Session(
                walls,
                scenario.lab,
                binary=binary,
                covers=outermost(covers),
                view=view,
            )
            facts = declare_workers(
                session.facts(_mounts(scenario.lab)), scenario.lab.worker_processes
            )
            site = session.place(asked_site(scenario))
            prediction = decide(facts, plan_workload(scenario, facts), site=site)
            served = _served(session, scenario)
            arms = make_arms(
                scenario,
                programs,
                prediction,
                write_arm=write_arm,
                site=site,
                cached=[file.url for file in _cached(session, scenario)],
            )
            experiment = _experiment(scenario, arms, served)
            run_pairs(
                session,
                experiment,
                pairs=scenario.pairs,
                seed=scenario.seed,
                progress=progress,
                into=measurements,
            )
    except KeyboardInterrupt:
        if not measurements:
            raise
        stopped = "interrupted"
        progress("interrupted: what was measured so far is judged")
    predicted_arm = arm_of_prediction(scenario)
    environment = Environment(
        nginx_version=nginx.version,
        nginx_binary=nginx.binary,
        nginx_choice=nginx.choice,
        kernel_release=facts.kernel.release,
        lab=scenario.lab.name,
        starts=scenario.starts if scenario.lab.disks else None,
        weaker_walls=[*given_up()],
        tcp=session.tcp,
        seed=scenario.seed,
    )
    return ScenarioRun(
        name=scenario.name,
        facts=facts,
        prediction=prediction,
        predictions=judge_predictions(
            prediction,
            select_pairs(measurements, len(arms), against="baseline", arm=predicted_arm),
            arm=predicted_arm,
            tried=tried_decisions(scenario, prediction),
            claims=scenario.claims,
            without_pools=has_no_pools(scenario.baseline),
            chunk_in_loop=tries_chunk(scenario, prediction),
        ),
        claims=with_rounds(
            judge_claims(
                scenario.claims, measurements, decisions=prediction, left_out=programs.left_out
            ),
            scenario.claims,
            measurements,
        ),
        verdict=msgspec.structs.replace(
            judge(
                select_pairs(measurements, len(arms), against="baseline", arm="candidate"),
                primary_metric=scenario.primary_metric,
                environment=environment,
                decisions=prediction,
            ),
            stopped=stopped,
        ),
        causes=find_arm_causes(measurements),
        arms=[
            *(ArmText(arm=arm.name, nginx_conf=_text_of(arm)) for arm in arms),
            *(
                ArmText(arm=name, nginx_conf="", left_out=why)
                for name, why in programs.left_out.items()
            ),
        ],
        measurements=measurements,
    )


def asked_site(scenario: Scenario) -> Site:
    """What the decisions are told of the site, before the lab places it."""
    mounts = _mounts(scenario.lab)
    return Site(
        listen=[f"127.0.0.1:{PORT}"],
        server_names=[HOST],
        roots=mounts or ["/srv"],
        root_prefixes=_prefixes(scenario.lab),
        hot_locations=scenario.hot_locations,
    )


def _mounts(lab: Lab) -> list[str]:
    return [disk.mount for disk in lab.disks if not disk.spare]


def _experiment(
    scenario: Scenario, arms: Sequence[Arm], served: Mapping[str, Sequence[ServedFile]]
) -> Experiment:
    """Each arm with what it is asked; its own classes where it has some."""
    own = {name: spec.classes for name, spec in specs_of(scenario).items() if spec.classes}
    files = served.get(ORIGIN) or served[scenario.lab.disks[0].name]
    target = Target(address=LOOPBACK, port=PORT, host=HOST)
    plans = {}
    primed = []
    for arm in arms:
        classes = own.get(arm.name, scenario.classes)
        plans[arm.name] = plan_load(
            classes, files, target=target, memory_url=MEMORY_URL, files_of=served
        )
        primed.append(msgspec.structs.replace(arm, prime=hot_urls(classes, files)))
    return Experiment(primed, plans).for_seconds(
        warmup=scenario.warmup_seconds, duration=scenario.duration_seconds
    )


def _prefixes(lab: Lab) -> list[str]:
    """The URL prefix of each disk's files, where the names of the files tell the disks apart."""
    named = [{f"/{item.prefix}" for item in lab.data if item.disk == d.name} for d in lab.disks]
    found = [next(iter(prefixes)) for prefixes in named if len(prefixes) == 1]
    several = len(lab.disks) > 1
    return found if several and "/" not in found and len(set(found)) == len(lab.disks) else []


def check_nginx(nginx: Nginx, scenario: Scenario) -> str:
    """The binary, when it can run the scenario."""
    binary = runnable_program(nginx)
    built = {flag.partition("=")[0] for flag in nginx.flags}
    missing = [flag for flag in scenario.needs if flag not in built]
    if missing:
        raise UndecidedError(
            f"{binary} is built without {', '.join(missing)}, which {scenario.name} needs",
            hint="install a package of nginx that has it and name it with --nginx",
        )
    return binary


def _served(session: Session, scenario: Scenario) -> dict[str, list[ServedFile]]:
    """The files of each disk, by name; every mount is a root of the site. The origin's too."""
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


def _text_of(arm: Arm) -> str:
    return "" if arm.conduct.stand_in != "none" else arm.conf_text or ""
