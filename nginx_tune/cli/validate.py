"""``nginx-tune validate``: two configurations, or two builds of nginx, under the same load."""

from __future__ import annotations

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
    lab_option,
    nginx_options,
    parse_duration,
    prefix_option,
    store_option,
    weaker_sandbox_option,
)
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.host.paths import absolute_path
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.writer import SCREEN_FORMATS

if TYPE_CHECKING:
    from nginx_tune.documents.scenario import ExperimentSpec, MultiplexedVersion, SiteLoad

_SHORTEST_RUN_SECONDS = 0.1
_FEWEST_PAIRS = 6
"""Minimum number of pairs that can show a difference (docs/proof.md)."""
_MOST_SECONDS = 600.0


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
    "--workload", metavar="FILE", help="Use the rate and popularity of a workload ('learn', JSON)."
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
@output_options(*SCREEN_FORMATS)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> ExitStatus:
    """Compare two configurations, or two builds of nginx, in a sandbox, with gates.

    Both run in turn under the same load: a hot file, random files, a location without a file, and
    every other server and location. Their namespaces are isolated: stubs replace upstream servers,
    no request leaves the machine, and nothing outside is written. After an interruption, the runs
    so far are judged and stored. Requests have no bodies, which would change the state of real
    applications.
    """
    asked = _Asked(**{name: options.pop(name) for name in _Asked._fields})
    _refuse_contradictions(ctx, asked, options["against_nginx"])

    from nginx_tune.cli.experiments import Wanted, run_experiment  # noqa: PLC0415  # the lab

    wanted = Wanted(**options)
    spec = _spec_of(asked)
    lab = read_lab_plan(asked.lab, asked.scale, replays=asked.manifest is not None)
    if asked.search:
        from nginx_tune.cli.searching import search  # noqa: PLC0415  # also loads plan

        facts = asked.lab if asked.lab and asked.lab.endswith(".json") else None
        return search(ctx, spec, lab, wanted, workload_path=asked.workload, facts_path=facts)
    return run_experiment(ctx, spec, lab, wanted, settle_only=asked.dry_run)


def _refuse_contradictions(ctx: click.Context, asked: _Asked, against_nginx: str | None) -> None:
    """Raise UsageError for options that contradict each other."""
    if asked.conf and asked.conf_option:
        raise UsageError("CONF is given twice", hint="name it once, with or without -c")
    refuse_document(asked.candidate)
    if asked.plan_path and (asked.candidate or asked.against):
        raise UsageError("--plan names both configurations", hint="leave CONF and --against out")
    if asked.search:
        _refuse_beside_search(asked, against_nginx)
    elif not (asked.plan_path or asked.candidate or against_nginx):
        raise UsageError("no candidate configuration", hint="nginx-tune validate CONF")
    if asked.starts and not asked.lab:
        raise UsageError("--starts needs --lab", hint="the memory of this machine is not changed")
    given = ctx.get_parameter_source("speed")
    if asked.manifest is None and given is click.core.ParameterSource.COMMANDLINE:
        raise UsageError("--speed needs --manifest", hint="it is the speed of recorded requests")
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


def _refuse_beside_search(asked: _Asked, against_nginx: str | None) -> None:
    """Raise UsageError for an option that a search cannot use."""
    others = {
        "--against": asked.against,
        "--against-nginx": against_nginx,
        "--objective": asked.objectives,
        "--self-check": asked.self_check,
        "--dry-run": asked.dry_run,
    }
    if name := next((name for name, value in others.items() if value), ""):
        raise UsageError(
            f"{name} cannot be combined with --search",
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
            f"{asked.manifest}: not a manifest", hint="nginx-tune learn LOG --manifest FILE"
        )
    return replay_load(
        absolute_path(asked.manifest), speed=asked.speed, hashed=head.get("paths") != "kept"
    )
