"""A scenario: decisions for its lab, variants, runs, and the judgement of its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from nginx_tune.audit.storage import outermost
from nginx_tune.decide.engine import decide
from nginx_tune.decide.model.pool import MAX_THREADS_ALL_WORKERS
from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.loadplan import Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import (
    ExperimentSpec,
    ExtraVariant,
    Scenario,
    ScenarioRun,
    UntriedClaims,
    VariantSpec,
    VariantText,
)
from nginx_tune.documents.site import Site
from nginx_tune.documents.verdict import Environment, Stopped, Verdict
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.experiment.experiment import Experiment, run_pairs
from nginx_tune.experiment.operations import MODULE_INSIDE, Conduct, Variant
from nginx_tune.experiment.scenario.files import check_scenario
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
from nginx_tune.experiment.view import (
    HEADER_WORDS,
    build_prefix,
    merge_views,
    plan_places,
    plan_view,
)
from nginx_tune.host.door import Missing, attempt
from nginx_tune.host.live import LiveHost
from nginx_tune.host.programs import ProgramError, find_program
from nginx_tune.measure.load.classes import ServedFile, hot_urls, plan_load
from nginx_tune.measure.proof.gates import judge_claims, judge_predictions, with_rounds
from nginx_tune.measure.proof.runs import select_pairs
from nginx_tune.measure.proof.verdict import judge
from nginx_tune.nginx.binary import find_series, read_build, runnable_program
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.operation import LOOPBACK
from nginx_tune.nginx.lab.sandbox import Sandbox, given_up
from nginx_tune.observe.causes.naming import find_variant_causes
from nginx_tune.observe.connections import LOG_NAME, LOG_WORDS

ERROR_LOG = "/var/log/nginx/error.log"
CONNECTIONS_LOG = "/var/log/nginx/connections.log"


class VariantWriter(Protocol):
    """The generator of a variant's nginx.conf."""

    def __call__(
        self, spec: VariantSpec, decisions: Decisions, *, site: Site, kind: Kind, error_log: str
    ) -> str:
        """The text of the configuration."""


class Programs(NamedTuple):
    """The nginx of each variant, and the variants left out, with the reasons."""

    of_variant: Mapping[str, str]
    left_out: Mapping[str, str]


def specs_of(scenario: Scenario) -> dict[str, VariantSpec]:
    """The variants by name, baseline and candidate first."""
    return {
        "baseline": scenario.baseline,
        "candidate": scenario.candidate,
        **{variant.name: variant for variant in scenario.variants},
    }


def find_programs(scenario: Scenario, nginx: Nginx, binary: str) -> Programs:
    """The nginx programs of the variants that this machine can run.

    Errors: MissingToolError or UndecidedError if a variant that is not optional cannot run.
    """
    found: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, spec in specs_of(scenario).items():
        try:
            _check_sysctls(spec)
            found[name] = _program(spec, nginx, binary)
        except (MissingToolError, UndecidedError) as error:
            if not isinstance(spec, ExtraVariant) or not spec.optional:
                raise
            left_out[name] = error.message
    return Programs(found, left_out)


def untried_claims(
    scenarios: Sequence[Scenario], nginx: Nginx, *, is_root: bool
) -> Iterator[UntriedClaims]:
    """The claims that cannot be tried on this host, by scenario and reason."""
    for scenario in scenarios:
        every = [claim.name for claim in scenario.claims]
        if scenario.lab.disks and not is_root:
            reason = "emulated disks need root"
            yield UntriedClaims(scenario=scenario.name, claims=every, reason=reason)
            continue
        try:
            programs = find_programs(scenario, nginx, check_nginx(nginx, scenario))
        except UndecidedError as error:
            yield UntriedClaims(scenario=scenario.name, claims=every, reason=error.message)
            continue
        by_reason: dict[str, list[str]] = {}
        for claim in scenario.claims:
            variant = next(
                (
                    variant
                    for variant in (claim.variant, claim.against)
                    if variant in programs.left_out
                ),
                "",
            )
            if variant:
                by_reason.setdefault(programs.left_out[variant], []).append(claim.name)
        for reason, names in by_reason.items():
            yield UntriedClaims(scenario=scenario.name, claims=names, reason=reason)


def _program(spec: VariantSpec, nginx: Nginx, binary: str) -> str:
    if not spec.series or (nginx.version or "").startswith(f"{spec.series}."):
        return binary
    program = find_series(spec.series)
    if program is None:
        raise MissingToolError(
            f"nginx {spec.series} is not installed",
            hint=f"get it from Debian's archive with tools/nginx-matrix {spec.series}",
        )
    try:
        return find_program(str(program))
    except ProgramError as error:
        raise UndecidedError(f"{program}: {error}") from None


def _check_sysctls(spec: VariantSpec) -> None:
    for name in spec.sysctls:
        file = PurePosixPath("/proc/sys", *name.split("."))
        if isinstance(attempt(LiveHost().real_path, str(file)), Missing):
            raise UndecidedError(f"this kernel has no sysctl {name}")


