"""``nginx-tune merge``."""

from __future__ import annotations

import click

from nginx_tune.cli.output import output_options, write_result
from nginx_tune.errors import ExitStatus


@click.command()
@click.argument("measurements", nargs=-1, required=True, metavar="MEASUREMENT...")
@output_options("console", "json")
def command(
    *, measurements: tuple[str, ...], formats: tuple[str, ...], output: str | None
) -> ExitStatus:
    """Add the measurements of several load hosts into one.

    Each ran its stripe of one load plan, or a load with a seed of its own. Histograms are added
    count by count, so the quantiles are exact; rates are of the time in which all of them
    measured; each load host's flags are kept. What would count an arrival twice is refused.
    """
    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.documents.measurement import Measurement  # noqa: PLC0415
    from nginx_tune.prove.merge import Part, merge_measurements  # noqa: PLC0415
    from nginx_tune.report.measurement import render_measurement  # noqa: PLC0415

    merged = merge_measurements(
        [Part(name, read_document(Measurement, name)) for name in measurements]
    )
    renderers = {
        "console": lambda: render_measurement(merged).encode(),
        "json": lambda: encode(merged),
    }
    write_result(renderers, formats, output)
    return ExitStatus.OK
