"""``nginx-tune lab list`` and ``nginx-tune lab clean``."""

import click

from nginx_tune.errors import ExitStatus
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.writer import text_bytes


@click.group()
def command() -> None:
    """Files that labs keep or left behind on this machine: list or remove them."""


@command.command("list")
@output_options("console", "json")
def list_command(formats: tuple[str, ...], output: str | None) -> None:
    """This user's running and dead labs, and the disk images kept for the next run."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.session import list_labs  # noqa: PLC0415
    from nginx_tune.report.listings import render_list  # noqa: PLC0415

    labs = list_labs()
    renderers = {
        "console": lambda: text_bytes(render_list(labs), formats, output, is_page=False),
        "json": lambda: encode(labs),
    }
    write_result(renderers, formats, output)


@command.command("clean")
@click.option(
    "--images", is_flag=True, help="Also remove the kept disk images that are not in use."
)
@output_options("console", "json")
def clean_command(*, images: bool, formats: tuple[str, ...], output: str | None) -> ExitStatus:
    """Remove what dead runs left behind; exit 4 if something could not be removed."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.session import clean_labs  # noqa: PLC0415
    from nginx_tune.report.listings import render_cleaned  # noqa: PLC0415

    labs = clean_labs(with_images=images)
    renderers = {
        "console": lambda: text_bytes(render_cleaned(labs), formats, output, is_page=False),
        "json": lambda: encode(labs),
    }
    write_result(renderers, formats, output)
    return ExitStatus.UNDECIDED if labs.failures else ExitStatus.OK
