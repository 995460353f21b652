"""``nginx-tune compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nginx_tune.errors import ExitStatus
from nginx_tune.terminal.output import output_options, write_result
from nginx_tune.terminal.writer import screen_bytes

if TYPE_CHECKING:
    from nginx_tune.documents.measurement import Measurement
    from nginx_tune.documents.observation import Observation


@click.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--control",
    nargs=2,
    metavar="BEFORE AFTER",
    help="The same of a server that was not changed, at the same times.",
)
@click.option("--primary", metavar="METRIC", help="The metric that decides.")
@click.option("--accept-inconclusive", is_flag=True, help="Exit 0 when nothing can be told.")
@output_options("console", "json")
def command(
    *,
    before: str,
    after: str,
    control: tuple[str, str] | None,
    primary: str | None,
    accept_inconclusive: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Two observations or two measurements: the canary without load.

    The request rate is compared first: without a control, an outcome is given only where a
    change of traffic cannot be the reason for it.
    """
    from nginx_tune.documents.base import encode  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.prove.compare import compare, comparison_status  # noqa: PLC0415
    from nginx_tune.report.comparison import comparison_screen  # noqa: PLC0415

    comparison = compare(
        _read(before),
        _read(after),
        (_read(control[0]), _read(control[1])) if control else None,
        primary_metric=primary,
    )
    renderers = {
        "console": lambda: screen_bytes(comparison_screen(comparison), formats, output),
        "json": lambda: encode(comparison),
    }
    write_result(renderers, formats, output)
    return comparison_status(comparison, accept_inconclusive=accept_inconclusive)


def _read(path: str) -> Observation | Measurement:
    """Either kind of document; what it is stands in the file."""
    from nginx_tune.cli.inputs import read_bytes  # noqa: PLC0415
    from nginx_tune.documents.base import decode, schema_of  # noqa: PLC0415
    from nginx_tune.documents.measurement import Measurement  # noqa: PLC0415
    from nginx_tune.documents.observation import Observation  # noqa: PLC0415

    data = read_bytes(path)
    source = "standard input" if path == "-" else path
    names = [f'"{schema_of(kind)}"'.encode() for kind in (Measurement, Observation)]
    if names[0] in data and names[1] not in data:
        return decode(Measurement, data, source=source)
    return decode(Observation, data, source=source)
