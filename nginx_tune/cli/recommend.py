"""``nginx-tune recommend``."""

from __future__ import annotations

import shutil
from typing import Any

import click

from nginx_tune.cli.deciding import deciding_options, read_held, read_inputs
from nginx_tune.cli.options import map_option, prefix_option
from nginx_tune.conf.tree import Maps
from nginx_tune.documents.base import encode
from nginx_tune.report.decisions import render_decisions
from nginx_tune.report.terminal.output import is_screen, output_options, write_result


@click.command()
@deciding_options
@click.option(
    "--observation",
    "observation_path",
    metavar="FILE",
    help="What observe saw of the running server; outranks what is assumed.",
)
@click.option(
    "-c",
    "--conf",
    "conf_path",
    metavar="CONF",
    help="A configuration: only what differs from it is said, and what in it is to go.",
)
@prefix_option
@map_option
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    conf_path: str | None,
    prefix: str | None,
    maps: Maps,
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> None:
    """Which switches help on this host, with evidence, prediction, break-even and risk."""
    if maps and conf_path is None:
        raise click.UsageError("--map is about the files of -c CONF: name it")
    if conf_path is None:
        inputs = read_inputs(ctx, **named)
        decisions = inputs.decisions
    else:
        held = read_held(ctx, conf_path, prefix, maps=maps, **named)
        inputs, decisions = held.inputs, held.decisions
    inputs.tell()
    on_screen = is_screen(output)
    width = shutil.get_terminal_size().columns if on_screen else None
    write_result(
        {
            "console": lambda: render_decisions(decisions, width=width).encode(),
            "json": lambda: encode(decisions),
        },
        formats,
        output,
    )
