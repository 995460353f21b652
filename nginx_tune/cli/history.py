"""``nginx-tune history``."""

from __future__ import annotations

from pathlib import Path

import click

from nginx_tune.cli.change_options import state_of, state_option, write_changes
from nginx_tune.report.terminal.output import output_options


@click.command()
@state_option
@output_options("console", "json")
def command(state_dir: Path, *, formats: tuple[str, ...], output: str | None) -> None:
    """The changes that apply made on this host, and how they ended, oldest first."""
    from nginx_tune.change.apply.history import read_history  # noqa: PLC0415  # heavy imports stay here

    write_changes(read_history(state_of(state_dir)), formats, output)
