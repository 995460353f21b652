"""``nginx-tune merge``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from nginx_tune.cli.options import (
    HISTOGRAM_FORMATS,
    histogram_option,
    histogram_renderers,
    histogram_text,
)
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.writer import screen_bytes, text_bytes

if TYPE_CHECKING:
    from nginx_tune.report.screen import Screen

Renderers = Mapping[str, Callable[[], bytes]]


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@histogram_option
@output_options("console", "json", "hlog", *HISTOGRAM_FORMATS)
def command(
    *,
    files: tuple[str, ...],
    histograms: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Add the measurements, or the histogram logs, of several load hosts into one.

    Each ran its stripe of one load plan, or a load with a seed of its own. Histograms are added
    count by count, so the quantiles are exact; rates are of the time in which all of them
    measured; each load host's flags are kept. What would count an arrival twice is refused.

    Of histogram logs (probe --hlog) intervals that lie beside each other in time are added, tag
    by tag; -f hlog writes the log of all, which HdrHistogram's tools read. Measurements come as
    console or json, and as histograms; of one file, these are of that one.
    """
    from nginx_tune.cli.inputs import read_bytes  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.measure.proof.histogram import is_histogram_log  # noqa: PLC0415

    contents = {name: read_bytes(name) for name in files}
    logs = [name for name, data in contents.items() if is_histogram_log(data)]
    if logs and len(logs) < len(contents):
        other = next(name for name in files if name not in logs)
        raise UsageError(f"{logs[0]} is a histogram log and {other} a measurement: they do not add")
    repeated = next((name for name in files if files.count(name) > 1), None)
    if logs and repeated is not None:
        raise UsageError(f"{repeated} is given twice: it counts once")
    if logs and histograms:
        raise UsageError("--histogram is for measurements", hint="as probe -f json writes them")
    text = functools.partial(text_bytes, formats=formats, output=output, is_page=False)
    screen = functools.partial(screen_bytes, formats=formats, output=output)
    renderers = (
        _of_logs(contents, text)
        if logs
        else _of_measurements(files, contents, histograms, screen, text)
    )
    write_result(renderers, formats, output)
    return ExitStatus.OK


def _of_logs(contents: Mapping[str, bytes], shown: Callable[[str], bytes]) -> Renderers:
    from nginx_tune.measure.proof.histogram import LogFile, merge_histogram_logs  # noqa: PLC0415
    from nginx_tune.report.probing import render_histogram_totals  # noqa: PLC0415

    merged = merge_histogram_logs(
        [LogFile(name, data.decode("utf-8", "replace")) for name, data in contents.items()]
    )
    return {
        "console": lambda: shown(render_histogram_totals(merged.totals)),
        "hlog": merged.text.encode,
    }


def _of_measurements(
    files: tuple[str, ...],
    contents: Mapping[str, bytes],
    histograms: tuple[str, ...],
    laid_out: Callable[[Screen], bytes],
    shown: Callable[[str], bytes],
) -> Renderers:
    from nginx_tune.documents.base import decode, encode  # noqa: PLC0415
    from nginx_tune.documents.measurement import Measurement  # noqa: PLC0415
    from nginx_tune.measure.proof.merge import HostMeasurement, merge_measurements  # noqa: PLC0415
    from nginx_tune.report.measurement import measured_screen  # noqa: PLC0415

    def source(name: str) -> str:
        return "standard input" if name == "-" else name

    merged = merge_measurements(
        [
            HostMeasurement(name, decode(Measurement, contents[name], source=source(name)))
            for name in files
        ]
    )

    def console() -> bytes:
        return laid_out(measured_screen(merged)) + shown(histogram_text([merged], histograms))

    return {
        "console": console,
        "json": lambda: encode(merged),
        **histogram_renderers([merged], histograms),
    }
