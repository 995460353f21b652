"""``nginx-tune collector``."""

import click

from nginx_tune.errors import UndecidedError
from nginx_tune.host.collector import render_collector
from nginx_tune.report.terminal.output import output_options, write_result


@click.command()
@output_options("python", has_formats=False)
def command(*, output: str | None) -> None:
    """Print a program that records a host on which nothing may be installed.

    It is a single file and needs only Python 3.6 or later. It writes the capture that
    `inspect --host` reads:

    \b
        nginx-tune collector > collect.py
        ssh HOST python3 - < collect.py > host.json
        nginx-tune inspect --host host.json
    """  # noqa: D301  # \b is click's own mark
    try:
        program = render_collector()
    except OSError as error:
        raise UndecidedError(f"the collector's source cannot be read: {error.strerror}") from None
    write_result({"python": lambda: program}, (), output)
