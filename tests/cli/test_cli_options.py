"""One option means one thing, whatever the command it stands behind."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from command_line import RunCli

from nginx_tune.cli import inputs
from nginx_tune.cli.main import COMMANDS, cli
from nginx_tune.errors import UsageError


class Meaning(NamedTuple):
    """What a user has to know of an option to give it."""

    spelled: tuple[str, ...]
    metavar: str | None
    kind: str
    multiple: bool


_OTHER_VALUES = {"--facts", "--require", "--warmup"}
"""Options that take further words in one command, and doctor's --require, which names means."""


def _options() -> Iterator[tuple[str, click.Option]]:
    """Every command, those below a group too, with each of its options."""
    todo = [(name, cli.get_command(click.Context(cli), name)) for name in COMMANDS]
    while todo:
        name, command = todo.pop(0)
        assert command is not None
        yield from ((name, one) for one in command.params if isinstance(one, click.Option))
        if isinstance(command, click.Group):
            todo += [(f"{name} {below}", one) for below, one in command.commands.items()]


def _meaning(option: click.Option) -> Meaning:
    kind = "flag" if option.is_flag else type(option.type).__name__
    return Meaning(tuple(sorted(option.opts)), option.metavar, kind, option.multiple)


def _by_spelling(*, short: bool) -> dict[str, dict[str, click.Option]]:
    found: dict[str, dict[str, click.Option]] = {}
    for command, option in _options():
        for word in option.opts:
            if word.startswith("--") is not short:
                found.setdefault(word, {})[command] = option
    return found


def test_a_short_option_means_the_same_in_every_command() -> None:
    table = _by_spelling(short=True)
    assert set(table) >= {"-c", "-p", "-f", "-o"}
    for word, commands in table.items():
        kinds = {(one.is_flag, one.metavar, type(one.type).__name__) for one in commands.values()}
        assert len(kinds) == 1, f"{word}: {sorted(commands)}: {kinds}"


@pytest.mark.parametrize("word", ["-p", "--nginx", "--trust", "--nginx-version"])
def test_what_names_an_nginx_or_its_prefix_is_one_option(word: str) -> None:
    commands = _by_spelling(short=not word.startswith("--"))[word]
    assert len(commands) > 1
    assert len({one.help for one in commands.values()}) == 1, sorted(commands)
    assert len({_meaning(one) for one in commands.values()}) == 1


def test_a_command_that_takes_a_configuration_takes_its_prefix() -> None:
    short = _by_spelling(short=True)
    takers = {"apply", "audit", "check", "explain", "learn", "plan", "recommend", "rehearse"}
    takers |= {"validate"}
    assert set(short["-c"]) == set(short["-p"]) == takers
    assert {one.metavar for one in short["-c"].values()} == {"CONF"}


def test_a_long_option_is_given_in_the_same_way_everywhere() -> None:
    for word, commands in _by_spelling(short=False).items():
        values = {one.metavar for one in commands.values() if one.metavar and not one.is_flag}
        assert len({one.is_flag for one in commands.values()}) == 1, f"{word}: {sorted(commands)}"
        if word not in _OTHER_VALUES:
            assert len(values) <= 1, f"{word}: {sorted(commands)}: {values}"


@pytest.mark.parametrize(
    ("built", "wanted"),
    [
        ("", "conf/nginx.conf"),
        ("--conf-path=etc/n.conf", "etc/n.conf"),
        ("--conf-path={}/n", "{}/n"),
    ],
)
def test_a_prefix_without_a_configuration_means_the_one_that_the_build_reads_there(
    run_cli: RunCli, tmp_path: Path, built: str, wanted: str
) -> None:
    program = tmp_path / "nginx"
    program.write_text(
        "#!/bin/sh\necho 'nginx version: nginx/1.26.3' >&2\n"
        f"echo 'configure arguments: {built.format(tmp_path)}' >&2\n"
    )
    program.chmod(0o755)
    conf = tmp_path / "there" / wanted.format(tmp_path)
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("events {}\n")
    run = run_cli("audit", "-p", "there", "--nginx", program, "--trust", "--facts", "none",
                  "-f", "json", cwd=tmp_path)  # fmt: skip
    assert [tmp_path / one for one in json.loads(run.stdout)["files_parsed"]] == [conf]


CONF = "events {{}}\nhttp {{ access_log logs/{0}.log {0}; log_format {0} '$status {0}'; }}\n"


@pytest.fixture
def two_trees(tmp_path: Path) -> tuple[Path, Path]:
    """A prefix with a configuration, and a working directory with another one of that name."""
    prefix, here = tmp_path / "prefix", tmp_path / "here"
    for directory in (prefix, here):
        (directory / "conf").mkdir(parents=True)
        (directory / "conf" / "nginx.conf").write_text(CONF.format(directory.name))
    return prefix, here


def _read(run_cli: RunCli, command: str, *options: str | Path, cwd: Path) -> str:
    """Which of the two configurations a command reads."""
    run = run_cli(command, *options, "-f", "json", cwd=cwd)
    if command == "audit":
        return Path(json.loads(run.stdout)["files_parsed"][0]).parts[-3:][0]
    assert run.returncode == 2, run.stderr
    return "prefix" if "known are combined, json, prefix" in run.stderr else "here"


