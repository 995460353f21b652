"""``nginx-tune validate``: two configurations, or two builds of nginx, under the same load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from nginx_tune.cli.inputs import read_lab_plan, read_workload, refuse_document
from nginx_tune.cli.options import (
    DURATION,
    Duration,
    FiniteNumber,
    Whole,
    against_nginx_option,
    keep_run,
    lab_option,
    nginx_options,
    parse_duration,
    prefix_option,
    store_option,
    tell_choice,
    weaker_sandbox_option,
)
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.host.paths import absolute_path
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.saying import clear_progress, progress_printer, say
from nginx_tune.report.terminal.writer import screen_bytes

if TYPE_CHECKING:
    from nginx_tune.conf.tree import ConfTree
    from nginx_tune.documents.facts import Nginx
    from nginx_tune.documents.scenario import ExperimentSpec, MultiplexedVersion, SiteLoad
    from nginx_tune.documents.verdict import Verdict
    from nginx_tune.experiment.validate.validation import Sides
    from nginx_tune.host.door import Host
    from nginx_tune.nginx.lab.spec import LabPlan

_SHORTEST_RUN_SECONDS = 0.1
_FEWEST_PAIRS = 6
"""The fewest pairs that can show a difference (docs/proof.md)."""
_MOST_SECONDS = 600.0


class Wanted(NamedTuple):
    """The programs of an experiment, how its verdict is used, and where results go."""

    nginx_binary: str | None
    against_nginx: str | None
    """The baseline's nginx, if different."""
    no_store: bool
    accept_inconclusive: bool
    formats: tuple[str, ...]
    output: str | None


