"""``--help``: commands by what they are for, examples that parse, and words that were meant."""

import os
import re
import shlex

import click
import pytest
from rows import each_row

from nginx_tune.cli.help import EXAMPLES, section_of
from nginx_tune.cli.main import COMMANDS, GROUPS, cli, main
from nginx_tune.errors import name_meant


def _paths() -> dict[str, click.Command]:
    """Every command by its words, those below a group too."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": one for below, one in command.commands.items()}
    return found


def test_each_command_is_in_one_group_and_has_examples() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    assert set(EXAMPLES) == set(_paths())


@each_row(("words", "line"), [(words, line) for words, lines in EXAMPLES.items() for line in lines])
def test_an_example_parses(words: str, line: str) -> None:
    typed = shlex.split(line.partition("|")[0].partition(" >")[0])
    typed = typed[typed.index("nginx-tune") + 1 :]
    assert typed[: len(words.split())] == words.split() or words in ("scenario", "runs", "lab")
    command, name = _paths()[typed[0]], typed.pop(0)
    context = click.Context(cli, info_name="nginx-tune")
    while isinstance(command, click.Group):
        name = typed.pop(0)
        command = command.commands[name]
    command.make_context(name, typed, parent=context)


@each_row(
    ("typed", "meant"),
    [
        (["audt"], "audit"),
        (["VALIDAT"], "validate"),
        (["schema", "fact"], "facts"),
        (["learn", "log", "--kind", "medai"], "media"),
        (["scenario", "show", "stalled"], None),
        (["scenario", "show", "pool-overfow"], "pool-overflow"),
        (["explain", "io-pool"], "io-pool"),
        (["explain", "--list", "-f", "mdd"], "md"),
        (["validate", "x.conf", "--lab", "nvm"], "nvme"),
        (["xyzzy"], None),
    ],
)
def test_a_mistyped_word_is_answered_with_what_was_meant(
    typed: list[str], meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert (f"is {meant}" in said and "meant?" in said) if meant else "meant?" not in said


@pytest.mark.parametrize("width", [60, 80])
@each_row("words", ["", *EXAMPLES])
def test_help_cuts_nothing_and_breaks_examples_as_a_shell_takes_them(
    words: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 40)))
    assert main([*words.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > width] == []
    assert "..." not in shown.partition("Commands:")[2]
    assert "INTEGER" not in shown
    told = shown.partition("Examples:")[2].replace(" \\\n", " ")
    for line in EXAMPLES.get(words, ()):
        assert " ".join(line.split()) in " ".join(told.split())


@each_row(
    ("typed", "told"),
    [
        ("inspct", "no such command 'inspct' (is inspect meant?)"),
        ("scenario shw", "no such command 'shw' (is show meant?)"),
        ("probe x --duratoin 3s", "no such option '--duratoin' (is --duration meant?)"),
        ("recommend --kindd media", "no such option '--kindd' (is --kind meant?)"),
        ("recommend --cpu 4", "no such option '--cpu' (is --cpus meant?)"),
        ("rehearse --max-time 5", "no such option '--max-time' (validate has it)"),
        ("recommend --price x", "no such option '--price' (size has it)"),
        ("audit --sarif", "no such option '--sarif' (-f sarif)"),
        ("check --rooot /srv", "no such option '--rooot'"),
        ("probe", "missing argument 'URL|LOADPLAN' (nginx-tune probe --help)"),
        ("collector x", "got unexpected extra argument (x)"),
    ],
)
def test_errors_of_the_command_line_are_said_as_all_others(
    typed: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert capsys.readouterr().err == f"nginx-tune: {told}\n"


def test_each_command_with_a_screen_has_the_same_formats() -> None:
    """Those that only report what they did, or list, have lines instead."""
    lines = {"apply", "confirm", "rollback", "history", "lab list", "lab clean", "explain"}
    for words, command in _paths().items():
        formats = next((one.help for one in command.params if one.name == "formats"), "") or ""
        if formats.startswith("console") and words not in lines:
            assert re.match(r"console, json, (sarif.*, )?md\b", formats), (words, formats)


def test_the_nearest_name() -> None:
    known = ["io-aio", "io-aio-threads", "http-zones"]
    assert name_meant("io-a", known) == "is io-aio meant?"
    assert name_meant("http-zone", known) == "is http-zones meant?"
    assert name_meant("q", known) == ""
    assert name_meant("", known) == ""


_MANY = 25


def test_more_options_than_one_reads_have_titles_and_each_is_below_one() -> None:
    for words, command in _paths().items():
        options = [one for one in command.params if isinstance(one, click.Option)]
        shown = command.get_help(click.Context(command, info_name=words))
        titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
        if len(options) <= _MANY:
            assert titles.count("Options") <= 1, words
            continue
        assert "Options" not in titles, words
        assert len(titles) > 4, words
        for option in options:
            assert (
                len(re.findall(rf"^  (?:-., )?{option.opts[-1]}(?![\w-])", shown, re.MULTILINE))
                == 1
            )
            # What nobody put below a title is a result, as -f and -o are.
            is_result = section_of(max(option.opts, key=len).removeprefix("--")) == "Results"
            assert is_result <= (option.name in _RESULTS or option.opts[-1] in {"-c", "-p"}), option


_RESULTS = {"formats", "output", "no_store", "histogram_log", "histograms"}


@each_row(
    ("typed", "flags"),
    [
        ("schema facts -q", {"quiet": True}),
        ("schema -v facts -v --no-color", {"verbose": 2, "color": False}),
        ("lab list --quiet --color", {"quiet": True, "color": True}),
        ("recommend --facts -q", {}),
        ("probe http://127.0.0.1/ --header -v -q", {"quiet": True}),
        ("audit -- -q", {}),
    ],
)
def test_global_flags_are_taken_after_the_command(typed: str, flags: dict[str, object]) -> None:
    """But for the value of an option, and what follows ``--``."""
    words = shlex.split(typed)
    context = cli.make_context("nginx-tune", [*words])
    given = {name: value for name, value in context.params.items() if value not in (None, 0)}
    given |= {"color": False} if context.params["color"] is False else {}
    assert given == flags
