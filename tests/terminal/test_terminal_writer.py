"""Screens on a terminal: golden pictures at three widths, and what holds at every width."""

from __future__ import annotations

import io
import os
import random
import re
from pathlib import Path

import pytest
from rich.console import Console
from rows import each_row

from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import Line, Screen, Table, markdown, plain_text
from nginx_tune.report.terminal.writer import lay_out
from nginx_tune.report.verdict import verdict_screen
from tests.proof.test_prove_reports import RUN, VERDICTS

GOLDEN = Path(__file__).parent / "golden"
SCREENS = {"scenario-run": scenario_screen(RUN)} | {
    name: verdict_screen(verdict) for name, verdict in VERDICTS.items()
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def _shown(
    screen: Screen,
    width: int,
    *,
    encoding: str = "utf-8",
    colour: bool = False,
    verbose: bool = False,
) -> str:
    terminal = Console(
        file=io.TextIOWrapper(io.BytesIO(), encoding=encoding),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
    )
    return lay_out(screen, terminal, verbose=verbose)


def _words(text: str) -> set[str]:
    """Without the colons that follow the names of columns in a table that is stacked."""
    return {word.rstrip(":") for word in text.split()}


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", ["scenario-run", "verdict-better"])
def test_screens_at_three_widths(name: str, width: int) -> None:
    text = _shown(SCREENS[name], width)
    file = GOLDEN / f"{name}-{width}.txt"
    if os.environ.get("NGINX_TUNE_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@each_row("name", SCREENS)
def test_no_word_is_broken_and_no_line_too_wide(name: str) -> None:
    # A table that is stacked does not name its first column.
    tables = [part for block in SCREENS[name] for part in block if isinstance(part, Table)]
    words = _words(plain_text(SCREENS[name])) - {table.rows[0][0] for table in tables}
    longest = max(map(len, words))
    for width in (60, 64, 72, 80, 100, 133, 200, 240):
        text = _shown(SCREENS[name], width, verbose=True)
        shown = _words(text)
        for word in words - shown:  # the name of a metric may end a line before its last part
            head, _, last = word.rpartition(".")
            assert {f"{head}.", last} <= shown, (word, width)
        wide = [line for line in text.splitlines() if len(line) > width]
        assert not wide or longest > width - 8, wide


def test_a_wide_terminal_shows_what_a_pipe_gets() -> None:
    for screen in SCREENS.values():
        assert _shown(screen, 2000, verbose=True) == plain_text(screen)


def test_colour_changes_no_letter() -> None:
    for screen in SCREENS.values():
        coloured = _shown(screen, 80, colour=True)
        assert "\x1b[1m" in coloured
        assert _ESCAPE.sub("", coloured) == _shown(screen, 80)


def test_an_ascii_terminal_gets_ascii() -> None:
    shown = _shown([[Line("p99 ≥ 1.2 µs → 3×")]], 60, encoding="ascii")
    assert shown == "p99 >= 1.2 us > 3x\n"


def test_notes_are_folded_and_said_to_be() -> None:
    screen = [[Line("seen"), *(Line(f"note {n}", "note", 2) for n in range(3))]]
    assert _shown(screen, 60) == "seen\n  3 notes more: -v\n"
    assert _shown(screen, 60, verbose=True) == plain_text(screen)
    few = [[Line("one", "note"), Line("two", "note")]]
    assert _shown(few, 60) == "one\ntwo\n"


def test_a_command_that_fits_a_line_stays_on_one() -> None:
    command = "sudo nginx-tune validate new.conf --require 'hot.p99 <= 50ms'"
    text = f"a rather long beginning of a line; {command}; and what comes after it"
    for width in range(64, 130):
        lines = _shown([[Line(text)]], width).splitlines()
        assert any(command in line for line in lines), width
        assert max(map(len, lines)) <= width
    folded = _shown([[Line(text)]], 40).splitlines()
    assert max(map(len, folded)) <= 40
    assert " ".join(line.strip().removesuffix(" \\") for line in folded) == text


def test_a_table_gives_way_in_steps() -> None:
    table = Table([("name", "value"), ("x" * 20, "some words that go on and on here")], indent=2)
    assert _shown([[table]], 60) == plain_text([[table]])
    folded = _shown([[table]], 40).splitlines()
    assert folded[1].startswith("  " + "x" * 20 + "  some words")
    assert max(map(len, folded)) <= 40
    assert _shown([[table]], 20).splitlines()[1:] == [
        "    value: some",
        "      words that go",
        "      on and on here",
    ]


def test_any_table_at_any_width_keeps_its_words() -> None:
    dice = random.Random(11)
    for _ in range(60):
        columns = dice.randint(1, 7)
        rows = [
            [" ".join("w" * dice.randint(1, 14) for _ in range(dice.randint(1, 6)))
             for _ in range(columns)]
            for _ in range(dice.randint(1, 5))
        ]  # fmt: skip
        table = Table(rows, right=[dice.randrange(columns)], indent=dice.choice([0, 2]))
        width = dice.randint(30, 160)
        text = _shown([[Table([["h"] * columns, *rows], table.right, table.indent)]], width)
        wanted = sorted(word for row in rows for cell in row for word in cell.split())
        assert sorted(word for word in text.split() if set(word) == {"w"}) == wanted
        assert max(map(len, text.splitlines())) <= width


def test_the_same_screen_in_markdown() -> None:
    text = markdown(SCREENS["scenario-run"])
    assert text.startswith("**")
    assert "### claims\n" in text
    assert "| source | claim |" in text
    assert "| --- |" in text


def test_metrics_of_many_places_stay_a_table_at_80_columns() -> None:
    kinds = ("requests_per_second", "mean", "p99", "ttfb.p99", "bytes_per_second")
    rows = [
        (f"shop.example.org:8443.{kind}" if number else "www.example.org./static/.p99",
         "1.25 GiB/s", "823 ms", "0.32× [0.098–0.46]", "inconclusive [1]")
        for number in range(5) for kind in kinds
    ]  # fmt: skip
    head = ("metric", "baseline", "candidate", "ratio", "outcome")
    lines = _shown([[Table([head, *rows], right=(1, 2))]], 80).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert "shop.example.org:8443." in "\n".join(lines)
    assert "\0" not in "".join(lines)


def test_a_number_in_a_cell_stays_with_its_unit() -> None:
    rows = [("worker", "CPU", "run queue"), ("18523", "0.399 %", "1.78 % ± 0.2 %")]
    rows += [("18524", "12.5 MiB/s", "9.79 ms/s")]
    for width in range(26, 60):
        for line in _shown([[Table(rows)]], width).splitlines():
            assert not re.match(r"\s*(%|MiB/s|ms/s)(\s|$)", line), (width, line)


def test_the_last_cell_of_a_table_without_a_head_gives_way_first() -> None:
    label = Table([("working set", "58.6 KiB for half of them, and so on and on")], has_head=False)
    assert _shown([[label]], 50).splitlines()[0].startswith("working set  58.6 KiB for half")
    reason = "virtio_net: the hypervisor offers no speed"
    link = Table([("eth0", "physical virtio_net", "queues 1 in, 1 out", reason)], has_head=False)
    assert _shown([[link]], 60).splitlines() == [
        "eth0  physical virtio_net  queues 1 in, 1 out",
        f"    {reason}",
    ]


def test_rows_are_stacked_where_that_takes_fewer_lines() -> None:
    rows = [("source", "claim", "expected")]
    rows += [("A2", "some words " * 12, "predicted(ratio(hot.requests_per_second))")]
    lines = _shown([[Table(rows)]], 60).splitlines()
    assert lines[0] == "A2"
    assert lines[1].startswith("  claim: some words")
    assert len(lines) < 8


def test_an_ascii_terminal_gets_ascii_of_every_sign_of_ours() -> None:
    text = "1 µs ± 2 × 3 ÷ 4 – 5 → 6 ≤ 7 ≥ 8 … ▁▂▃▄▅▆▇█"
    assert _shown([[Line(text)]], 90, encoding="ascii").isascii()
    assert "\\" not in _shown([[Line(text)]], 90, encoding="ascii")


def test_many_cells_without_a_head_follow_each_other_in_words() -> None:
    row = ("eth0", "physical virtio_net", "up", "?", "queues 1 in, 1 out", "pfifo_fast", "mtu 1400")
    lines = _shown([[Table([(*row, "no speed")], indent=2, has_head=False)]], 60).splitlines()
    assert " ".join(" ".join(lines).split()) == f"{' '.join(row)} no speed"
    assert "queues 1 in, 1 out" in lines[0]