class _Asked(NamedTuple):
    """The options for what is compared and how, by the names of their parameters."""

    conf: str | None
    conf_option: str | None
    prefix: str | None
    against: str | None
    plan_path: str | None
    lab: str | None
    scale: float | None
    requires: tuple[str, ...]
    primary: str | None
    accept_worse: tuple[str, ...]
    accept_lost: bool
    pairs: int | None
    duration: str
    warmup: str
    starts: Literal["full", "cold"] | None
    max_time: str | None
    objectives: tuple[str, ...]
    http2: bool
    http3: bool
    manifest: str | None
    speed: float
    workload: str | None
    seed: int
    self_check: bool
    search: bool
    dry_run: bool

    @property
    def candidate(self) -> str:
        """The candidate's file; empty if the candidate is a plan or a build."""
        return self.conf or self.conf_option or ""


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The candidate (the same as CONF).")
@prefix_option
@click.option(
    "--against",
    metavar="CONF",
    help="The baseline; default: the configuration of the host's nginx; with --against-nginx, "
    "that of the candidate. A copy of the candidate shows the noise; the same file is "
    "refused.",
)
@click.option(
    "--plan",
    "plan_path",
    metavar="FILE",
    help="A plan ('plan -f json'): compare its configuration without and with the plan.",
)
@lab_option
@click.option(
    "--scale",
    type=FiniteNumber(0, 1, min_open=True),
    help="The share that a lab keeps: of the data and memory in its facts, or of the objects in a "
    "manifest (default: enough for about 1 GiB).",
)
@click.option(
    "--require",
    "requires",
    multiple=True,
    metavar="EXPR",
    help="A gate, e.g. 'hot.p99 <= 50ms' or 'ratio(hot.mean) <= 0.5'; may repeat.",
)
@click.option("--primary", metavar="METRIC", help="The metric that decides.")
@click.option(
    "--accept-worse",
    multiple=True,
    metavar="METRIC",
    help="A metric that may become worse, e.g. server.cpu_seconds_per_request; may repeat. Any "
    "other clearly worse metric makes the candidate worse.",
)
@click.option(
    "--accept-lost",
    is_flag=True,
    help="The candidate may serve less. Otherwise, lost addresses, names, locations and files "
    "make it worse.",
)
@click.option(
    "--pairs",
    type=Whole(1, 100),
    help="Number of pairs of runs, one run of each configuration; default: until the verdict is "
    "clear.",
)
@click.option(
    "--duration", default="8s", show_default=True, type=DURATION, metavar="TIME", help="Of a run."
)
@click.option(
    "--warmup",
    default="2s",
    show_default=True,
    type=Duration("auto"),
    metavar="TIME|auto",
    help="Load before each measured run; auto waits until it is steady.",
)
@click.option(
    "--starts",
    type=click.Choice(["full", "cold"]),
    help="A lab's data in memory at the start of a run: as much as fits, as after days of service "
    "(the default), or none, as after a boot.",
)
@click.option(
    "--max-time",
    type=DURATION,
    metavar="TIME",
    help="Measure until the verdict is clear, at most for TIME; the first look comes after --pairs "
    "pairs, and 7 at least. Default without --pairs: 10min.",
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="EXPR",
    help="Also search the highest rate at which each configuration meets it: 'hot.p99 <= 50ms'; "
    "may repeat.",
)
@click.option(
    "--http2",
    is_flag=True,
    help="Use HTTP/2, at a server whose files both configurations offer over HTTP/2 and TLS; for "
    "other servers HTTP/2 if they support it, else HTTP/1.1.",
)
@click.option(
    "--http3",
    is_flag=True,
    help="The same over HTTP/3 (listen ... quic). Together with --http2: a class for each, "
    "hot-http2, hot-http3, ...",
)
@click.option(
    "--manifest",
    metavar="FILE",
    help="Replay the requests that 'learn --manifest FILE' recorded. A lab makes files of their "
    "sizes; without a lab, the manifest needs paths (--keep-paths) of existing files.",
)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=FiniteNumber(0.01, 1000),
    help="Speed of the replay (--manifest): recorded seconds per second.",
)
@click.option(
    "--workload",
    metavar="FILE",
    help="Use the rate and popularity of a workload ('learn', JSON).",
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    type=Whole(0),
    help="Seed for the order of runs and requests.",
)
@click.option("--self-check", is_flag=True, help="Measure the noise floor first (A against A).")
@click.option(
    "--search",
    is_flag=True,
    help="Search around the recommendation of --plan, or of a plan for CONF (default: the "
    "configuration of the host's nginx): at most eight candidates in short runs, then the "
    "best against the recommendation and the current configuration, with new seeds. -f json "
    "is the plan of the best, for apply.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the complete experiment (-f toml, json) for 'scenario run'. Both configurations "
    "are started and requested once, and nothing is measured.",
)
@click.option("--accept-inconclusive", is_flag=True, help="Exit 0 for an inconclusive verdict.")
@nginx_options
@against_nginx_option
@weaker_sandbox_option
@store_option
@output_options("console", "json")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> ExitStatus:
    """Compare two configurations, or two builds of nginx, in a sandbox, with gates.

    Both run in turn under the same load: a hot file, random files, a location without a file, and
    every other server and location. Their namespaces are isolated: stubs replace upstream servers,
    no request leaves the machine, and nothing outside is written. After an interruption, the runs
    so far are judged and stored. Requests have no bodies, which would change the state of real
    applications.
    """
    wanted = Wanted(**{name: options.pop(name) for name in Wanted._fields})
    asked = _Asked(**options)
    _refuse_contradictions(ctx, asked, wanted)
    spec = _spec_of(asked)
    lab = read_lab_plan(asked.lab, asked.scale, replays=asked.manifest is not None)
    if asked.search:
        return _search(ctx, asked, spec, lab, wanted)
    return run_experiment(ctx, spec, lab, wanted, settle_only=asked.dry_run)


