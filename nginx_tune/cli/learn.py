"""``nginx-tune learn``."""

from __future__ import annotations

import gzip
from pathlib import Path

import click
import msgspec

from nginx_tune.cli.options import KINDS, Whole, prefix_option
from nginx_tune.decide.workload.learnt import learnt_workload, manifest_of
from nginx_tune.documents.base import encode
from nginx_tune.documents.learning import LearnPlan, encode_manifest
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.observe.access_logs import (
    LogFiles,
    choose_format,
    locations_of,
    read_logs,
    requests_by_root,
)
from nginx_tune.report.terminal.output import RESULT_FILE, output_options, write_file, write_result
from nginx_tune.report.terminal.saying import progress_printer, say
from nginx_tune.report.terminal.writer import screen_bytes
from nginx_tune.report.workload import workload_blocks

_PRIVATE = 0o600
_PLACES = 1 << 16
"""Requests whose locations are told: a share's standard error is at most 0.3 %."""


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="ACCESS_LOG...")
@click.option(
    "--log-format",
    "log_format",
    metavar="NAME|STRING|json",
    help="combined, json, a log_format of -c CONF, or its string; default: what CONF's access_log "
    "says, else combined.",
)
@click.option(
    "-c", "conf", metavar="CONF", help="nginx configuration: its formats and its locations."
)
@prefix_option
@click.option("--kind", type=click.Choice(KINDS), help="What nginx serves, where you know.")
@click.option("--manifest", "manifest_path", type=RESULT_FILE, metavar="FILE",
              help="Write requests to replay there (.gz packs them).")  # fmt: skip
@click.option(
    "--manifest-requests",
    type=Whole(1, 5_000_000),
    default=100_000,
    show_default=True,
    metavar="N",
    help="At most so many, chosen evenly.",
)
@click.option("--keep-paths", is_flag=True, help="Paths in the manifest, not their hashes.")
@click.option(
    "--with-query",
    is_flag=True,
    help="Requests that differ in their query ask for different objects.",
)
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    logs: tuple[str, ...],
    log_format: str | None,
    conf: str | None,
    prefix: str | None,
    kind: Kind | None,
    manifest_path: str | None,
    manifest_requests: int,
    keep_paths: bool,
    with_query: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """The workload that access logs show: plain, gzip, zstd, bzip2 or xz, - for standard input.

    Neither client addresses nor query strings leave the tool; nor do paths, without --keep-paths.
    """
    if keep_paths and manifest_path is None:
        raise UsageError("--keep-paths says what goes into a manifest", hint="add --manifest FILE")
    tree = None
    if conf is not None:
        from nginx_tune.cli.configurations import read_configuration  # noqa: PLC0415  # only with -c
        from nginx_tune.host.live import LiveHost  # noqa: PLC0415

        tree = read_configuration(LiveHost(), conf, prefix)
    form = choose_format(log_format, tree, logs)
    if manifest_path is not None and not form.tells_time:
        raise UsageError(f"log format '{form.name}' has no time, so nothing can be replayed")
    plan = LearnPlan(
        format=form,
        with_query=with_query,
        most_requests=manifest_requests if manifest_path is not None else 0,
        most_places=_PLACES if tree is not None else 0,
        keeps_paths=keep_paths,
    )
    files = LogFiles(logs, form, tell=say)
    tally, broken = read_logs(files, plan, on_progress=progress_printer(ctx))
    locations, notes = locations_of(tally, tree) if tree is not None else ([], [])
    workload = learnt_workload(tally, plan, kind=kind, locations=locations)
    if tree is not None and workload.dataset.bytes is not None:
        dataset = msgspec.structs.replace(
            workload.dataset, requests_by_path=requests_by_root(tree, locations)
        )
        workload = msgspec.structs.replace(workload, dataset=dataset)
    if notes and workload.log is not None:
        log = msgspec.structs.replace(workload.log, notes=[*workload.log.notes, *notes])
        workload = msgspec.structs.replace(workload, log=log)
    if manifest_path is not None:
        data = encode_manifest(*manifest_of(tally, keeps_paths=keep_paths))
        if manifest_path.endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        write_file(Path(manifest_path), data, mode=_PRIVATE)
    write_result(
        {
            "console": lambda: screen_bytes(workload_blocks(workload), formats, output),
            "json": lambda: encode(workload),
        },
        formats,
        output,
    )
    for reason in broken:
        say(f"{reason}: read up to there")
    return ExitStatus.USAGE if broken else ExitStatus.OK
