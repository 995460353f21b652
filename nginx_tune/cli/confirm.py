"""``nginx-tune confirm``."""

from pathlib import Path

import click

from nginx_tune.cli.history import state_of, state_option, tell_way_back, write_change
from nginx_tune.errors import ExitStatus
from nginx_tune.report.terminal.output import output_options


@click.command()
@click.argument("change", metavar="[ID]", required=False)
@state_option
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    change: str | None,
    *,
    state_dir: Path,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Keep a change that 'apply --confirm' made; without ID, the last change.

    After its time limit, the change is taken back (exit 1). A change that has been taken back
    already is refused (exit 2).
    """
    from nginx_tune.change.apply.guardian import confirm  # noqa: PLC0415  # heavy imports stay here

    journal, status = confirm(state_of(state_dir), change)
    write_change(journal, formats, output)
    if status is ExitStatus.OK:
        tell_way_back(ctx, journal)
    return status