def _refuse_contradictions(ctx: click.Context, asked: _Asked, wanted: Wanted) -> None:
    """Raise UsageError for options that contradict each other."""
    if asked.conf and asked.conf_option:
        raise UsageError("CONF is given twice", hint="name it once, with or without -c")
    refuse_document(asked.candidate)
    if asked.plan_path and (asked.candidate or asked.against):
        raise UsageError("--plan names both configurations", hint="leave CONF and --against out")
    if asked.search:
        _refuse_beside_search(asked, wanted)
    elif not (asked.plan_path or asked.candidate or wanted.against_nginx):
        raise UsageError("no candidate configuration", hint="nginx-tune validate CONF")
    if asked.starts and not asked.lab:
        raise UsageError(
            "--starts goes with --lab", hint="the memory of this machine is not changed"
        )
    given = ctx.get_parameter_source("speed")
    if asked.manifest is None and given is click.core.ParameterSource.COMMANDLINE:
        raise UsageError(
            "--speed goes with --manifest", hint="it is the speed of recorded requests"
        )
    if parse_duration(asked.duration) < _SHORTEST_RUN_SECONDS:
        raise UsageError(
            f"--duration {asked.duration} is too short to measure anything",
            hint="the shortest is 100ms; several seconds show more",
        )
    warmup = 0.0 if asked.warmup == "auto" else parse_duration(asked.warmup)
    pair = 2 * (warmup + parse_duration(asked.duration))
    if asked.max_time is not None and parse_duration(asked.max_time) < pair:
        raise UsageError(
            f"--max-time {asked.max_time} is shorter than one pair of runs, {pair:g} s",
            hint="write a unit, such as 10min; or give a shorter --duration and --warmup",
        )


def _refuse_beside_search(asked: _Asked, wanted: Wanted) -> None:
    """Raise UsageError for an option that a search cannot use."""
    others = {
        "--against": asked.against,
        "--against-nginx": wanted.against_nginx,
        "--objective": asked.objectives,
        "--self-check": asked.self_check,
        "--dry-run": asked.dry_run,
    }
    if name := next((name for name, value in others.items() if value), ""):
        raise UsageError(
            f"{name} does not go with --search",
            hint="a search compares candidates of its own with today's configuration",
        )


def _spec_of(asked: _Asked) -> ExperimentSpec:
    from nginx_tune.documents.scenario import ExperimentSpec  # noqa: PLC0415

    return ExperimentSpec(
        baseline=asked.against or "",
        candidate=asked.candidate,
        plan=asked.plan_path or "",
        prefix=absolute_path(asked.prefix) if asked.prefix else None,
        load=_site_load(asked),
        starts=asked.starts or "full",
        scale=asked.scale,
        primary_metric=asked.primary,
        requires=[*asked.requires],
        objectives=[*asked.objectives],
        accept_worse=[*asked.accept_worse],
        accept_lost=asked.accept_lost,
        pairs=_FEWEST_PAIRS if asked.pairs is None else asked.pairs,
        warmup_seconds=None if asked.warmup == "auto" else parse_duration(asked.warmup),
        duration_seconds=parse_duration(asked.duration),
        max_seconds=_most_seconds(asked),
        self_check=asked.self_check,
        seed=asked.seed,
    )


def _most_seconds(asked: _Asked) -> float | None:
    """The time limit for a verdict in seconds; None for a fixed number of pairs."""
    if asked.max_time is None:
        return _MOST_SECONDS if asked.pairs is None or asked.search else None
    return parse_duration(asked.max_time)


def _site_load(asked: _Asked) -> SiteLoad:
    """The load: the requests of the options, else a hot file, random files and other locations."""
    from nginx_tune.experiment.validate.site_load import over_protocols  # noqa: PLC0415

    protocols: list[MultiplexedVersion] = []
    if asked.http2:
        protocols.append("2")
    if asked.http3:
        protocols.append("3")
    return over_protocols(_load_named(asked), protocols)


def _load_named(asked: _Asked) -> SiteLoad:
    from nginx_tune.experiment.validate.site_load import (  # noqa: PLC0415
        default_load,
        replay_load,
        workload_load,
    )
    from nginx_tune.measure.load.target import read_manifest_head  # noqa: PLC0415

    if asked.manifest and asked.workload:
        raise UsageError("--manifest and --workload exclude each other")
    if asked.workload:
        return workload_load(read_workload(asked.workload))
    if asked.manifest is None:
        return default_load()
    head = read_manifest_head(Path(asked.manifest))
    if head is None:
        raise UsageError(
            f"{asked.manifest}: no manifest", hint="nginx-tune learn LOG --manifest FILE"
        )
    return replay_load(
        absolute_path(asked.manifest),
        speed=asked.speed,
        hashed=head.get("paths") != "kept",
    )


