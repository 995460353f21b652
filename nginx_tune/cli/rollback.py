"""``nginx-tune rollback``."""

from pathlib import Path

import click

from nginx_tune.cli.history import state_of, state_option, write_change, write_done
from nginx_tune.errors import UsageError
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.saying import say


@click.command()
@click.argument("change", metavar="[ID]", required=False)
@click.option(
    "--recover",
    is_flag=True,
    help="Take back only changes that dead processes left unfinished. For use at boot.",
)
@click.option(
    "--leave",
    "leaves",
    is_flag=True,
    help="End a change that is stuck, with the files as they are now.",
)
@state_option
@output_options("console", "json")
def command(
    change: str | None,
    *,
    recover: bool,
    leaves: bool,
    state_dir: Path,
    formats: tuple[str, ...],
    output: str | None,
) -> None:
    """Put back every byte that a change replaced, and reload nginx; without ID, the last change.

    It needs neither a valid configuration nor a running nginx. If a file has been written to since,
    nothing is put back (exit 5). A second rollback changes nothing.
    """
    from nginx_tune.change.apply.undo import (  # noqa: PLC0415  # heavy imports stay here
        leave,
        recover_all,
        roll_back,
    )
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    state = state_of(state_dir)
    if recover:
        if change is not None or leaves:
            raise UsageError(
                "--recover covers all unfinished changes and cannot be combined with an ID or "
                "--leave",
                hint="give it alone",
            )
        done = [recovered.journal for recovered in recover_all(LiveHost(), state)]
        write_done(done, formats, output, none="no change was left unfinished")
        return
    if leaves:
        write_change(leave(state, change), formats, output)
        return
    journal, server = roll_back(LiveHost(), state, change)
    if not server:
        say(f"change {journal.id} was already taken back; for an earlier change, give its ID")
    write_change(journal, formats, output)
