"""``nginx-tune validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from nginx_tune.cli.inputs import read_workload, refuse_document
from nginx_tune.cli.nginx_choice import against_nginx_option, nginx_options
from nginx_tune.cli.numbers import DURATION, Duration, FiniteNumber, Whole
from nginx_tune.cli.options import lab_option, parse_duration, prefix_option, weaker_walls_option
from nginx_tune.cli.storing import store_option
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.host.climbing import absolute_path
from nginx_tune.report.terminal.output import output_options

if TYPE_CHECKING:
    from nginx_tune.documents.experiment import SiteLoad


_SHORTEST_BLOCK_SECONDS = 0.1


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The candidate (the same as CONF).")
@prefix_option
@click.option(
    "--against",
    metavar="CONF",
    help="The baseline; default: the configuration that the host's nginx has now, with "
    "--against-nginx the candidate's. A copy shows what is noise; one file is not compared with "
    "itself.",
)
@click.option(
    "--plan",
    "plan_path",
    metavar="FILE",
    help="A plan ('plan -f json'): the configuration that it changes, against itself with it.",
)
@lab_option
@click.option(
    "--scale",
    type=FiniteNumber(0, 1, min_open=True),
    help="Share of data and memory that a lab made from facts keeps, or of the objects of a "
    "manifest (default: about 1 GiB).",
)
@click.option(
    "--require",
    "requires",
    multiple=True,
    metavar="EXPR",
    help="A gate, e.g. 'hot.p99 <= 50ms' or 'ratio(hot.mean) <= 0.5'; may repeat.",
)
@click.option("--primary", metavar="METRIC", help="The metric that decides, named before the run.")
@click.option(
    "--accept-worse",
    multiple=True,
    metavar="METRIC",
    help="A metric that may become worse, e.g. server.cpu_seconds_per_request; may repeat. Any "
    "other that is clearly worse makes the candidate worse.",
)
@click.option(
    "--accept-lost",
    is_flag=True,
    help="The candidate may serve less: addresses, names, locations and files that it answers no "
    "longer make it worse otherwise.",
)
@click.option(
    "--pairs",
    default=6,
    show_default=True,
    type=Whole(1, 100),
    help="Pairs of blocks, one of each arm.",
)
@click.option(
    "--duration", default="8s", show_default=True, type=DURATION, metavar="TIME", help="Of a block."
)
@click.option(
    "--warmup",
    default="2s",
    show_default=True,
    type=Duration("auto"),
    metavar="TIME|auto",
    help="Of a block; auto measures first when it is steady.",
)
@click.option(
    "--starts",
    type=click.Choice(["full", "cold"]),
    help="What of a lab's data is in memory as a block starts: as much as it holds, as in the long "
    "run (the default), or nothing, as after a boot.",
)
@click.option(
    "--max-time",
    type=DURATION,
    metavar="TIME",
    help="Add pairs (from --pairs, at least 7, on) until it is settled or this is over.",
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="EXPR",
    help="Also search the capacity of each arm under it: 'hot.p99 <= 50ms'; may repeat.",
)
@click.option(
    "--http2",
    is_flag=True,
    help="Ask over HTTP/2, at a server whose files both configurations offer so, over TLS; other "
    "servers in HTTP/2 where they speak it, else in HTTP/1.1.",
)
@click.option(
    "--http3",
    is_flag=True,
    help="The same over HTTP/3 (listen ... quic). With --http2 too, a class for each: hot-http2, "
    "hot-http3, ...",
)
@click.option(
    "--manifest",
    metavar="FILE",
    help="Replay the requests that 'learn --manifest FILE' recorded; a lab makes files of their "
    "sizes, without one the paths must be kept (--keep-paths) and there.",
)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=FiniteNumber(0.01, 1000),
    help="Of the replay (--manifest): recorded seconds that pass in a second.",
)
@click.option(
    "--workload",
    metavar="FILE",
    help="Ask at the rate and popularity of a workload ('learn', JSON).",
)
@click.option(
    "--seed", default=1, show_default=True, type=Whole(0), help="Order of blocks and requests."
)
@click.option("--self-check", is_flag=True, help="Measure the noise floor first (A against A).")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Settle all and print it as an experiment (-f toml, json) that 'scenario run' takes: both "
    "are started and asked once, nothing is measured.",
)
@click.option("--accept-inconclusive", is_flag=True, help="Exit 0 when nothing can be told.")
@nginx_options
@against_nginx_option
@weaker_walls_option
@store_option
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    conf: str | None,
    conf_option: str | None,
    prefix: str | None,
    against: str | None,
    plan_path: str | None,
    lab: str | None,
    scale: float | None,
    requires: tuple[str, ...],
    primary: str | None,
    accept_worse: tuple[str, ...],
    accept_lost: bool,
    pairs: int,
    duration: str,
    warmup: str,
    starts: Literal["full", "cold"] | None,
    max_time: str | None,
    objectives: tuple[str, ...],
    http2: bool,
    http3: bool,
    manifest: str | None,
    speed: float,
    workload: str | None,
    seed: int,
    self_check: bool,
    dry_run: bool,
    accept_inconclusive: bool,
    nginx_binary: str | None,
    against_nginx: str | None,
    no_store: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """A/B of two configurations, or of two builds of nginx, behind walls and with gates.

    Both are run in turn under the same load (a hot file, random files, a location without a file,
    and every other server and location) in namespaces of their own: stubs answer for the servers
    that they ask, no request leaves the machine and nothing is written outside. Interrupted, it
    judges and keeps what was measured so far. No bodies are sent (uploads): they would change the
    state of real applications.
    """
    from nginx_tune.cli.labs import read_lab_plan  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.cli.validating import Wanted, run_experiment  # noqa: PLC0415
    from nginx_tune.documents.experiment import ExperimentSpec  # noqa: PLC0415

    if conf and conf_option:
        raise UsageError("CONF is given twice", hint="name it once, with or without -c")
    candidate = conf or conf_option or ""
    refuse_document(candidate)
    if plan_path and (candidate or against):
        raise UsageError("--plan names both configurations", hint="leave CONF and --against out")
    if not (plan_path or candidate or against_nginx):
        raise UsageError("no candidate configuration", hint="nginx-tune validate CONF")
    if starts and not lab:
        raise UsageError(
            "--starts goes with --lab", hint="what this machine has in memory is left alone"
        )
    given = ctx.get_parameter_source("speed")
    if manifest is None and given is click.core.ParameterSource.COMMANDLINE:
        raise UsageError(
            "--speed goes with --manifest", hint="it is the pace of requests that were recorded"
        )
    seconds = parse_duration(duration)
    if seconds < _SHORTEST_BLOCK_SECONDS:
        raise UsageError(
            f"--duration {duration} is too short to measure anything",
            hint="100ms is the shortest; seconds tell more",
        )
    spec = ExperimentSpec(
        baseline=against or "",
        candidate=candidate,
        plan=plan_path or "",
        prefix=absolute_path(prefix) if prefix else None,
        load=_site_load(manifest, workload, speed, http2=http2, http3=http3),
        starts=starts or "full",
        scale=scale,
        primary_metric=primary,
        requires=[*requires],
        objectives=[*objectives],
        accept_worse=[*accept_worse],
        accept_lost=accept_lost,
        pairs=pairs,
        warmup_seconds=None if warmup == "auto" else parse_duration(warmup),
        duration_seconds=seconds,
        max_seconds=parse_duration(max_time) if max_time else None,
        self_check=self_check,
        seed=seed,
    )
    return run_experiment(
        ctx,
        spec,
        read_lab_plan(lab, scale, replays=manifest is not None),
        Wanted(nginx_binary, against_nginx, no_store, accept_inconclusive, formats, output),
        settle_only=dry_run,
    )


def _site_load(
    manifest: str | None, workload: str | None, speed: float, *, http2: bool, http3: bool
) -> SiteLoad:
    """What is asked for: what the caller names, else a hot file, random ones, every other place."""
    from nginx_tune.documents.experiment import Protocol  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.validate.site_load import over_protocols  # noqa: PLC0415

    wanted: list[Protocol] = [*(["2"] if http2 else []), *(["3"] if http3 else [])]  # type: ignore[list-item]
    return over_protocols(_load_named(manifest, workload, speed), wanted)


def _load_named(manifest: str | None, workload: str | None, speed: float) -> SiteLoad:
    from pathlib import Path  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.experiment.validate.site_load import (  # noqa: PLC0415
        default_load,
        replay_load,
        workload_load,
    )
    from nginx_tune.measure.load.asked_paths import read_manifest_head  # noqa: PLC0415

    if manifest and workload:
        raise UsageError("--manifest and --workload exclude each other")
    if workload:
        return workload_load(read_workload(workload))
    if manifest is None:
        return default_load()
    head = read_manifest_head(Path(manifest))
    if head is None:
        raise UsageError(f"{manifest}: no manifest", hint="nginx-tune learn LOG --manifest FILE")
    return replay_load(
        absolute_path(manifest),
        speed=speed,
        hashed=head.get("paths") != "kept",
    )
