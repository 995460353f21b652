"""``nginx-tune inspect``."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from nginx_tune.cli.inputs import read_document
from nginx_tune.cli.options import FiniteNumber, Whole, data_directories, nginx_options
from nginx_tune.decide.described import parse_volume
from nginx_tune.documents.base import encode
from nginx_tune.documents.described_host import parse_speed
from nginx_tune.documents.facts_storage import Volume
from nginx_tune.documents.inspection import Capture, Request
from nginx_tune.errors import ExitStatus, UndecidedError, UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.paths import absolute_path
from nginx_tune.observe.inspect.disk_plan import ReadSize
from nginx_tune.observe.inspect.facts import with_current_settings
from nginx_tune.observe.inspect.inspection import (
    inspect_host,
    record_host,
    replay,
    with_disk_probes,
    with_volumes,
)
from nginx_tune.observe.inspect.live_facts import served_here, with_access_logs
from nginx_tune.report.facts import facts_blocks, render_host_toml
from nginx_tune.report.terminal.output import (
    RESULT_FILE,
    named_results,
    output_options,
    tell_written,
    write_file,
)
from nginx_tune.report.terminal.saying import progress_printer, say
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

_PRIVATE = 0o600
_WATCH_SECONDS = 1.0


def _speeds(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    speeds = {}
    for value in values:
        name, separator, speed = value.partition("=")
        if not separator or not name:
            raise UsageError(f"--link-speed {value}: not IF=SPEED", hint="for example eth0=10G")
        speeds[name] = parse_speed(speed)
    return speeds


def _volumes(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, Volume]:
    """Declared volumes by disk. Errors: UsageError for an unknown type or an invalid figure."""
    volumes = {}
    for value in values:
        disk, separator, said = value.partition("=")
        if not disk or not separator:
            raise UsageError(
                f"--volume {value}: not DISK=TYPE[,READS[,BYTES]]",
                hint="such as nvme1n1=gp3,6000,250m",
            )
        volumes[disk] = parse_volume(said, f"--volume {value}")
    return volumes


def _absolute(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return [absolute_path(value) for value in values]


def _datasets(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return _absolute(ctx, option, data_directories(ctx, option, values))


@click.command()
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="DIR",
    callback=_datasets,
    help="Scan this tree of served files; may repeat.",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="DIR",
    callback=_absolute,
    help="Find the disks under this path; may repeat.",
)
@click.option(
    "--cache-dir",
    "cache_dirs",
    multiple=True,
    metavar="DIR",
    callback=_absolute,
    help="The same for a cache directory; may repeat.",
)
@nginx_options
@click.option(
    "--pid",
    type=Whole(min=1),
    metavar="PID",
    help="Process id of the nginx master; paths are then those that it sees, also in a container.",
)
@click.option(
    "--link-speed",
    "link_speeds",
    multiple=True,
    metavar="IF=SPEED",
    callback=_speeds,
    help="Declare the speed of a link, such as eth0=10G; may repeat.",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    metavar="DISK=TYPE[,READS[,BYTES]]",
    callback=_volumes,
    help="Declare the cloud volume behind a disk, with its provisioned reads and bytes per "
    "second, such as nvme1n1=gp3,6000,250m; may repeat.",
)
@click.option(
    "--dataset-seconds",
    type=FiniteNumber(min=0.1),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Time budget for the scan of each dataset.",
)
@click.option(
    "--dataset-sample",
    "sample_ratio",
    type=FiniteNumber(min=0.0001, max=1.0),
    default=1.0,
    metavar="RATIO",
    help="Count all files of a dataset, but read the sizes of only this share.",
)
@click.option("--utilisation", is_flag=True, help="Measure for a second how busy the disks are.")
@click.option(
    "--disks",
    is_flag=True,
    help="Measure the disks: random reads of the files under --dataset and --path (else of the "
    "devices), past the page cache, at growing depths.",
)
@click.option(
    "--disk-seconds",
    type=FiniteNumber(min=2.0, max=600.0),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Time for each disk.",
)
@click.option(
    "--disk-read",
    type=click.Choice(["readahead", "chunk", "tls"]),
    default="readahead",
    show_default=True,
    help="Size of a read: the read-ahead under sendfile, sendfile_max_chunk 512k, or a buffer "
    "of output_buffers 32k under TLS.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Measure busy disks, degraded or rebuilding arrays and network volumes too.",
)
@click.option(
    "--with-config",
    is_flag=True,
    help="Put the configuration files into the capture too, secrets redacted.",
)
@click.option(
    "--capture",
    "capture_path",
    type=RESULT_FILE,
    metavar="FILE",
    help="Record the host in FILE, secrets redacted.",
)
@click.option("--host", "host_path", metavar="FILE", help="Inspect a recorded host instead.")
@output_options(*SCREEN_FORMATS, "toml")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    datasets: list[str],
    paths: list[str],
    cache_dirs: list[str],
    nginx_binary: str | None,
    pid: int | None,
    link_speeds: dict[str, int],
    volumes: dict[str, Volume],
    dataset_seconds: float,
    sample_ratio: float,
    utilisation: bool,
    disks: bool,
    disk_seconds: float,
    disk_read: ReadSize,
    force: bool,
    with_config: bool,
    capture_path: str | None,
    host_path: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Kernel, CPUs, memory, disks under paths, links, limits and nginx of this host."""
    _refuse_together(capture_path, host_path, with_config=with_config, disks=disks)
    request = Request(
        paths=[*paths, *cache_dirs],
        datasets=datasets,
        nginx_binary=nginx_binary,
        pid=pid,
        link_speeds=link_speeds,
        watch_seconds=_WATCH_SECONDS if utilisation or disks else 0.0,
        sample_ratio=sample_ratio,
    )
    show = progress_printer(ctx)
    host = LiveHost(show)
    capture = None
    status = ExitStatus.OK
    without_curves: list[str] = []
    if host_path:
        facts = replay(read_document(Capture, host_path), request)
    elif capture_path:
        capture = record_host(
            host, request, dataset_budget_seconds=dataset_seconds, with_config=with_config
        )
        facts = replay(capture)
    else:
        facts = with_current_settings(
            inspect_host(host, request, dataset_budget_seconds=dataset_seconds),
            host,
            results=named_results(),
        )
        facts = with_access_logs(facts, host)
        if not datasets and not ctx.obj["quiet"]:
            _tell_unscanned(served_here(facts.nginx, host))
    facts = with_volumes(facts, volumes)
    if disks:
        from nginx_tune.observe.inspect.disks import measure_disks  # noqa: PLC0415  # only with --disks

        asked = [*request.paths, *request.datasets]
        measured = measure_disks(
            facts, asked, seconds=disk_seconds, read_size=disk_read, force=force, on_progress=show
        )
        facts = with_disk_probes(facts, measured.probes)
        capture = capture and msgspec.structs.replace(capture, disk_probes=measured.probes)
        without_curves = measured.reasons_for_none
        status = ExitStatus.INTERRUPTED if measured.interrupted else status
    if capture_path and capture:
        write_file(Path(capture_path), encode(capture), mode=_PRIVATE)
    toml = lambda: render_host_toml(facts)  # noqa: E731
    write_screen(lambda: facts_blocks(facts), facts, formats, output, toml=toml)
    tell_written("the result", formats, output)
    if without_curves and status is ExitStatus.OK:
        raise UndecidedError(f"no disk was measured: {'; '.join(without_curves)}")
    return status


def _tell_unscanned(served: Sequence[str]) -> None:
    """Print that served files were not counted, with the options that count them."""
    if served:
        words = " ".join(f"--dataset {shlex.quote(path)}" for path in served[:_MOST_NAMED])
        say("the served files were not counted", f"add {words}")


_MOST_NAMED = 8


def _refuse_together(
    capture_path: str | None, host_path: str | None, *, with_config: bool, disks: bool
) -> None:
    """Refuse options that exclude each other."""
    if capture_path and host_path:
        raise UsageError("--capture and --host exclude each other")
    if capture_path == "-":
        raise UsageError("--capture needs a file, since the facts go to standard output")
    if with_config and not capture_path:
        raise UsageError("--with-config needs a capture", hint="add --capture FILE")
    if disks and host_path:
        raise UsageError("--disks measures this host and cannot be combined with --host")
