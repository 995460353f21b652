"""Lines and progress for people on standard error: one way out, past which no secret goes.

Every word that a command says beside its result passes :func:`shown_line`: what looks like a
secret is left out, what nginx said of a configuration is judged by the place of what it quotes,
and control characters are made visible. Progress is a display that replaces itself on a terminal,
else plain lines.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

import click

from nginx_tune.conf.secret_values import redact_text
from nginx_tune.documents.progress import Step
from nginx_tune.report.text import ascii_text, commandless, plain

if TYPE_CHECKING:
    from nginx_tune.conf.tree import ConfTree


_BY_NGINX = re.compile(
    r"nginx did not start: | -t rejects it: |nginx does not accept connections on |the stub ended: "
    r"|\[(?:emerg|alert|crit|error|warn)\]"
)
_PLACE = re.compile(r" in (/\S+?):[0-9]{1,9}$")
displays: list[Callable[[], None]] = []
"""Functions that take a display off the terminal, so that a line does not hang on to it."""
_MOST_BYTES = 4 << 20
"""The most of a file that is read again to tell what a message quotes."""


def say(text: str, hint: str = "") -> None:
    """Print one line, ``nginx-tune: TEXT (HINT)``; a terminal that is narrower gets it folded."""
    ending = f" ({plain(redact_text(hint))})" if hint else ""
    echo_line(f"nginx-tune: {shown_line(text)}{ending}")


def echo_line(line: str) -> None:
    """Print a line that may be shown. When nobody can read it, nothing more is said.

    The reader of a pipe has gone (EPIPE), the terminal is closed (EIO), the disk is full: none of
    that may decide what becomes of the work that is told of.
    """
    for take_away in displays:
        take_away()
    line = commandless(line)
    if not (sys.stderr.encoding or "utf-8").lower().startswith("utf"):
        line = ascii_text(line)
    try:
        for part in _folded(line):
            click.echo(part, err=True)
    except OSError:
        discard(sys.stderr)


def columns(stream: TextIO | None) -> int | None:
    """The width of lines for people: ``COLUMNS``, else the terminal's; null for a pipe or a file.

    A terminal sets ``COLUMNS`` for its shell alone; in the environment it is a wish, as for ls.
    """
    wish = os.environ.get("COLUMNS", "")
    if re.fullmatch(r"[1-9][0-9]{0,3}", wish):
        return int(wish)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream else None
    except (OSError, ValueError):  # no terminal
        return None


def _folded(line: str) -> list[str]:
    """The line as it is, which a log searches; on a terminal in lines that it has room for."""
    width = columns(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None
    if width is None or len(line) <= width:
        return [line]
    from nginx_tune.report.folding import fold  # noqa: PLC0415  # only for a long line

    return fold(line, width)


def discard(stream: TextIO | None) -> None:
    """Let what is written to it from now on, and what is still in its buffer, go nowhere."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def shown_line(text: str) -> str:
    """The text as one line that may be shown."""
    line = " ".join(text.split())
    said = _BY_NGINX.search(line)
    if said is not None:
        from nginx_tune.conf.secrets import redact_message  # noqa: PLC0415  # only for such a line

        line = line[: said.end()] + redact_message(line[said.end() :], _tree_of(line))
    return plain(redact_text(line))


def _tree_of(line: str) -> ConfTree | None:
    """The file that a message of nginx names, if it can be read."""
    from nginx_tune.conf.tree import parse_text  # noqa: PLC0415  # only for such a line
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    place = _PLACE.search(line)
    if place is None:
        return None
    try:
        data = LiveHost().read_bytes(place[1])
    except Exception:  # noqa: BLE001  # an error is being told: whatever is wrong, tell it strictly
        return None
    if len(data) > _MOST_BYTES:
        return None
    return parse_text(data.decode("utf-8", "surrogateescape"), file=place[1])


class _Display(Protocol):
    """Progress on a terminal."""

    def tell(self, text: str) -> None: ...
    def close(self) -> None: ...


_open: list[_Display] = []
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
