"""``nginx-tune doctor``."""

import click

from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.observe.inspect.doctor import examine, names, unmet
from nginx_tune.report.listings import doctor_screen
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen


@click.command()
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="NAME",
    help="Exit 4 unless this check is ok; may repeat.",
)
@output_options(*SCREEN_FORMATS)
def command(*, required: tuple[str, ...], formats: tuple[str, ...], output: str | None) -> int:
    """The measurements that this host allows, and the command that allows the rest."""
    if strangers := sorted(set(required) - set(names())):
        raise UsageError(
            f"--require {strangers[0]}: no such check", hint=f"one of {', '.join(names())}"
        )
    doctor = examine(LiveHost())
    write_screen(lambda: doctor_screen(doctor), doctor, formats, output)
    return ExitStatus.UNDECIDED if unmet(doctor, list(required)) else ExitStatus.OK
