"""``nginx-tune learn``."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from nginx_tune.cli.options import (
    KINDS,
    Whole,
    accept_missing_option,
    check_maps,
    map_option,
    prefix_option,
)
from nginx_tune.conf.tree import ConfTree, Maps
from nginx_tune.decide.workload.learnt import learnt_workload, manifest_of
from nginx_tune.documents.learning import LearnPlan, encode_manifest
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import ExitStatus, MissingToolError, UsageError, worst
from nginx_tune.host.paths import absolute_path
from nginx_tune.observe.access_logs import Learnt, LogFiles, read_logs
from nginx_tune.observe.kept_partials import KeptLogs, LearnJob, learn_kept, refuse_plain
from nginx_tune.observe.log_configuration import Places, choose_format
from nginx_tune.observe.log_partials import Merged, pack_partial, partial_of, read_key
from nginx_tune.observe.object_storage import find_logs, is_url
from nginx_tune.report.terminal.output import RESULT_FILE, output_options, tell_written, write_file
from nginx_tune.report.terminal.saying import progress_printer, say
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen
from nginx_tune.report.workload import workload_blocks

_PLACES = 1 << 16
"""Size of the sample of requests whose locations are found; a share's standard error is ≤ 0.3 %."""


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="ACCESS_LOG...")
@click.option(
    "--log-format",
    "log_format",
    metavar="NAME|STRING|json",
    help="combined, json, the name of a log_format in -c CONF, or a log_format string; default: "
    "the format of CONF's access_log, else combined.",
)
@click.option(
    "-c", "conf", metavar="CONF", help="nginx configuration, for its log formats and locations."
)
@prefix_option
@map_option
@accept_missing_option
@click.option("--kind", type=click.Choice(KINDS), help="Kind of site, if known.")
@click.option("--manifest", "manifest_path", type=RESULT_FILE, metavar="FILE",
              help="Write requests for a replay to FILE (.gz: compressed).")  # fmt: skip
@click.option(
    "--manifest-requests",
    type=Whole(1, 5_000_000),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Most requests in the manifest, chosen evenly.",
)
@click.option("--keep-paths", is_flag=True, help="Write paths to the manifest, not their hashes.")
@click.option(
    "--with-query",
    is_flag=True,
    help="Count requests with different query strings as different objects.",
)
@click.option("--partial", "partial_path", type=RESULT_FILE, metavar="FILE",
              help="Write a partial result, which nginx-tune merge adds to others.")  # fmt: skip
@click.option("--key-file", metavar="FILE",
              help="File with the secret for hashes, the same for all logs to merge.")  # fmt: skip
@click.option("--partials", "folder", metavar="DIR|URL",
              help="Keep a partial result of each log in DIR or at URL, and read only logs that "
              "have none there yet.")  # fmt: skip
@click.option("--engine", metavar="dask[=ADDRESS]",
              help="Read on a Dask cluster (tls://HOST:8786), or on all CPUs here.")  # fmt: skip
@click.option("--allow-unencrypted", is_flag=True,
              help="Allow a Dask cluster without TLS (tcp://), in a trusted network.")  # fmt: skip
@click.option("--log-host", metavar="NAME",
              help="Host of the logs, if several hosts have logs of the same name.")  # fmt: skip
