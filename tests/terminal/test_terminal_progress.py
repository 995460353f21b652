"""What is shown while something runs: steps, the live display at every width, plain lines."""

import gzip
import io
import json
import re
import sys
from pathlib import Path

import click
import pytest
from rich.console import Console
from rows import each_row

from nginx_tune.documents.learning import LearnPlan
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target
from nginx_tune.documents.progress import SHARE, Glance, Step, part_of
from nginx_tune.observe.access_logs import LogFiles, read_logs
from nginx_tune.observe.log_configuration import choose_format
from nginx_tune.observe.object_storage import find_logs
from nginx_tune.report.probing import run_step, share_step
from nginx_tune.report.terminal.live_view import LiveView, left_text
from nginx_tune.report.terminal.saying import clear_progress, echo_line, progress_printer

CLASSES = {
    "hot": Glance(1200.5, 0.0012, 0),
    "a-very-long-name-of-a-location\x1b[2J": Glance(12.0, None, 31),
    **{f"class{number}": Glance(1.0, 0.5, number) for number in range(9)},
}


def _view(width: int, encoding: str = "utf-8") -> tuple[LiveView, io.TextIOWrapper]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=file, width=width, height=40, force_terminal=True, no_color=True)
    return LiveView(console), file


def _lines(view: LiveView, width: int, encoding: str = "utf-8", elapsed: float = 40.0) -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=file, width=width, color_system=None)
    console.print(view.picture(elapsed))
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]


def test_a_window_that_became_narrower_has_no_smear() -> None:
    """The terminal folds what was drawn: as many rows are taken away as it then has."""
    view, file = _view(100)
    view.tell(Step("x" * 90, done=3, total=8, unit="run"))
    file.flush()
    before = len(file.buffer.getvalue())  # type: ignore[attr-defined]
    view._console.width = 40
    view._drawn = 0.0
    view.tell(Step("x" * 90, done=4, total=8, unit="run"))
    file.flush()
    drawn = file.buffer.getvalue()[before:].decode()  # type: ignore[attr-defined]
    assert drawn.startswith("\r\x1b[5A\x1b[J\n")


def test_a_step_is_its_line_and_survives_json() -> None:
    step = Step(
        "run 3", done=3, total=8, unit="run", variant="baseline", classes=CLASSES, overflows=2
    )
    again = Step(step, **json.loads(json.dumps(step.figures())))
    assert step == "run 3"
    assert again.figures() == step.figures()


def test_a_part_begins_where_the_part_before_ended() -> None:
    told: list[str] = []
    tell = part_of(told.append, 4, 12)
    for text in (
        "words",
        Step("a", done=2, total=8, unit="run"),
        Step("b", done=0.5, unit=SHARE),
        Step("c", done=11, total=12, unit="run"),  # pairs that were run again
    ):
        tell(text)
    figures = [(one.done, one.total) if isinstance(one, Step) else one for one in told]
    assert figures == ["words", (6, 12), (0.5, None), (15, 15)]


def test_how_long_it_may_take() -> None:
    said = [left_text(seconds) for seconds in (-1, 0.4, 40, 59.6, 100, 3599.7, 7500)]
    assert said == [
        "0 s left", "0 s left", "40 s left", "1 min 0 s left", "1 min 40 s left",
        "1 h 0 min left", "2 h 5 min left",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [20, 60, 80, 120, 200, 240])
@each_row("encoding", ["utf-8", "ascii"])
def test_the_display_fits_every_width(width: int, encoding: str) -> None:
    view, _ = _view(width, encoding)
    view.tell(Step("the first run", done=0, total=12, unit="run", live=True))
    view.tell(Step("b", done=4, total=12, unit="run", variant="x", classes=CLASSES, overflows=7))
    for _ in range(100):
        part = Step("x " * 200, done=0.5, unit=SHARE, variant="x", classes=CLASSES, live=True)
        view.tell(part)
    lines = _lines(view, width, encoding)
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)
    if width >= 60:
        assert "run 5 of 12, 1 min 7 s left" in lines[0]
        assert any("7 pool overflows" in line for line in lines)
        assert any(line.startswith("  hot ") and "p99 1.2 ms" in line for line in lines)
        assert any("31 failed" in line for line in lines)
    view.close()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step("", done=3 << 20, total=4 << 20, unit="byte"), "3.0 MiB of 4.0 MiB, 13 s left"),
        (Step("", done=3, total=9.5, unit="s"), "3 of 9.5 s, 6 s left"),
        (Step("", done=70000, unit="file"), "file 70,000"),
        (Step("", done=12, total=12, unit="run"), "run 12 of 12, 0 s left"),
    ],
)
def test_the_unit_of_a_work_is_said(step: Step, words: str) -> None:
    view, _ = _view(80)
    view.tell(step)
    assert _lines(view, 80)[0].endswith(words)
    view.close()


