"""The live display of a long task: one bar, a line for each request class, the current step.

rich draws it on standard error, at most ten times a second and only when progress is reported: no
thread runs beside a measurement. Latencies are sparklines.
"""

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal

from rich.cells import set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nginx_tune.documents.progress import SHARE, Glance, Step
from nginx_tune.documents.units import bytes_text, seconds_text
from nginx_tune.report.terminal.saying import discard, shown_line
from nginx_tune.report.text import ascii_text

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"


def sparkline(values: Sequence[float | None], *, bars: str = BARS) -> str:
    """A bar character for each value, with logarithmic heights; a space for None.

    Latencies spread over orders of magnitude; equal values are drawn low.
    """
    known = [math.log(value) for value in values if value and value > 0]
    if not known:
        return " " * len(values)
    low, span = min(known), max(known) - min(known)
    steps = len(bars) - 1
    return "".join(
        " "
        if value is None or value <= 0
        else bars[round((math.log(value) - low) / span * steps) if span else 0]
        for value in values
    )


def left_text(seconds: float) -> str:
    """``40 s left``, ``1 min 40 s left``, ``2 h 5 min left``."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min left"
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"


_MOST_CLASSES = 6
_MOST_POINTS = 200
_REDRAW_SECONDS = 0.1
_SECONDS = "s"
_NAME_WIDTH = 16
_WIDEST_BAR = 60


class LiveView:
    """A display of progress; :meth:`close` clears it.

    The next report draws it again with all its data, so a line can be printed in between.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        # On an ASCII terminal the ellipsis would be an escape of six columns.
        self._cut: Literal["crop", "ellipsis"] = (
            "crop" if console.options.ascii_only else "ellipsis"
        )
        self._text = ""
        self._step: Step | None = None
        self._share = 0.0
        self._classes: dict[str, Glance] = {}
        self._points: dict[tuple[str, str], deque[float | None]] = {}
        self._variant = ""
        self._overflows = 0
        self._errors = 0
        self._began = time.monotonic()
        self._drawn = 0.0
        self._widths: list[int] = []
        """Columns of the lines on the terminal now."""
        self._live: Live | None = None

    def tell(self, text: str) -> None:
        """Show a line of text or a step of progress."""
        self._text = shown_line(text)
        if isinstance(text, Step):
            self._take(text)
            if text.unit == _SECONDS and text.classes and " waiting" not in text:
                self._text = self._text.partition(": ")[0]  # the rest is in the class lines
        now = time.monotonic()
        if now - self._drawn >= _REDRAW_SECONDS:
            self._drawn = now
            try:
                picture = self.picture(now - self._began)
                if self._live is None:
                    self._live = Live(
                        console=self._console, auto_refresh=False, transient=True,
                        redirect_stdout=False, redirect_stderr=False,
                    )  # fmt: skip
                    self._live.start()
                self._clear_folded()
                self._live.update(picture, refresh=True)
                lines = self._console.render_lines(picture, pad=False)
                self._widths = [sum(part.cell_length for part in line) for line in lines]
            except OSError:  # the terminal is gone: the measurement goes on
                discard(sys.stderr)

    def close(self) -> None:
        """Clear the display."""
        live, self._live = self._live, None
        if live is None:
            return
        with contextlib.suppress(OSError):
            self._clear_folded()
            live.update(Text(""))
            live.stop()
        self._widths = []
        self._drawn = 0.0

    def _clear_folded(self) -> None:
        """Clear the lines that the terminal folded when its window became narrower.

        The cursor is left where the next drawing expects it, that many lines below the first one.
        """
        width = max(self._console.width, 1)
        rows = sum(max(1, math.ceil(columns / width)) for columns in self._widths)
        if rows > len(self._widths):
            up = f"\x1b[{rows - 1}A"
            self._console.file.write(f"\r{up}\x1b[J" + "\n" * (len(self._widths) - 1))

    def _take(self, step: Step) -> None:
        if step.unit == SHARE:
            self._share = step.done
        else:
            if self._step is None or step.unit != self._step.unit or step.done < self._step.done:
                self._began = time.monotonic()
            self._step, self._share = step, 0.0
            self._overflows += step.overflows
        if not step.classes:
            return
        self._variant, self._classes = step.variant, step.classes
        if step.unit != "run":  # the figures of a run come with its seconds
            for name, glance in step.classes.items():
                points = self._points.setdefault((step.variant, name), deque(maxlen=_MOST_POINTS))
                points.append(glance.p99_seconds)
        else:
            self._errors += sum(glance.errors for glance in step.classes.values())

    def picture(self, elapsed: float) -> Group:
        """The display after ``elapsed`` seconds."""
        lines: list[Text | Table] = []
        if self._step is not None:
            lines.append(self._bar(self._step, elapsed))
        lines += self._class_lines()
        if counts := self._counts():
            lines.append(Text(counts, no_wrap=True, overflow=self._cut, style="yellow"))
        lines.append(Text(self._text, no_wrap=True, overflow=self._cut, style="dim"))
        return Group(*lines)

    def _bar(self, step: Step, elapsed: float) -> Text | Table:
        done = step.done + self._share
        words = _words(step)
        if step.total is None:
            return Text(words, no_wrap=True, overflow=self._cut)
        if 0 < done <= step.total:
            rest = step.total - done
            # Seconds need no estimate, and the first report may come after one has passed.
            words += f", {left_text(rest if step.unit == _SECONDS else elapsed * rest / done)}"
        room = self._console.width - len(words) - 2
        if room < 8:  # noqa: PLR2004  # less is no bar
            return Text(words, no_wrap=True, overflow=self._cut)
        bar = ProgressBar(
            total=step.total or 1, completed=min(done, step.total), width=min(room, _WIDEST_BAR)
        )
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(bar, Text(words, no_wrap=True))
        return grid

    def _class_lines(self) -> list[Text | Table]:
        lines: list[Text | Table] = []
        shown = list(self._classes.items())[:_MOST_CLASSES]
        wide = min(max((len(shown_line(name)) for name, _ in shown), default=0), _NAME_WIDTH)
        ascii_only = self._console.options.ascii_only
        for name, glance in shown:
            p99 = "" if glance.p99_seconds is None else f"p99 {seconds_text(glance.p99_seconds)}"
            tail = f"{glance.per_second:,.0f}/s"
            tail += f"  {glance.errors:,} failed" if glance.errors else ""
            head = f"  {set_cell_size(shown_line(name), wide)}  {p99:<13} "
            room = max(self._console.width - len(head) - len(tail) - 3, 0)
            points = list(self._points.get((self._variant, name), ()))[-min(room, _WIDEST_BAR) :]
            spark = sparkline(points, bars=ASCII_BARS if ascii_only else BARS) if room else ""
            line = Text(no_wrap=True, overflow=self._cut)
            if ascii_only:
                head = ascii_text(head)
            line.append(head).append(spark, style="cyan").append(f"  {tail}")
            lines.append(line)
        if len(self._classes) > _MOST_CLASSES:
            lines.append(Text(f"  and {len(self._classes) - _MOST_CLASSES} more classes"))
        return lines

    def _counts(self) -> str:
        counts = [f"{self._overflows:,} pool overflows"] if self._overflows else []
        counts += [f"{self._errors:,} failed in the runs before"] if self._errors else []
        return "  " + ", ".join(counts) if counts else ""


def _words(step: Step) -> str:
    """``run 5 of 12``, ``3 of 8 s``, ``1.2 GiB of 4 GiB``, ``step 4``."""
    if step.unit == "byte":
        of = "" if step.total is None else f" of {bytes_text(step.total)}"
        return bytes_text(step.done) + of
    if step.unit == "s":
        return f"{step.done:.0f}" + ("" if step.total is None else f" of {step.total:g}") + " s"
    if step.total is None:
        return f"{step.unit} {step.done:,.0f}"
    now = min(step.done + 1, step.total)  # the current run, not the last one finished
    return f"{step.unit} {now:,.0f} of {step.total:,.0f}"


def open_view(*, plain: bool) -> LiveView:
    """A display on standard error; ``plain`` is without colour."""
    return LiveView(Console(file=sys.stderr, no_color=plain or None, highlight=False))
