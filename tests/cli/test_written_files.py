"""No command writes its result over what it reads, nor two results to one file: every option.

The options come from click's own tree. One that names a file is either written, and of the type
that the guard knows, or it is named here as read: a new one fails until somebody has decided.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rows import each_row

from nginx_tune.cli.main import cli, main
from nginx_tune.report.terminal.output import ResultFile

PACKAGE = Path(__file__).resolve().parents[2] / "nginx_tune"
READ = {
    "facts_path", "facts_source", "workload_path", "site_path", "observation_path", "check_path",
    "host_path", "conf", "conf_option", "conf_path", "against", "plan_path", "manifest",
    "workload", "baseline", "overlays", "paths_from", "ca_file", "certificate_file", "key_file",
    "files", "name", "run_id", "logs", "plan", "config_path", "old", "new", "before", "after",
    "measurement", "control", "what",
}  # fmt: skip
"""Parameters whose values name files that are read."""
NO_FILES = {
    "formats", "datasets", "paths", "cache_dirs", "roots", "maps", "state_dir", "document_root",
    "unix_path", "id", "change", "schema", "topic", "item", "folder",
}  # fmt: skip
"""Directories, sockets, and words; ``-f`` names its files itself."""
WORDS = ("FILE", "DIR", "PATH", "CONF", "PLAN", "LOG", "OUT")
NOT_TRIED = {"name", "run_id", "overlays", "maps"}
"""What names a file only in another form than the bare one."""


def commands(group: click.Group, name: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for word in group.list_commands(context):
        one = group.get_command(context, word)
        assert one is not None
        if isinstance(one, click.Group):
            yield from commands(one, (*name, word))
        else:
            yield " ".join((*name, word)), one


COMMANDS = dict(commands(cli))


def written(command: click.Command) -> list[click.Parameter]:
    return [one for one in command.params if isinstance(one.type, ResultFile)]


def flag(option: click.Parameter) -> str:
    return max(option.opts, key=len)


@each_row("name", COMMANDS)
def test_each_option_that_names_a_file_is_known_as_read_or_written(name: str) -> None:
    unknown = [
        f"{flag(one)} ({one.name})"
        for one in COMMANDS[name].params
        if any(word in str(getattr(one, "metavar", "") or "").upper() for word in WORDS)
        and not isinstance(one.type, ResultFile)
        and one.name not in READ | NO_FILES
    ]
    assert not unknown, "of the type RESULT_FILE if it is written, else in READ or NO_FILES here"


def test_what_writes_a_file_names_it_by_an_option_of_that_type() -> None:
    """Each call of ``write_file`` in a command: with a parameter that the guard knows."""
    known = {one.name for command in COMMANDS.values() for one in written(command)}
    found = set()
    for path in (PACKAGE / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "write_file":
                words = {one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name)}
                words |= {one.attr for one in ast.walk(node.args[0])
                          if isinstance(one, ast.Attribute)}  # fmt: skip
                assert words & known, f"{path.name}:{node.lineno}: {ast.unparse(node)}"
                found |= words & known
    assert {"capture_path", "manifest_path", "save_facts", "write_baseline"} <= found
    assert "output" in known


def fill(command: click.Command, chosen: click.Parameter | None, file: Path) -> list[str]:
    """Values for what must be given, and the file for the parameter that is tried."""
    words: list[str] = []
    for one in command.params:
        is_argument = isinstance(one, click.Argument)
        if one is chosen:
            words += [str(file)] if is_argument else [flag(one), str(file)]
            words += [str(file)] * (max(1, one.nargs) - 1)
        elif is_argument and one.required:
            words += ["nothing"] * max(1, one.nargs)
    return words


PAIRS = [
    (name, out.name, read.name)
    for name, command in COMMANDS.items()
    for out in written(command)
    for read in command.params
    if read.name in READ - NOT_TRIED
    and isinstance(read.type, (click.types.StringParamType, click.Path))
]


@pytest.mark.parametrize(("name", "out", "read"), PAIRS)
def test_a_result_in_the_place_of_what_is_read_is_refused(
    name: str, out: str, read: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name]
    options = {one.name: one for one in command.params}
    (tmp_path / "data").write_text("cpus = 8")  # a description of a host is read before
    (tmp_path / "link").symlink_to("data")
    words = [*name.split(), *fill(command, options[read], tmp_path / "data")]
    assert main([*words, flag(options[out]), str(tmp_path / "link")]) == 2
    assert "this command reads it and would overwrite it" in capsys.readouterr().err
    assert (tmp_path / "data").read_text() == "cpus = 8"


TWO = [
    (name, one.name)
    for name, command in COMMANDS.items()
    for one in written(command)
    if one.name != "output" and any(other.name == "formats" for other in command.params)
]


@pytest.mark.parametrize(("name", "out"), TWO)
def test_two_results_in_one_file_are_refused(
    name: str, out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name]
    option = next(one for one in command.params if one.name == out)
    file = tmp_path / "result"
    words = [*name.split(), *fill(command, None, file), flag(option), str(file)]
    for further in (["-o", str(file)], ["-f", f"json={tmp_path}/./result"]):
        assert main([*words, *further]) == 2
        assert "two results have the same file" in capsys.readouterr().err
    assert not file.exists()


def test_the_settings_file_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nginx-tune.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "facts", "-o", "nginx-tune.toml"]) == 2
    assert "this command reads it" in capsys.readouterr().err
    assert main(["schema", "facts", "-o", "other.json"]) == 0


def test_two_formats_in_one_file_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "nothing", "-f", "diff=a", "-f", "json=./a"]) == 2
    assert "two results have the same file" in capsys.readouterr().err


@pytest.mark.needs("probe")
def test_a_result_in_a_file_is_said_with_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n.conf").write_text("events {} http { server { root /srv; } }")
    Path("a.log").write_text(
        '::1 - - [20/Nov/2026:19:26:34 +0000] "GET /a HTTP/1.1" 200 7 "-" "-"\n'
    )
    for words, said in {
        ("inspect", "-f", "json", "-o", "f"): "the result is in f",
        ("learn", "a.log", "-f", "json=w"): "the workload is in w",
        ("plan", "n.conf", "-f", "json=p q"):
            "the plan is in p q (next: nginx-tune validate --plan 'p q')",
        ("generate", "--facts", "f", "--kind", "static", "--root", "/srv", "-o", "g"):
            "the result is in g (next: nginx-tune validate g)",
        ("report", "f", "-o", "r"): "the report is in r",
    }.items():  # fmt: skip
        assert main([*words]) == 0, capsys.readouterr().err
        assert f"nginx-tune: {said}\n" in capsys.readouterr().err
        main(["-q", *words])
        assert "is in" not in capsys.readouterr().err
