"""``nginx-tune validate``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from nginx_tune.cli.conf_names import prefix_option
from nginx_tune.cli.durations import parse_duration
from nginx_tune.cli.nginx_choice import nginx_options, tell_choice
from nginx_tune.cli.output import output_options, write_result
from nginx_tune.cli.progress import progress_printer
from nginx_tune.cli.storing import keep_run, store_option
from nginx_tune.cli.termination import as_interrupt
from nginx_tune.cli.weaker_walls import weaker_walls_option
from nginx_tune.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from nginx_tune.measure.plan_site_load import SiteLoad


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The candidate (the same as CONF).")
@prefix_option
@click.option(
    "--against",
    metavar="CONF",
    help="The baseline; default: the configuration that the host's nginx has now.",
)
@click.option(
    "--lab",
    metavar="SPEC",
    help="Emulate a host with generated data (needs root): a class (hdd, ssd, nvme, memory), a "
    "TOML file that describes one, or the facts of one (JSON).",
)
@click.option(
    "--scale",
    type=click.FloatRange(0, 1, min_open=True),
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
    help="The candidate may serve less: addresses, servers and locations that it answers no longer "
    "make it worse otherwise.",
)
@click.option("--pairs", default=6, show_default=True, type=click.IntRange(1, 100))
@click.option("--duration", default="8s", show_default=True, metavar="TIME", help="Of a block.")
@click.option(
    "--warmup",
    default="2s",
    show_default=True,
    metavar="TIME|auto",
    help="Of a block; auto measures first when it is steady.",
)
@click.option(
    "--max-time",
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
    "--manifest",
    metavar="FILE",
    help="Replay the requests that 'learn --manifest FILE' recorded; a lab makes files of their "
    "sizes, without one the paths must be kept (--keep-paths) and there.",
)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 1000),
    help="Of the replay: recorded seconds that pass in a second.",
)
@click.option(
    "--workload",
    metavar="FILE",
    help="Ask at the rate and popularity of a workload ('learn', JSON).",
)
@click.option("--seed", default=1, show_default=True, type=int)
@click.option("--self-check", is_flag=True, help="Measure the noise floor first (A against A).")
@click.option("--accept-inconclusive", is_flag=True, help="Exit 0 when nothing can be told.")
@nginx_options
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
    lab: str | None,
    scale: float | None,
    requires: tuple[str, ...],
    primary: str | None,
    accept_worse: tuple[str, ...],
    accept_lost: bool,
    pairs: int,
    duration: str,
    warmup: str,
    max_time: str | None,
    objectives: tuple[str, ...],
    manifest: str | None,
    speed: float,
    workload: str | None,
    seed: int,
    self_check: bool,
    accept_inconclusive: bool,
    nginx_binary: str | None,
    no_store: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """A/B of two configurations on a scratch nginx behind walls, with gates.

    Both are run in turn under the same load (a hot file, random files, a location without a file,
    and every other server and location) in namespaces of their own: stubs answer for the servers
    that they ask, no request leaves the machine and nothing is written outside. Interrupted, it
    judges and keeps what was measured so far.
    """
    from nginx_tune.cli.labs import read_lab_plan  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.cli.trees import host_configuration, read_configuration  # noqa: PLC0415
    from nginx_tune.documents.base import encode  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.runs import Clock  # noqa: PLC0415
    from nginx_tune.measure.subject import own_prefix  # noqa: PLC0415
    from nginx_tune.measure.validate import Plan, run_validation  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.prove.verdict import verdict_status  # noqa: PLC0415
    from nginx_tune.report.verdict import render_verdict  # noqa: PLC0415

    if conf and conf_option:
        raise UsageError("CONF is given twice", hint="name it once, with or without -c")
    candidate = conf or conf_option
    if candidate is None:
        raise UsageError("no candidate configuration", hint="nginx-tune validate CONF")
    clock = Clock()
    lab_plan = read_lab_plan(lab, scale, replays=manifest is not None)
    host = LiveHost()
    nginx, _ = read_nginx(host, binary=nginx_binary, to_run=True)
    tell_choice(ctx, nginx)
    own = own_prefix(nginx)
    with as_interrupt():
        validation = run_validation(
            read_configuration(host, candidate, prefix, default_prefix=own),
            read_configuration(
                host, against or host_configuration(nginx), prefix, default_prefix=own
            ),
            Plan(
                lab=lab_plan,
                requires=requires,
                primary_metric=primary,
                pairs=pairs,
                warmup_seconds=None if warmup == "auto" else parse_duration(warmup),
                duration_seconds=parse_duration(duration),
                seed=seed,
                self_check=self_check,
                prefix=_started_with(prefix, own, nginx.prefix),
                max_seconds=parse_duration(max_time) if max_time else None,
                objectives=objectives,
                accept_worse=accept_worse,
                accept_lost=accept_lost,
                load=_site_load(manifest, workload, speed),
                scale=scale,
            ),
            nginx=nginx,
            progress=progress_printer(ctx),
        )
    if not no_store:
        keep_run(ctx, validation, kind="validate", name=candidate, clock=clock)
    verdict = validation.verdict
    renderers = {
        "console": lambda: render_verdict(verdict).encode(),
        "json": lambda: encode(verdict),
    }
    write_result(renderers, formats, output)
    if verdict.stopped == "interrupted":
        return ExitStatus.INTERRUPTED
    return verdict_status(verdict, accept_inconclusive=accept_inconclusive)


def _started_with(prefix: str | None, own: str | None, built: str | None) -> str | None:
    """The -p of nginx: what is asked for, else the running master's where it is not the build's."""
    if prefix:
        return os.path.abspath(prefix)  # noqa: PTH100  # links stay
    return None if own == built else own


def _site_load(manifest: str | None, workload: str | None, speed: float) -> SiteLoad | None:
    """What is asked for, where the caller names it."""
    from pathlib import Path  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415
    from nginx_tune.documents.workload import Workload  # noqa: PLC0415
    from nginx_tune.measure.asked_paths import read_manifest_head  # noqa: PLC0415
    from nginx_tune.measure.plan_site_load import replay_load, workload_load  # noqa: PLC0415

    if manifest and workload:
        raise UsageError("--manifest and --workload exclude each other")
    if workload:
        return workload_load(read_document(Workload, workload))
    if manifest is None:
        return None
    head = read_manifest_head(Path(manifest))
    if head is None:
        raise UsageError(f"{manifest}: no manifest", hint="nginx-tune learn LOG --manifest FILE")
    return replay_load(
        os.path.abspath(manifest),  # noqa: PTH100  # links stay
        speed=speed,
        hashed=head.get("paths") != "kept",
    )
