"""``nginx-tune recommend``."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click

from nginx_tune.cli.deciding import deciding_options, read_inputs
from nginx_tune.cli.output import output_options, write_result
from nginx_tune.documents.base import encode
from nginx_tune.report.decisions import render_decisions


@click.command()
@deciding_options
@click.option(
    "--observation",
    "observation_path",
    metavar="FILE",
    help="What observe saw of the running server; outranks what is assumed.",
)
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context, /, *, formats: tuple[str, ...], output: str | None, **named: Any
) -> None:
    """Which switches help on this host, with evidence, prediction, break-even and risk."""
    decisions = read_inputs(ctx, **named).decisions
    is_screen = output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_screen else None
    write_result(
        {
            "console": lambda: render_decisions(decisions, width=width).encode(),
            "json": lambda: encode(decisions),
        },
        formats,
        output,
    )
