"""Progress on standard error: one line that replaces itself, only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from nginx_tune.cli.saying import shown_line

_CLEAR_LINE = "\r\x1b[K"

_shown: list[str] = []
"""The line that stands on the terminal now, if there is one."""


def progress_printer(ctx: click.Context) -> Callable[[str], None]:
    """A function that shows what is going on; silent when not on a terminal or with ``-q``.

    With ``-v`` each step is a line of its own, wherever standard error goes.
    """
    settings = ctx.obj or {}
    if settings.get("quiet"):
        return lambda _: None
    if settings.get("verbose"):
        return lambda text: click.echo(shown_line(text), err=True)
    if not sys.stderr.isatty():
        return lambda _: None
    ctx.call_on_close(clear_progress)
    return _show


def clear_progress() -> None:
    """Take the line off the terminal, so that what is written next does not hang on to it."""
    if _shown:
        _shown.clear()
        click.echo(_CLEAR_LINE, nl=False, err=True)


def _show(text: str) -> None:
    _shown[:] = [text]
    click.echo(f"{_CLEAR_LINE}{shown_line(text)[:100]}", nl=False, err=True)
