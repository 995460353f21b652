"""Progress on standard error: one line that replaces itself, only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

_CLEAR_LINE = "\r\x1b[K"


def progress_printer(ctx: click.Context) -> Callable[[str], None]:
    """A function that shows what is going on; silent when not on a terminal or with ``-q``.

    With ``-v`` each step is a line of its own, wherever standard error goes.
    """
    settings = ctx.obj or {}
    if settings.get("quiet"):
        return lambda _: None
    if settings.get("verbose"):
        return lambda text: click.echo(text, err=True)
    if not sys.stderr.isatty():
        return lambda _: None
    ctx.call_on_close(lambda: click.echo(_CLEAR_LINE, nl=False, err=True))
    return lambda text: click.echo(f"{_CLEAR_LINE}{text[:100]}", nl=False, err=True)
