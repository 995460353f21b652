"""``nginx-tune merge``."""

from __future__ import annotations

import click

from nginx_tune.cli.options import (
    HISTOGRAM_FORMATS,
    histogram_option,
    histogram_renderers,
    histogram_text,
)
from nginx_tune.errors import ExitStatus, UndecidedError
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.writer import screen_bytes, text_bytes


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@histogram_option
@output_options("console", "json", *HISTOGRAM_FORMATS)
def command(
    *,
    files: tuple[str, ...],
    histograms: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Add the measurements of several load hosts into one.

    Each ran its stripe of one load plan, or a load with a seed of its own. Histograms are added
    count by count, so the quantiles are exact; rates are of the time in which all of them
    measured; each load host's flags are kept. What would count an arrival twice is refused.
    """
    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.documents.measurement import Measurement  # noqa: PLC0415
    from nginx_tune.measure.proof.merge import (  # noqa: PLC0415
        HostMeasurement,
        lost_stripes,
        merge_measurements,
    )
    from nginx_tune.report.measurement import measured_screen  # noqa: PLC0415

    parts = [HostMeasurement(name, read_document(Measurement, name)) for name in files]
    merged = merge_measurements(parts)

    def console() -> bytes:
        below = histogram_text([merged], histograms)
        return screen_bytes(measured_screen(merged), formats, output) + text_bytes(
            below, formats, output, is_page=False
        )

    renderers = {
        "console": console,
        "json": lambda: encode(merged),
        **histogram_renderers([merged], histograms),
    }
    write_result(renderers, formats, output)
    if lost := lost_stripes([part.measurement for part in parts]):
        raise UndecidedError(f"part of the load is lost: {'; '.join(lost)}")
    return ExitStatus.OK