def _search(
    ctx: click.Context, asked: _Asked, spec: ExperimentSpec, lab: LabPlan | None, wanted: Wanted
) -> ExitStatus:
    """Run a search, store the comparison with the current configuration, and print the answer."""
    from msgspec.structs import replace  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.cli.searching import read_search, write_search  # noqa: PLC0415
    from nginx_tune.experiment.store import Clock  # noqa: PLC0415
    from nginx_tune.experiment.validate.search import run_search  # noqa: PLC0415
    from nginx_tune.experiment.validate.validation import Sides  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_linked, read_nginx  # noqa: PLC0415

    clock, host = Clock(), LiveHost()
    meant = _configuration_meant(spec)
    nginx, _ = read_nginx(host, binary=wanted.nginx_binary, conf_path=meant, to_run=True)
    is_facts = asked.lab is not None and asked.lab.endswith(".json")
    with as_interrupt():
        inputs = read_search(
            ctx,
            host,
            spec,
            nginx=nginx,
            nginx_binary=wanted.nginx_binary,
            workload=asked.workload,
            facts=asked.lab if is_facts else None,
            lab=lab,
        )
        tell_choice(ctx, nginx)
        prefix = _started_with(inputs.unchanged.prefix, nginx, (inputs.today.path,))
        build = read_linked(host, nginx)
        sides = Sides(inputs.today, inputs.today, lab, (prefix, prefix), (build, build))
        found = run_search(spec, sides, inputs.variants, progress=progress_printer(ctx))
    if not wanted.no_store:
        name = spec.plan or inputs.today.path
        keep_run(ctx, found.validation, kind="validate", name=name, clock=clock)
    write_search(inputs, found, wanted.formats, wanted.output)
    verdict = found.validation.verdict
    if found.search.reference == found.search.answer == "today" and verdict.outcome == "worse":
        verdict = replace(verdict, outcome="no_difference")  # only the winner is the answer
    return _status(verdict, wanted)


def run_experiment(
    ctx: click.Context,
    spec: ExperimentSpec,
    lab: LabPlan | None,
    wanted: Wanted,
    *,
    settle_only: bool = False,
) -> ExitStatus:
    """Run an experiment, store it and print the verdict; or print the dry run."""
    from msgspec.structs import replace  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.experiment.store import Clock  # noqa: PLC0415
    from nginx_tune.experiment.validate.validation import look_at, run_validation  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.report.verdict import (  # noqa: PLC0415
        render_experiment,
        short_of_outcome,
        verdict_screen,
    )

    clock = Clock()
    host = LiveHost()
    meant = _configuration_meant(spec)
    nginx, _ = read_nginx(host, binary=wanted.nginx_binary, conf_path=meant, to_run=True)
    other = nginx
    if wanted.against_nginx:
        other, _ = read_nginx(host, binary=wanted.against_nginx, conf_path=meant, to_run=True)
    with as_interrupt():
        sides = _read_sides(host, spec, lab, (other, nginx))
        tell_choice(ctx, nginx)
        progress = progress_printer(ctx)

        def warn(text: str) -> None:
            if not ctx.obj["quiet"]:
                clear_progress()
                say(f"warning: {text}")

        if not settle_only and (short := short_of_outcome(spec)):
            warn(f"too few pairs for an outcome: {short}")
        if settle_only:
            settled = replace(
                look_at(spec, sides, progress=progress),
                baseline="" if spec.plan else sides.baseline.path,
                candidate="" if spec.plan else sides.candidate.path,
                plan=absolute_path(spec.plan) if spec.plan else "",
            )
            pages = {
                "toml": lambda: render_experiment(settled).encode(),
                "json": lambda: encode(settled),
            }
            write_result(pages, wanted.formats, wanted.output)
            return ExitStatus.OK
        validation = run_validation(spec, sides, progress=progress, warn=warn)
    if not wanted.no_store:
        keep_run(
            ctx,
            validation,
            kind="validate",
            name=spec.plan or spec.candidate or sides.candidate.path,
            clock=clock,
        )
    verdict = validation.verdict
    renderers = {
        "console": lambda: screen_bytes(verdict_screen(verdict), wanted.formats, wanted.output),
        "json": lambda: encode(verdict),
    }
    write_result(renderers, wanted.formats, wanted.output)
    return _status(verdict, wanted)