def _said(capsys: pytest.CaptureFixture[str], settings: dict[str, int | bool]) -> str:
    show = progress_printer(click.Context(click.Command("x"), obj=settings))
    show("words")
    show(Step("live", done=1, unit="s", live=True))
    show(Step("a step", done=1, unit="s"))
    return capsys.readouterr().err


def test_lines_where_there_is_no_display(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _said(capsys, {}) == ""
    assert _said(capsys, {"verbose": 1}) == "words\na step\n"
    assert _said(capsys, {"verbose": 1, "quiet": True}) == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert _said(capsys, {}) == "words\na step\n"


@pytest.mark.needs("probe")
def test_logs_are_read_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'1.2.3.4 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 5 "-" "-"\n'
    plain, packed = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_bytes(line * 40_000)
    packed.write_bytes(gzip.compress(line.replace(b"1.2.3.4", b"5.6.7.8") * 40_000))
    monkeypatch.setattr("nginx_tune.observe.access_logs._TOLD_EVERY_SECONDS", 0.0)
    names = [str(plain), str(packed)]
    form = choose_format(None, None, names)
    told: list[str] = []
    read_logs(LogFiles(find_logs(names)), LearnPlan(format=form), on_progress=told.append)
    steps = [one for one in told if isinstance(one, Step)]
    done = [step.done for step in steps]
    whole = plain.stat().st_size + packed.stat().st_size
    assert done == sorted(done)
    assert {step.total for step in steps} == {whole}
    assert done[-1] == whole
    assert all(step.live for step in steps)  # no line each: less than 64 MiB


def test_the_probes_lines_are_steps() -> None:
    target = Target(address="127.0.0.1", port=80)
    hot = LoadClass(
        name="hot",
        connections=1,
        arrivals=Arrivals(kind="poisson", rate_per_second=9.0),
        paths=Paths(kind="fixed", paths=["/"]),
    )
    plan = LoadPlan(target=target, classes=[hot], warmup_seconds=2.0, duration_seconds=8.0)
    line = {"second": 5, "classes": {"hot": {"requests": 7, "errors": 1, "pending": 0, "p99": 0.5}}}
    alone, part = run_step(line, plan, "run 1, "), share_step(line, plan, "candidate")
    assert (alone.done, alone.total, alone.classes["hot"]) == (5, 10, Glance(7, 0.5, 1))
    assert alone.startswith("run 1, 3 of 8 s: hot 7/s, 1 failed, p99 500 ms")
    assert (part.done, part.unit, part.variant, part.live) == (0.5, SHARE, "candidate", True)
    late = share_step({"second": 99, "classes": {}}, plan, "candidate")
    assert late.done == 1.0


def test_a_terminal_that_is_gone_ends_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded: list[object] = []
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has no display
    monkeypatch.setattr("nginx_tune.report.terminal.live_view.discard", discarded.append)
    view, file = _view(80)
    view.tell("words")

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    file.flush()
    view._console.file = Gone()  # what SIGHUP leaves
    view._drawn = 0.0
    view.tell("interrupted: what was measured so far is judged")
    assert discarded == [sys.stderr]
    view.close()


def test_a_line_takes_the_display_away_and_the_next_step_brings_it_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that hung on to the display stood in the middle of it (``reload: and backnginx-``)."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    show = progress_printer(click.Context(click.Command("x"), obj={}))
    step = Step("b", done=4, total=12, unit="run", variant="x", classes=CLASSES)
    show(step)
    echo_line("stored as run 1")
    said = capsys.readouterr().err
    assert said.endswith("stored as run 1\n")
    # The last picture is taken away: the line begins at the left, below nothing.
    assert re.search(r"\x1b\[1A\x1b\[2K(\x1b\[\?25h)?stored as run 1\n$", said), said
    show(step)
    again = capsys.readouterr().err
    assert "run 5 of 12" in again
    assert "hot" in again
    clear_progress()