@output_options(*SCREEN_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    logs: tuple[str, ...],
    log_format: str | None,
    conf: str | None,
    prefix: str | None,
    maps: Maps,
    accept_missing: tuple[str, ...],
    kind: Kind | None,
    manifest_path: str | None,
    manifest_requests: int,
    keep_paths: bool,
    with_query: bool,
    partial_path: str | None,
    key_file: str | None,
    folder: str | None,
    engine: str | None,
    allow_unencrypted: bool,
    log_host: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """The workload in access logs: plain, gzip, zstd, bzip2 or xz, - for standard input.

    A log may be a URL of object storage or a web server, with * for many ('s3://logs/2026/*.gz').

    Logs of several hosts are taken to cover the same period. If there are too many for one run,
    use --partial for each part, then nginx-tune merge: the result is the same as for all logs at
    once. With --partials, an interrupted run can be continued.

    Client addresses and query strings are never written, and paths only with --keep-paths.
    """
    if keep_paths and manifest_path is None:
        raise UsageError("--keep-paths needs a manifest", hint="add --manifest FILE")
    _check_keeping(partial_path, folder, key_file)
    if engine is not None:
        _check_engine(engine, folder, is_plain_allowed=allow_unencrypted)
    tree, status = _read_conf(conf, prefix, maps, accept_missing)
    places = None if tree is None else Places(tree)
    form = choose_format(log_format, tree, logs)
    if manifest_path is not None and not form.tells_time:
        raise UsageError(f"log format '{form.name}' has no time, so nothing can be replayed")
    plan = LearnPlan(
        format=form,
        kind=kind,
        with_query=with_query,
        most_requests=manifest_requests if manifest_path is not None else 0,
        most_places=_PLACES if places is not None else 0,
        keeps_paths=keep_paths,
        configuration=None if places is None else places.configuration,
    )
    if key_file is not None:
        plan = msgspec.structs.replace(plan, key=read_key(key_file))
    found, on_progress = find_logs(logs), progress_printer(ctx)
    if folder is not None:
        job = LearnJob(plan, places, log_host, folder if is_url(folder) else absolute_path(folder))
        kept = KeptLogs(job, found, tell=say, on_progress=on_progress)
        learnt, result = (
            learn_kept(kept)
            if engine is None
            else _learn_by(engine, kept, is_plain_allowed=allow_unencrypted)
        )
        partial = result.partial
    else:
        files = LogFiles(found, host=log_host, tell=say)
        learnt = read_logs(files, plan, on_progress=on_progress)
        if places is not None:
            learnt = learnt._replace(places=places.find(learnt.places))
        for refused in learnt.refused:
            say(f"left out {refused}")
        partial = partial_of(learnt, plan)
    if partial_path is not None:
        write_file(Path(partial_path), pack_partial(partial), mode=PRIVATE)
    return worst(status, write_learnt(learnt, plan, manifest_path, formats, output))


def _read_conf(
    conf: str | None, prefix: str | None, maps: Maps, accepted: Sequence[str]
) -> tuple[ConfTree | None, ExitStatus]:
    """The named configuration, and the exit status if includes of it were not read."""
    if conf is None:
        if maps or accepted:
            raise UsageError("--map and --accept-missing need -c CONF")
        return None, ExitStatus.OK
    from nginx_tune.cli.configurations import (  # noqa: PLC0415  # only with -c
        full_path,
        parsed,
        read_configuration,
        tell_unread,
    )
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.nginx.elsewhere import missing_includes  # noqa: PLC0415

    check_maps(maps)
    host = LiveHost()
    nginx, _ = read_nginx(host, conf_path=full_path(conf, prefix))
    tree = parsed(read_configuration(host, conf, prefix, nginx=nginx, asked_maps=maps), conf)
    return tree, tell_unread(missing_includes(tree, host, accepted))


def _check_keeping(partial_path: str | None, folder: str | None, key_file: str | None) -> None:
    """Raise UsageError for partial results without a secret."""
    if (partial_path or folder) is not None and key_file is None:
        option = "--partial" if folder is None else "--partials"
        raise UsageError(
            f"{option} needs --key-file: without a secret its hashes of paths could be guessed",
            hint="openssl rand -hex 32 > learn.key makes one; use the same for all logs to merge",
        )


def _check_engine(engine: str, folder: str | None, *, is_plain_allowed: bool) -> None:
    """Raise UsageError for an engine that cannot be used, before any connection is made."""
    name, equals, address = engine.partition("=")
    if name != "dask" or bool(equals) != bool(address):
        raise UsageError(f"--engine {engine}: give dask, or dask=ADDRESS of a scheduler")
    if folder is None:
        raise UsageError("--engine needs --partials: workers keep their results there")
    if address and not is_plain_allowed:
        refuse_plain(address)


def _learn_by(engine: str, kept: KeptLogs, *, is_plain_allowed: bool) -> Merged:
    try:
        from nginx_tune.observe.dask_engine import learn_by_dask  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        if error.name not in {"dask", "distributed"}:
            raise
        raise MissingToolError(
            "--engine dask: Dask is not installed", hint="pip install 'nginx-tune[dask]'"
        ) from None
    address = engine.partition("=")[2] or None
    return learn_by_dask(kept, address, is_plain_allowed=is_plain_allowed)


PRIVATE = 0o600


def write_learnt(
    learnt: Learnt,
    plan: LearnPlan,
    manifest_path: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Write the workload, and the manifest if one is requested; returns the exit status."""
    workload = learnt_workload(
        learnt.tally, learnt.timeline, learnt.popularity, plan, learnt.places
    )
    if manifest_path is not None:
        data = encode_manifest(*manifest_of(learnt.tally, learnt.timeline, plan))
        if manifest_path.endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        write_file(Path(manifest_path), data, mode=PRIVATE)
    write_screen(lambda: workload_blocks(workload), workload, formats, output)
    tell_written("the workload", formats, output)
    for reason in learnt.broken:
        say(f"{reason}: only the part before that was read")
    return ExitStatus.USAGE if learnt.broken else ExitStatus.OK