def make_variants(
    scenario: Scenario,
    programs: Programs,
    prediction: Decisions,
    *,
    write_variant: VariantWriter,
    site: Site,
    cached: Sequence[str] = (),
) -> list[Variant]:
    """The variants to run, with their configurations; ``cached``: URLs that fill the caches."""
    workers = scenario.lab.worker_processes
    always = [_workers(workers), _worker_header()] if workers > 1 else []
    always += _connections_log() if scenario.counts_connections else []

    def text(spec: VariantSpec, more: Sequence[Setting] = ()) -> str:
        forced = msgspec.structs.replace(spec, settings=[*always, *spec.settings, *more])
        own = _without_tls(site) if spec.cleartext else site
        return write_variant(forced, prediction, site=own, kind=scenario.kind, error_log=ERROR_LOG)

    variants = []
    for name, spec in specs_of(scenario).items():
        if name not in programs.of_variant:
            continue
        texts = [text(spec, [_workers(count)]) for count in _reloaded(spec)]
        conduct = Conduct(
            binary=programs.of_variant[name],
            stand_in=spec.stand_in,
            workers=workers,
            sysctls=spec.sysctls,
            reload_texts=texts,
            reload_seconds=spec.reload.every_seconds if spec.reload else 1.0,
            starts=scenario.starts,
            traces=scenario.traces,
            drain_seconds=scenario.drain_seconds,
            cached=list(cached),
            counts_opens=scenario.counts_opens,
            warm_names=spec.warm_names,
            ahead=True,
            cleartext=spec.cleartext,
            connections_log=CONNECTIONS_LOG if scenario.counts_connections else None,
        )
        variants.append(
            Variant(
                name=name,
                conf_path=f"/run/nginx-tune/{name}/nginx.conf",
                conf_text=texts[0] if texts else text(spec),
                error_log=ERROR_LOG,
                conduct=conduct,
            )
        )
    return variants


def _without_tls(site: Site) -> Site:
    listens = [" ".join(word for word in item.split() if word != "ssl") for item in site.listen]
    return msgspec.structs.replace(site, tls=None, listen=listens)


def _reloaded(spec: VariantSpec) -> list[int]:
    return spec.reload.worker_processes if spec.reload else []


def _workers(count: int) -> Setting:
    return Setting(context="main", directive="worker_processes", args=[str(count)])


def _worker_header() -> Setting:
    """A response header with the worker's id, except in locations with headers of their own."""
    return Setting(context="http", directive="add_header", args=list(HEADER_WORDS))


def _connections_log() -> list[Setting]:
    """The settings of an access log that records the worker of each connection."""
    return [
        Setting(context="http", directive="log_format", args=[LOG_NAME, *LOG_WORDS]),
        Setting(context="server", directive="access_log", args=[CONNECTIONS_LOG, LOG_NAME]),
    ]


def variant_of_prediction(scenario: Scenario) -> str:
    """The variant that tries the decisions: the first with all decisions, else the candidate."""
    specs = specs_of(scenario)
    decided = (name for name, spec in specs.items() if spec.decisions == "recommended")
    return next((name for name in decided if name != "baseline"), "candidate")


def tried_decisions(scenario: Scenario, prediction: Decisions) -> set[str]:
    """The decisions by which ``variant_of_prediction`` differs from the baseline.

    Thread pools that the variant forces on count as tried if they are the decided ones. They also
    count if none were decided: the forecast is then of their cost.
    """
    variant, baseline = specs_of(scenario)[variant_of_prediction(scenario)], scenario.baseline
    tried: set[str] = set()
    for decision in prediction.decisions:
        pools = [setting.args for setting in decision.settings if setting.directive == "aio"]
        forced = _forced(variant, "aio")
        if forced is not None and forced != _forced(baseline, "aio"):
            is_tried = decision.id == "thread-pools" and (not pools or forced in pools)
        else:
            is_tried = variant.decisions == "recommended" != baseline.decisions and bool(
                decision.settings
            )
        if is_tried and _forced(baseline, "aio") is None:
            tried.add(decision.id)
    return tried


def tries_chunk(scenario: Scenario, prediction: Decisions) -> bool:
    """True if a variant without thread pools forces the decided chunk size."""
    variant = specs_of(scenario)[variant_of_prediction(scenario)]
    forced = _forced(variant, "sendfile_max_chunk")
    decided = [
        setting.args
        for decision in prediction.decisions
        for setting in decision.settings
        if setting.directive == "sendfile_max_chunk"
    ]
    return has_no_pools(variant) and forced is not None and forced in decided


def has_no_pools(spec: VariantSpec) -> bool:
    """True if a variant certainly has no thread pools."""
    return spec.decisions == "none" and _forced(spec, "aio") is None and spec.stand_in == "none"


def _forced(spec: VariantSpec, directive: str) -> list[str] | None:
    return next((setting.args for setting in spec.settings if setting.directive == directive), None)


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


def check_nginx(nginx: Nginx, scenario: Scenario) -> str:
    """The program's path. Errors: UndecidedError if it lacks a module that the scenario needs."""
    binary = runnable_program(nginx)
    built = {flag.partition("=")[0] for flag in nginx.flags}
    missing = [flag for flag in scenario.needs if flag not in built]
    if missing:
        raise UndecidedError(
            f"{binary} is built without {', '.join(missing)}, which {scenario.name} needs",
            hint="install an nginx that has it, and name it with --nginx",
        )
    return binary


def _served(session: Session, scenario: Scenario) -> dict[str, list[ServedFile]]:
    """The files to load, by disk and for the origin; paths are below a disk's mount, the root."""
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
