"""Lines and progress on standard error, without secrets.

Every message of a command passes through :func:`shown_line`, which leaves out secrets, checks
quotes in nginx's messages against the configuration, and makes control characters visible. On a
terminal, progress is a live display, otherwise plain lines.
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
"""Functions that clear a live display before a line is printed."""
_MOST_BYTES = 4 << 20
"""The largest configuration file that is read to check what a message quotes."""


def say(text: str, hint: str = "") -> None:
    """Print one line, ``nginx-tune: TEXT (HINT)``, folded to the width of a terminal."""
    ending = f" ({plain(redact_text(hint))})" if hint else ""
    echo_line(f"nginx-tune: {shown_line(text)}{ending}")


def echo_line(line: str) -> None:
    """Print a line from :func:`shown_line`; after an error, drop all further ones.

    A closed pipe (EPIPE), a closed terminal (EIO) or a full disk must not affect the work itself.
    """
    for clear in displays:
        clear()
    line = commandless(line)
    if not (sys.stderr.encoding or "utf-8").lower().startswith("utf"):
        line = ascii_text(line)
    try:
        for part in _folded(line):
            click.echo(part, err=True)
    except OSError:
        discard(sys.stderr)


def columns(stream: TextIO | None) -> int | None:
    """The width of lines: ``COLUMNS``, else the terminal's; None for a pipe or a file.

    Shells do not export ``COLUMNS``, so if it is in the environment, the user has set it.
    """
    chosen = os.environ.get("COLUMNS", "")
    if re.fullmatch(r"[1-9][0-9]{0,3}", chosen):
        return int(chosen)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream else None
    except (OSError, ValueError):  # no terminal
        return None


def _folded(line: str) -> list[str]:
    """The line, folded to a terminal's width; unchanged elsewhere, so that logs can be searched."""
    width = columns(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None
    if width is None or len(line) <= width:
        return [line]
    from nginx_tune.report.folding import fold  # noqa: PLC0415  # only for a long line

    return fold(line, width)


def discard(stream: TextIO | None) -> None:
    """Redirect a stream to /dev/null, including what is left in its buffer."""
    if stream is not None:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, stream.fileno())
        os.close(null)


def shown_line(text: str) -> str:
    """The text as one line without secrets and control characters."""
    line = " ".join(text.split())
    by_nginx = _BY_NGINX.search(line)
    if by_nginx is not None:
        from nginx_tune.conf.secrets import redact_message  # noqa: PLC0415  # only for such a line

        start = by_nginx.end()
        line = line[:start] + redact_message(line[start:], _tree_of(line))
    return plain(redact_text(line))


def _tree_of(line: str) -> ConfTree | None:
    """The tree of the file named in a message of nginx; None if it cannot be read."""
    from nginx_tune.conf.tree import parse_text  # noqa: PLC0415  # only for such a line
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    place = _PLACE.search(line)
    if place is None:
        return None
    try:
        data = LiveHost().read_bytes(place[1])
    except Exception:  # noqa: BLE001  # the line reports an error already: redact it strictly
        return None
    if len(data) > _MOST_BYTES:
        return None
    return parse_text(data.decode("utf-8", "surrogateescape"), file=place[1])


class _Display(Protocol):
    """Progress on a terminal."""

    def tell(self, text: str) -> None: ...
    def close(self) -> None: ...


_open: list[_Display] = []
"""The display that is on the terminal now, if any."""


def progress_printer(ctx: click.Context) -> Callable[[str], None]:
    """A function that shows progress; it does nothing with ``-q`` or without a terminal.

    With ``-v``, and on a terminal that cannot move its cursor (``TERM=dumb``, as for screen
    readers), each step is a line.
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
    """Clear the display, so that the next line begins in the first column."""
    displays.clear()
    while _open:
        _open.pop().close()


def _say_line(text: str) -> None:
    if not (isinstance(text, Step) and text.live):
        echo_line(shown_line(text))
