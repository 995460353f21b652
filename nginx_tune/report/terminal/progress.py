"""Progress on standard error: a display that replaces itself on a terminal, else plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from nginx_tune.documents.progress import Step
from nginx_tune.report.terminal.saying import discard, displays, echo_line, shown_line

if TYPE_CHECKING:
    from nginx_tune.report.terminal.live_view import LiveView

_open: list[LiveView] = []
"""The display that stands on the terminal now, if there is one."""


def progress_printer(ctx: click.Context) -> Callable[[str], None]:
    """A function that shows what is going on; silent when not on a terminal or with ``-q``.

    With ``-v`` each step is a line of its own, wherever standard error goes; so it is on a
    terminal that cannot move its cursor (``TERM=dumb``), or is read aloud as such.
    """
    settings = ctx.obj or {}
    if settings.get("quiet"):
        return lambda _: None
    on_terminal = sys.stderr.isatty()
    if settings.get("verbose") or (on_terminal and os.environ.get("TERM", "dumb") == "dumb"):
        return _say_line
    if not on_terminal:
        return lambda _: None
    ctx.call_on_close(clear_progress)
    plain = ctx.color is False

    def show(text: str) -> None:
        if not _open:
            from nginx_tune.report.terminal.live_view import open_view  # noqa: PLC0415  # rich, for a terminal

            try:
                _open.append(open_view(plain=plain))
                displays.append(_open[0].close)
            except OSError:  # the terminal is gone
                discard(sys.stderr)
                return
        _open[0].tell(text)

    return show


def clear_progress() -> None:
    """Take the display off the terminal, so that what is written next does not hang on to it."""
    displays.clear()
    while _open:
        _open.pop().close()


def _say_line(text: str) -> None:
    if not (isinstance(text, Step) and text.live):
        echo_line(shown_line(text))
