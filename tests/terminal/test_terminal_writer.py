"""Screens on a terminal: what holds at every width."""

import io
import random
import re

from rich.console import Console
from rows import each_row

from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import Line, Screen, Table, markdown, plain_text
from nginx_tune.report.terminal.writer import lay_out
from nginx_tune.report.verdict import verdict_screen
from tests.proof.test_prove_reports import RUN, VERDICTS

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
    """Without what a stacked table has more or less: colons after names, cells without content."""
    return {word.rstrip(":") for word in text.split()} - {"–"}


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