def _status(verdict: Verdict, wanted: Wanted) -> ExitStatus:
    from nginx_tune.measure.proof.verdict import verdict_status  # noqa: PLC0415

    if verdict.stopped == "interrupted":
        return ExitStatus.INTERRUPTED
    return verdict_status(verdict, accept_inconclusive=wanted.accept_inconclusive)


def _configuration_meant(spec: ExperimentSpec) -> str | None:
    """The absolute path of the configuration by which nginx is chosen; None if none is named.

    Also None for a plan from a pipe, which can be read only once, and is read later.
    """
    from nginx_tune.cli.configurations import believed_plan, full_path  # noqa: PLC0415

    if spec.plan:
        is_here = Path(spec.plan).is_file()
        return believed_plan(spec.plan).conf_path if is_here else None
    named = spec.baseline or spec.candidate
    return full_path(named, spec.prefix) if named else None


def _read_sides(
    host: Host, spec: ExperimentSpec, lab: LabPlan | None, builds: tuple[Nginx, Nginx]
) -> Sides:
    """The two sides of an experiment; ``builds`` run the baseline and the candidate.

    If no baseline is named, it is the configuration of the host's nginx; with two builds, the
    candidate's. If no candidate is named, it is the baseline's configuration.
    """
    from nginx_tune.cli.configurations import (  # noqa: PLC0415
        full_path,
        host_configuration,
        read_configuration,
        read_plan,
        read_planned,
    )
    from nginx_tune.experiment.validate.validation import Sides  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_linked  # noqa: PLC0415
    from nginx_tune.nginx.subject import ConfigurationFiles, own_prefix  # noqa: PLC0415

    prefix = spec.prefix
    planned: Mapping[str, bytes] = {}
    trees: tuple[ConfTree, ConfTree]
    names: tuple[str, ...]
    if spec.plan:
        plan = read_plan(spec.plan)
        names = (plan.conf_path,)
        own = prefix or own_prefix(builds[1], *names)
        before, after, planned = read_planned(
            plan, spec.plan, ConfigurationFiles(host), prefix=own, to_run=True
        )
        trees, prefix = (before, after), plan.prefix or prefix
    else:
        same = spec.candidate if builds[0] is not builds[1] else ""
        baseline = spec.baseline or same or host_configuration(builds[1])
        sides = (baseline, spec.candidate or baseline)
        # A candidate next to the running nginx's file is meant to be started as that nginx is.
        names = tuple(full_path(name, prefix) for name in sides)
        before, after = (
            read_configuration(
                *(host, name, prefix),
                default_prefix=own_prefix(build, *names),
                nginx=build,
                to_run=True,
            )
            for name, build in zip(sides, builds, strict=True)
        )
        if builds[0] is builds[1] and _is_one_file(*names) and after.complete:
            raise UsageError(
                f"{sides[1]} is both the candidate and the baseline: nothing would be compared",
                hint="name another file with --against; for the noise of this host, --self-check",
            )
        trees = (before, after)
    return Sides(
        baseline=trees[0],
        candidate=trees[1],
        lab=lab,
        prefixes=(
            _started_with(prefix, builds[0], names),
            _started_with(prefix, builds[1], names),
        ),
        builds=(read_linked(host, builds[0]), read_linked(host, builds[1])),
        planned=planned,
    )


def _is_one_file(one: str, other: str) -> bool:
    """True if both paths are the same name in the same directory; copies and links are not."""
    return (
        Path(one).name == Path(other).name
        and Path(one).parent.resolve() == Path(other).parent.resolve()
    )


def _started_with(prefix: str | None, nginx: Nginx, names: tuple[str, ...]) -> str | None:
    """The value of ``-p``: the option, or the running master's prefix if it is not the build's.

    The master counts only if it runs one of the files in ``names``.
    """
    from nginx_tune.nginx.subject import own_prefix  # noqa: PLC0415

    if prefix:
        return prefix
    own = own_prefix(nginx, *names)
    return None if own == nginx.prefix else own