@pytest.mark.parametrize("command", ["audit", "learn"])
def test_a_relative_name_stands_on_the_prefix_as_nginx_takes_it(
    run_cli: RunCli, two_trees: tuple[Path, Path], command: str
) -> None:
    prefix, here = two_trees
    conf = ("-c", "conf/nginx.conf")
    rest = ("--facts", "none") if command == "audit" else ("--log-format", "none", "x.log")
    assert _read(run_cli, command, *conf, *rest, "-p", prefix, cwd=here) == "prefix"
    assert _read(run_cli, command, *conf, *rest, "-p", "../prefix/", cwd=here) == "prefix"
    (prefix / "conf" / "nginx.conf").unlink()
    lost = _read(run_cli, command, *conf, *rest, "-p", prefix, cwd=here)
    assert lost in {"here", "conf"}, "what is not below the prefix is meant from here"


def test_what_a_log_is_written_in_is_found_below_a_relative_prefix(
    run_cli: RunCli, two_trees: tuple[Path, Path]
) -> None:
    prefix, here = two_trees
    (prefix / "logs").mkdir()
    log = prefix / "logs" / "prefix.log"
    log.write_text("200 prefix\n" * 3)
    conf = prefix / "conf" / "nginx.conf"
    other = "access_log logs/x.log combined; "
    conf.write_text(conf.read_text().replace("access_log", f"{other} access_log"))
    run = run_cli("learn", log, "-c", conf, "-p", os.path.relpath(prefix, here),
                  "-f", "json", cwd=here)  # fmt: skip
    assert "prefix" in run.stdout + run.stderr


@pytest.mark.needs("nginx")
def test_recommend_and_validate_take_the_prefix_too(
    run_cli: RunCli, two_trees: tuple[Path, Path]
) -> None:
    prefix, here = two_trees
    (prefix / "conf" / "nginx.conf").write_text("events {")
    wanted = f"{prefix}/conf/nginx.conf"
    for command in (["recommend", "-c"], ["validate", "--against", wanted]):
        run = run_cli(*command, "conf/nginx.conf", "-p", "../prefix", cwd=here)
        assert run.returncode == 3
        assert wanted in run.stderr


_OF_A_TREE: dict[str, tuple[str, ...]] = {
    "audit": ("--facts", "none"),
    "recommend": (),
    "plan": (),
    "validate": ("--against", "conf/nginx.conf"),
    "rehearse": ("conf/nginx.conf",),
    "apply": ("--overlay", "../prefix/conf/nginx.conf=whole.conf", "--no-reload", "--trust"),
}


@pytest.mark.needs("nginx", "root")
@pytest.mark.parametrize("command", _OF_A_TREE)
def test_every_command_finds_the_includes_below_the_prefix(
    run_cli: RunCli, two_trees: tuple[Path, Path], command: str
) -> None:
    """The one tree cannot be read, the other of the same names could."""
    prefix, here = two_trees
    for directory, text in ((prefix, "server { } }"), (here, "server { listen 18077; }")):
        (directory / "conf" / "nginx.conf").write_text("events {} http { include sites/*.conf; }")
        (directory / "conf" / "sites").mkdir()
        (directory / "conf" / "sites" / "a.conf").write_text(text)
    (here / "whole.conf").write_text("events {}")
    rest = [*_OF_A_TREE[command], "-c", "conf/nginx.conf", "-p", "../prefix"]
    if command == "apply":
        rest += ["--nginx", "/usr/sbin/nginx", "--state-dir", str(here / "state")]
    run = run_cli(command, *rest, cwd=here)
    assert run.returncode == 3, run.stderr
    assert "prefix/conf/sites/a.conf:1" in run.stdout + run.stderr
    assert 'unexpected "}"' in run.stdout + run.stderr


def test_a_pipe_without_a_writer_and_an_endless_device_are_no_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "WRITER_SECONDS", 0.05)
    monkeypatch.setattr(inputs, "MOST_PIPED_BYTES", 1000)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="nothing was written"):
        inputs.read_bytes(str(tmp_path / "pipe"))
    with pytest.raises(UsageError, match="more than"):
        inputs.read_bytes("/dev/zero")
    with pytest.raises(UsageError, match="not the name of a file"):
        inputs.read_bytes("a\0b")
    reading, writing = os.pipe()  # a shell's: who writes may take his time
    os.write(writing, b"x")
    os.close(writing)
    assert inputs.read_bytes(f"/dev/fd/{reading}") == b"x"
    os.close(reading)


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("1", 2, "1: give a version"),
        ("0.1", 2, "0.1: the known releases are 1.4.0 to 1."),
        ("1.3.9", 2, "1.3.9: the known releases are 1.4.0 to 1."),
        ("99.99", 2, "99.99: the known releases are 1.4.0 to 1."),
        ("1.99.1", 0, "1.99.1 is newer than 1."),
        ("1.4", 0, ""),
        ("1.26.3", 0, ""),
    ],
)
def test_a_version_that_is_not_known_is_told(
    version: str, status: int, said: str, tmp_path: Path, run_cli: RunCli
) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events { }\n")
    asked = ("audit", conf, "--facts", "none", "--nginx-version", version)
    run = run_cli(*asked)
    assert run.returncode == status
    assert said in run.stderr if said else not run.stderr
    assert status == 2 or not run_cli("-q", *asked).stderr
